"""Which questions train, validate and test: whole documents, so that nothing leaks."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from corag_search.errors import InputError

if TYPE_CHECKING:
    from data_prep.dataset import Dataset, Question

_ATTEMPTS = 32  # at filling the splits, each in another order; the best is taken
_PASSES = 20  # over all groups, moving one at a time; a pass without a move ends them earlier

FRACTIONS: Mapping[str, float] = {"train": 0.6, "val": 0.15, "test": 0.25}


def assign_splits(dataset: Dataset, fractions: Mapping[str, float] = FRACTIONS, seed: int = 0) -> dict[str, str]:
    """A split for every question, by document.

    Questions that share a gold document, directly or through others, always come into the same split. Every domain
    is filled by itself, so that each reaches the fractions as nearly as its whole documents allow; where that leaves
    a choice, the fractions of the whole data set decide.

    Args:
        dataset: Its questions are split.
        fractions: Share of the questions by split; they sum to 1.
        seed: Another seed, another choice of documents.

    Returns:
        Split by question id, in the questions' order.

    Raises:
        InputError: Fractions that are negative or do not sum to 1.
    """
    shares = list(fractions.values())
    if any(not share >= 0 for share in shares) or not math.isclose(sum(shares), 1):
        raise InputError(f"fractions must be at least 0 and sum to 1, got {dict(fractions)}")
    groups = _connected(dataset.questions)
    domains = [Counter(q.domain for q in group).most_common(1)[0][0] for group in groups]
    sizes: Counter[str] = Counter()
    for group, domain in zip(groups, domains, strict=True):
        sizes[domain] += len(group)
    # A few hundred documents are easily filled a few per cent off; thousands never are.
    attempts = max(1, min(_ATTEMPTS, _ATTEMPTS * 500 // max(len(groups), 1)))
    fillings = [_filled(groups, domains, sizes, fractions, f"{seed}/{attempt}") for attempt in range(attempts)]
    split_of = min(fillings, key=lambda filling: filling[0])[1]
    by_question = {q.id: split_of[i] for i, group in enumerate(groups) for q in group}
    return {q.id: by_question[q.id] for q in dataset.questions}


def _filled(
    groups: list[list[Question]], domains: list[str], sizes: Counter[str], fractions: Mapping[str, float], seed: str
) -> tuple[float, dict[int, str]]:
    """How far the splits miss their fractions, and the split of each group."""
    filling = _Filling(fractions, sizes)
    # Larger ones first (by powers of two, so that the seed has a say): small ones can still even out what they leave.
    shuffled = sorted(range(len(groups)), key=lambda i: shuffle_key(seed, min(q.id for q in groups[i])))
    order = sorted(shuffled, key=lambda i: -len(groups[i]).bit_length())
    split_of = {i: filling.add(domains[i], len(groups[i])) for i in order}
    for _ in range(_PASSES):
        if not any([filling.improve(split_of, i, domains[i], len(groups[i])) for i in order]):
            break
    return filling.miss(), split_of


class _Filling:
    """How many questions each split has and wants, by domain and in all."""

    def __init__(self, fractions: Mapping[str, float], sizes: Counter[str]) -> None:
        self._splits = [s for s, fraction in fractions.items() if fraction > 0]
        total = sum(sizes.values())
        self._missing = {(d, s): fractions[s] * n for d, n in sizes.items() for s in self._splits}
        self._missing_in_all = {s: fractions[s] * total for s in self._splits}
        self._weight_of_all = 1 / len(sizes) if sizes else 0.0  # little enough that each domain comes first

    def miss(self) -> float:
        """Sum of the squared misses in questions, of each domain and, with less weight, of the whole."""
        domains = sum(miss * miss for miss in self._missing.values())
        return domains + self._weight_of_all * sum(miss * miss for miss in self._missing_in_all.values())

    def _gain(self, domain: str, split: str, size: int) -> float:
        # By how much `miss` falls when the split gets `size` questions more.
        in_domain, in_all = (size * (2 * m - size) for m in (self._missing[domain, split], self._missing_in_all[split]))
        return in_domain + self._weight_of_all * in_all

    def _put(self, domain: str, split: str, size: int) -> None:
        self._missing[domain, split] -= size
        self._missing_in_all[split] -= size

    def add(self, domain: str, size: int) -> str:
        best = max(self._splits, key=lambda split: self._gain(domain, split, size))
        self._put(domain, best, size)
        return best

    def improve(self, split_of: dict[int, str], group: int, domain: str, size: int) -> bool:
        """Moves a group to where it fits better; False when it lies best already."""
        old = split_of[group]
        self._put(domain, old, -size)
        split_of[group] = new = max(self._splits, key=lambda s: (round(self._gain(domain, s, size), 6), s == old))
        self._put(domain, new, size)
        return new != old


def shuffle_key(seed: int | str, item_id: str) -> bytes:
    """Sorting by it shuffles, the same way on every machine and whatever else is in the list."""
    return hashlib.sha256(f"{seed}:{item_id}".encode()).digest()


def _connected(questions: tuple[Question, ...]) -> list[list[Question]]:
    """Questions in groups that share no document with each other."""
    parent: dict[str, str] = {}

    def root(document: str) -> str:
        while parent.setdefault(document, document) != document:
            parent[document] = document = parent[parent[document]]
        return document

    for question in questions:
        for gold in question.gold_passages[1:]:
            parent[root(gold.document)] = root(question.gold_passages[0].document)
    groups: dict[object, list[Question]] = defaultdict(list)
    for question in questions:
        passages = question.gold_passages
        groups[("document", root(passages[0].document)) if passages else ("question", question.id)].append(question)
    return list(groups.values())

"""Which questions train, validate and test: whole documents or domains, so that nothing leaks."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from data_prep.duplicates import duplicate_groups
from data_prep.groups import connected

if TYPE_CHECKING:
    from data_prep.dataset import Dataset, Question

_ATTEMPTS = 32  # at filling the splits, each in another order; the best is taken
_PASSES = 20  # over all groups, moving one at a time; a pass without a move ends them earlier

COMPOUND = "compound"  # kind of the questions that `compose_questions` makes
FRACTIONS: Mapping[str, float] = {"train": 0.6, "val": 0.15, "test": 0.25}
_HELD_OUT = ("train", "val", "test")  # from what is seen most to what is seen least


class SplitBy(StrEnum):
    """What is never divided between splits."""

    DOCUMENT = "document"
    DOMAIN = "domain"


def check_split_by(by: str) -> None:
    """Refuse what splits cannot be by (InputError)."""
    if by not in list(SplitBy):
        raise InputError(f"splits can be by {' or by '.join(SplitBy)}, got {by!r}")


def assign_splits(
    dataset: Dataset,
    fractions: Mapping[str, float] = FRACTIONS,
    seed: int = 0,
    by: SplitBy | str = SplitBy.DOCUMENT,
) -> dict[str, str]:
    """A split for every question, by document or by domain.

    Questions that share a gold document or are nearly the same, directly or through others, always come into the same
    split. By document, every domain is filled by itself, so that each reaches the fractions as nearly as its whole
    documents allow; where that leaves a choice, the fractions of the whole data set decide. By domain, all questions
    of a domain come into one split, and the fractions are reached as nearly as whole domains allow.

    Args:
        dataset: Its questions are split.
        fractions: Share of the questions by split; they sum to 1.
        seed: Another seed, another choice of documents.
        by: What is never divided.

    Returns:
        Split by question id, in the questions' order.

    Raises:
        InputError: Fractions that are negative or do not sum to 1, or an unknown `by`.
    """
    check_split_by(by)
    shares = list(fractions.values())
    if any(not share >= 0 for share in shares) or not math.isclose(sum(shares), 1):
        raise InputError(f"fractions must be at least 0 and sum to 1, got {dict(fractions)}")
    groups = _connected(dataset.questions, SplitBy(by))
    # Compound questions go where their parts go: the same data set without them has the same splits.
    counted = [[q for q in group if q.kind != COMPOUND] or group for group in groups]
    whole_domains = by == SplitBy.DOMAIN  # then none can be filled by itself
    domains = ["" if whole_domains else Counter(q.domain for q in group).most_common(1)[0][0] for group in counted]
    sizes: Counter[str] = Counter()
    for group, domain in zip(counted, domains, strict=True):
        sizes[domain] += len(group)
    # A few hundred documents are easily filled a few per cent off; thousands never are.
    attempts = max(1, min(_ATTEMPTS, _ATTEMPTS * 500 // max(len(groups), 1)))
    fillings = [_filled(counted, domains, sizes, fractions, f"{seed}/{attempt}") for attempt in range(attempts)]
    split_of = min(fillings, key=lambda filling: filling[0])[1]
    by_question = {q.id: split_of[i] for i, group in enumerate(groups) for q in group}
    return {q.id: by_question[q.id] for q in dataset.questions}


def undivided(splits: Sequence[str], groups: npt.NDArray[np.intp]) -> list[str]:
    """One split for each group: test where one of its questions tests, else val where one validates, else train.

    So whatever tested before does so still, and what is learned from the train split is not asked by
    `corag evaluate --splits test`, which knows each data set by itself. It does not matter in which order groups grow
    together, nor whether at once or in turn. The most common split of a group would keep the shares of the splits
    nearer to what they were, but has neither property.

    Args:
        splits: Of each question, n.
        groups: Number of the group of each, `[n]`, from 0.

    Returns:
        n splits.

    Example:
        >>> undivided(["train", "test", "val", "train", "train"], np.array([0, 0, 1, 1, 2]))
        ['test', 'test', 'val', 'val', 'train']
    """
    most = np.zeros(len(splits), np.intp)
    np.maximum.at(most, groups, [_HELD_OUT.index(split) for split in splits])
    return [_HELD_OUT[most[group]] for group in groups]


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


def _connected(questions: Sequence[Question], by: SplitBy) -> list[list[Question]]:
    """Questions in groups that must not be divided."""
    shared: list[list[Hashable]] = [[("document", gold.document) for gold in q.gold_passages] for q in questions]
    # Of compound questions, which the parts decide on, none is like another that does not share a document with it.
    single = [index for index, question in enumerate(questions) if question.kind != COMPOUND]
    for number, alike in enumerate(duplicate_groups([questions[index].text for index in single])):
        for position in alike:
            shared[single[position]].append(("alike", number))
    if by == SplitBy.DOMAIN:
        for question, own in zip(questions, shared, strict=True):
            own.append(("domain", question.domain))
    groups: dict[int, list[Question]] = defaultdict(list)
    for question, number in zip(questions, connected(shared).tolist(), strict=True):
        groups[number].append(question)
    return list(groups.values())

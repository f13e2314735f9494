"""Data sets of an evaluation: which questions are asked, and the stores that they are asked of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from corag_agent.evaluation.plan import Source
from corag_agent.evaluation.task import Components, Corpus
from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.store import VectorStore
from data_prep.compose import compose_questions
from data_prep.corpus import build_store
from data_prep.dataset import Dataset, Question
from data_prep.labelling import HUMAN, LLM
from data_prep.readers import read_dataset
from data_prep.splits import assign_splits, shuffle_key

_MIXED = 0.5  # standard deviation of what is added to a distractor's vector, relative to a unit vector's length
_BLOCK = 65_536  # vectors of distractors that are made at a time


@dataclass(frozen=True)
class SourceData:
    """A data set as it was read.

    Attributes:
        source: As configured.
        dataset: Documents and questions; the questions are those that can be asked, in a shuffled order of which any
            beginning is a sample.
        split_of: Split of each question, by its id.
    """

    source: Source
    dataset: Dataset
    split_of: Mapping[str, str]

    @property
    def questions(self) -> tuple[Question, ...]:
        """In the order in which they are asked."""
        return self.dataset.questions

    @cached_property
    def documents_fingerprint(self) -> str:
        """Changes with any document."""
        return Dataset(self.dataset.name, self.dataset.documents, ()).fingerprint

    def question_fingerprint(self, question: Question) -> str:
        """Changes with the question, its gold passages and answers, and the corpus around it."""
        text = json.dumps([self.documents_fingerprint, self.source.distractors, asdict(question)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_source(source: Source, reference: str, seed: int, read: Callable[[str], Dataset] | None = None) -> SourceData:
    """Read a data set and choose its questions, as `corag label` chooses them.

    Args:
        source: Which.
        reference: "llm", which needs gold passages, or "human", which needs answers.
        seed: Of composing and sampling.
        read: Reads `FORMAT:PATH`, where it may have been read before.

    Raises:
        InputError: It cannot be read, or has no question that can be scored.
    """
    dataset = read_dataset(source.data, seed=seed) if read is None else read(source.data)
    asked = dataset.questions if source.compose is None else compose_questions(dataset, source.compose, seed)
    made = () if source.compose is None else asked
    split_of = assign_splits(replace(dataset, questions=(*dataset.questions, *made)), seed=seed)
    usable = [q for q in asked if (q.gold_passages if reference == LLM else q.answers)]
    if not usable:
        lacking = "gold passages" if reference == LLM else "human answers"
        raise InputError(f"data {source.name}: no question has {lacking} to be scored by; reference is {reference!r}")
    usable = [q for q in usable if source.splits is None or split_of[q.id] in source.splits]
    if not usable:
        raise InputError(f"data {source.name}: no question is of the splits {', '.join(source.splits or [])}")
    usable.sort(key=lambda question: shuffle_key(seed, question.id))
    chosen = [replace(q, domain=source.domain or q.domain) for q in usable[: source.limit]]
    return SourceData(source, replace(dataset, questions=tuple(chosen)), split_of)


def open_corpus(data: SourceData, chunk_size: int, components: Components, stores: Path) -> Corpus:
    """The corpus of a data set at one chunk size; its store is made where there is none.

    Args:
        data: The data set.
        chunk_size: Tokens.
        components: Of the run.
        stores: Directory of the stores that are made; data sets over the same documents share one.

    Raises:
        InputError: A given store was made of other documents, or by another embedder or tokenizer.
    """
    source = data.source
    given = source.stores.get(chunk_size)
    name = f"{data.documents_fingerprint}-{chunk_size}" + (f"+{source.distractors}" if source.distractors else "")
    path = stores / name if given is None else Path(given)
    if given is None and not path.exists():
        config = replace(components.config, chunk_size=chunk_size)
        made = build_store(data.dataset, config, components.embedder, components.tokenizer)
        if source.distractors:
            made = with_distractors(made, source.distractors)
            if config.retrieval != "dense":
                _ = made.lexical  # made now, it is saved with the store
        made.save(path)
    store = VectorStore.load(path)
    _check_store(store, data, chunk_size, components, path)
    return Corpus(components, store)


def with_distractors(store: VectorStore, count: int, seed: int = 0) -> VectorStore:
    """A store with made-up chunks around its own.

    Each has the words of two chunks by turns, so that lexical methods find it plausible too, and a vector between
    theirs with noise. They belong to documents that no gold passage is in.

    Args:
        store: The real chunks.
        count: Chunks to add.
        seed: Of words and noise.
    """
    generator = np.random.default_rng(seed)
    pairs = generator.integers(len(store), size=(count, 2))
    vectors = store.embeddings()
    mixed = np.empty((count, vectors.shape[1]), np.float32)
    for start in range(0, count, _BLOCK):
        one, other = pairs[start : start + _BLOCK].T
        noise = generator.normal(scale=_MIXED / np.sqrt(vectors.shape[1]), size=(len(one), vectors.shape[1]))
        block = vectors[one] + vectors[other] + noise
        mixed[start : start + _BLOCK] = block / np.linalg.norm(block, axis=1, keepdims=True)
    own = list(store.chunks)
    chunks = [_distractor(number, own[a], own[b]) for number, (a, b) in enumerate(pairs.tolist())]
    return store.add_embeddings(chunks, mixed)


def _distractor(number: int, one: Chunk, other: Chunk) -> Chunk:
    words = [*one.text.split()[::2], *other.text.split()[1::2]]
    document = f"distractor-{number}"
    text = " ".join(words) or one.text
    # The parents' mean, since a search spends by it and counting anew would take as long as cutting real documents.
    cost = max(1, (one.cost + other.cost) // 2)
    return Chunk(f"{document}:0", text, cost, {"document": document, "start": 0, "end": len(text)})


def _check_store(store: VectorStore, data: SourceData, chunk_size: int, components: Components, path: Path) -> None:
    store.check_embedder(components.embedder)
    for name, own, wanted in (
        ("tokenizer", store.tokenizer, components.config.tokenizer),
        ("chunk_size", store.chunk_size, chunk_size),
    ):
        if own != wanted:
            raise InputError(
                f"data {data.source.name}: the store {path.name} was built with {name} {own!r}, needed is {wanted!r}; "
                "build it anew with `corag index`, or leave it out"
            )
    held = data.dataset.check_chunks(store.chunks)
    missing = sorted({document.id for document in data.dataset.documents} - held)
    if missing:
        raise InputError(
            f"data {data.source.name}: the store {path.name} lacks {len(missing)} document(s), the first is "
            f"{missing[0]!r}; build it anew with `corag index`, or leave it out"
        )


def check_reference(reference: str) -> None:
    """Refuse what names no reference (InputError)."""
    if reference not in (LLM, HUMAN):
        raise InputError(f"reference must be {LLM} or {HUMAN}, got {reference!r}")


def references_of(question: Question, written: str, reference: str) -> Sequence[str]:
    """What an answer is scored against: the generator's own answer from the gold passages, or the human ones."""
    return [written] if reference == LLM else question.answers

"""Label tables with the texts that they are about, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.rerankers import load_reranker
from corag_search.rerankers.base import Reranker
from corag_search.rerankers.composite_model import NAME, PartIdentity, shaping
from corag_search.store import VectorStore
from data_prep.compose import compose_questions
from data_prep.dataset import Dataset, Question
from data_prep.record_table import gold_documents
from data_prep.table import LabelTable

# What gives outcomes their meaning; tables that differ in it cannot teach one composite.
_OUTCOME = ("generator", "prompt", "scoring")


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """One label table with its questions and chunks.

    Attributes:
        name: For tables.
        data: Name of the data set.
        table: The labels.
        questions: By id; those of the table, perhaps others too.
        documents: Names of the documents of each question's gold passages, by id, as `document_names` has them.
        chunks: By id; the store's.
    """

    name: str
    data: str
    table: LabelTable
    questions: Mapping[str, Question]
    documents: Mapping[str, tuple[str, ...]]
    chunks: Mapping[str, Chunk]

    @classmethod
    def of(
        cls, path: Path, table: LabelTable, dataset: Dataset, store: VectorStore, known: Mapping[str, Question]
    ) -> Source:
        """Joins them.

        Args:
            path: Of the table; its name is the source's.
            table: The labels.
            dataset: That was labelled.
            store: That the candidates came from.
            known: Questions of the data set by id, the table's among them; see `known_questions`.

        Raises:
            InputError: They do not belong together.
        """
        _check_store(path, table, store)
        candidates_of_all = candidates_of(path, table)
        questions = _questions(path, table, dataset, known)
        chunks = {chunk.id: chunk for chunk in store.chunks}
        for name, candidates in candidates_of_all.items():
            missing = [one for one in candidates if one not in chunks]
            if missing:
                raise InputError(
                    f"{path}: the candidate {missing[0]!r} of question {name!r} is not in the store; name the store "
                    "that was labelled with"
                )
        documents = dict(zip(questions, gold_documents(dataset, questions.values()), strict=True))
        return cls(path.name.removesuffix(".parquet"), dataset.name, table, questions, documents, chunks)


def _check_store(path: Path, table: LabelTable, store: VectorStore) -> None:
    chunking = table.fingerprint.get("chunking", {})
    labelled = (table.embedder, chunking.get("tokenizer"), chunking.get("chunk_size"))
    own = {name: getattr(store.embedder, name) for name in ("name", "dimension", "fingerprint")}
    for what, one, other in zip(
        ("embedder", "tokenizer", "chunk_size"), labelled, (own, store.tokenizer, store.chunk_size), strict=True
    ):
        if one is not None and one != other:
            raise InputError(
                f"{path} was labelled with a store of the {what} {one!r}, this one has {other!r}; name the store that "
                "was labelled with"
            )


def candidates_of(path: Path, table: LabelTable) -> dict[str, Sequence[str]]:
    """Ids of each question's candidates, by its id.

    Raises:
        InputError: The table does not name them.
    """
    if "candidates" not in table.questions:
        raise InputError(f"{path} does not name the candidates of its questions; label again with `corag label`")
    return dict(zip(table.questions["question_id"], table.questions["candidates"], strict=True))


def _questions(
    path: Path, table: LabelTable, dataset: Dataset, known: Mapping[str, Question]
) -> Mapping[str, Question]:
    wanted = set(table.questions["question_id"])
    missing = sorted(wanted - set(known))
    if missing:
        raise InputError(
            f"{path}: {len(missing)} of {len(wanted)} questions are not in {dataset.name}, the first is "
            f"{missing[0]!r}; name the data that was labelled, with --compose and --seed as then if they are compound"
        )
    return {name: known[name] for name in sorted(wanted)}


def known_questions(dataset: Dataset, compose: int | None, seed: int) -> dict[str, Question]:
    """The questions of a data set, and the compound ones that are composed of them, by id.

    Args:
        dataset: Which.
        compose: Compound questions that were composed for labelling; None for none.
        seed: Of composing.
    """
    composed = [] if compose is None else compose_questions(dataset, compose, seed)
    return {question.id: question for question in (*dataset.questions, *composed)}


def load_parts(
    rerankers: Mapping[str, Mapping[str, Any]], tables: Mapping[Path, LabelTable]
) -> tuple[list[Reranker], list[PartIdentity]]:
    """The configured rerankers, but for a composite itself, and who they are.

    Args:
        rerankers: Options by name.
        tables: By path.

    Raises:
        InputError: There is none, a table lacks one or was labelled with other options or another one, or the tables'
            outcomes are not of one kind.
    """
    _check_outcomes(tables)
    options = {name: own for name, own in rerankers.items() if name != NAME}
    if not options:
        raise InputError("rerankers must name the parts of the composite, at least one, got none beside itself")
    for path, table in tables.items():
        labelled = table.fingerprint.get("reranker_options", {})
        for name, own in options.items():
            if name not in table.rerankers:
                raise InputError(
                    f"{path} was labelled with {', '.join(table.rerankers)}, not with {name!r}; leave it out of "
                    "rerankers, or label with it"
                )
            theirs = labelled.get(name, {}).get("options")
            if theirs is not None and shaping(theirs) != shaping(own):
                raise InputError(
                    f"{path} was labelled with {name!r} of the options {shaping(theirs)}, configured are "
                    f"{shaping(own)}; configure it as it was labelled"
                )
    parts = [load_reranker(name, **own) for name, own in options.items()]
    identities = [PartIdentity.of(part, own) for part, own in zip(parts, options.values(), strict=True)]
    for path, table in tables.items():
        labelled = table.fingerprint.get("reranker_options", {})
        for identity in identities:
            theirs = labelled.get(identity.name, {}).get("fingerprint", identity.fingerprint)
            if theirs != identity.fingerprint:
                raise InputError(
                    f"{path} was labelled with {identity.name!r} of the fingerprint {theirs}, the loaded one has "
                    f"{identity.fingerprint}; load the one that was labelled with"
                )
    return parts, identities


def _check_outcomes(tables: Mapping[Path, LabelTable]) -> None:
    (first, *others) = tables.items()
    for path, table in others:
        differing = [key for key in _OUTCOME if table.fingerprint.get(key) != first[1].fingerprint.get(key)]
        if differing:
            raise InputError(
                f"{path} cannot be learned from together with {first[0]}: their fingerprints differ in "
                f"{', '.join(differing)}, so their outcomes do not compare; train on one of them"
            )


def one_each(name: str, values: Sequence[Any], count: int, of: str = "label tables") -> list[Any]:
    """One value for each table: those given, or the one that is given for all.

    Args:
        name: Of the option.
        values: Given.
        count: Of tables.
        of: What is counted.

    Raises:
        InputError: Another number of them.
    """
    if len(values) not in (1, count):
        raise InputError(f"{name} must be one for all {count} {of} or one for each, got {len(values)}")
    return list(values) * (count if len(values) == 1 else 1)

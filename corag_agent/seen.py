"""What weights were trained on, and the record of it by which an evaluation knows the questions that they have seen."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from corag_search.errors import InputError
from corag_search.files import digest_of
from corag_search.weights_directory import CONFIG_FILE
from data_prep.table import SPLITS, LabelTable

_DIGEST = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent or a composite was trained on; its `config.json` has it under `seen`.

    Attributes:
        splits: Whose questions, of those that were labelled; an agent's may be those of folds.
        tables: Digest of each label table, by name; see `table_digest`.
        questions: `digest_of_name` of each one's `DATA/ID`.
        documents: That of those that hold their gold passages, as `document_names` has them.
    """

    splits: tuple[str, ...] = ()
    tables: Mapping[str, str] = field(default_factory=dict)
    questions: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, splits: Iterable[str], tables: Mapping[str, str], questions: Iterable[str], documents: Iterable[str]
    ) -> Seen:
        """Of names; digests of names stay. Splits may come in any order."""
        given = set(splits)
        ordered = tuple(split for split in SPLITS if split in given)
        return cls(ordered, dict(tables), _digests(questions), _digests(documents))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in one order."""
        return {
            "splits": list(self.splits),
            "tables": dict(self.tables),
            "questions": sorted(self.questions),
            "documents": sorted(self.documents),
        }

    @classmethod
    def of_table(cls, table: LabelTable, name: str, rows: npt.NDArray[np.intp], splits: Iterable[str]) -> Seen:
        """Of a label table's questions at these positions, `[m]`."""
        data = table.fingerprint.get("data")
        named = data if isinstance(data, Mapping) else {}
        prefix = "" if "parts" in named else f"{named.get('name', 'data')}/"  # a merged table's ids have it
        questions = (prefix + one for one in table.questions["question_id"].iloc[rows])
        names = table.documents
        documents = [] if names is None else (one for at in rows for one in names[at])
        return cls.of(splits, {name: table_digest(table)}, questions, documents)

    @classmethod
    def in_config(cls, config: Mapping[str, Any], where: object, command: str) -> Seen | None:
        """As a `config.json` has it; None where that was made before it was recorded.

        Args:
            config: All of it.
            where: It lies, for the message.
            command: That makes such a directory, likewise.

        Raises:
            InputError: The record is not readable.
        """
        given = config.get("seen")
        if given is None:
            return None
        try:
            return cls.of(*(given[name] for name in ("splits", "tables", "questions", "documents")))
        except (KeyError, TypeError, ValueError):
            raise InputError(
                f"{where}: seen must have splits, tables, questions and documents, got "
                f"{str(given)[:60]}; make it again by `{command}`"
            ) from None

    @classmethod
    def read(cls, composite: Path) -> Seen | None:
        """Of a composite's directory; as `in_config`."""
        path = composite / CONFIG_FILE
        return cls.in_config(json.loads(path.read_text(encoding="utf-8")), path, "corag composite")

    def joined(self, other: Seen) -> Seen:
        """What weights have seen that were trained on both; of two tables of one name, the other's digest stands."""
        return Seen.of(
            self.splits + other.splits,
            {**self.tables, **other.tables},
            self.questions | other.questions,
            self.documents | other.documents,
        )

    def knows(self, data: str, question_id: str, documents: Iterable[str]) -> bool:
        """Whether it was trained on the question, or on another one about one of its documents.

        Args:
            data: Name of the data set.
            question_id: Its id there.
            documents: Names of the documents, by which an article's other languages and data sets are known too.
        """
        asked = digest_of_name(f"{data}/{question_id}")
        return asked in self.questions or not self.documents.isdisjoint(map(digest_of_name, documents))


def digest_of_name(name: str) -> str:
    """16 hexadecimal digits: an agent can be published, names of its documents need not be."""
    return digest_of(name)[:16]


def _digests(names: Iterable[str]) -> frozenset[str]:
    """Records of the first composites have names in the clear, later ones their digests."""
    return frozenset(one if _DIGEST.fullmatch(one) else digest_of_name(one) for one in names)


def table_digest(table: LabelTable) -> str:
    """SHA-256 over all that training takes from the table: ids, splits, documents, inputs, scores and tokens."""
    names = [table.questions["question_id"].to_list(), table.questions["split"].to_list(), table.documents]
    digest = hashlib.sha256(json.dumps([table.fingerprint, names], sort_keys=True).encode())
    inputs = (table.embeddings, table.chunk_means, table.statistics)
    for array in (*inputs, table.rouge(), table.tokens, table.repeated()):
        if array is not None:
            digest.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()

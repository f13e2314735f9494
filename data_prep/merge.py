"""Label tables of several runs or data sets in one, to train on all of them."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corag_search.errors import InputError
from data_prep.dataset import Dataset
from data_prep.groups import connected
from data_prep.splits import undivided
from data_prep.table import LabelTable
from data_prep.table_files import FEATURES

_JOINED = ("data", "statistics")  # parts of the fingerprint that may differ
_FRAMES = ("questions", "scores", "rivals", "repeats")


def merge_tables(tables: Sequence[LabelTable]) -> LabelTable:
    """One table with the questions of all.

    All that shaped the labels must be the same, but for the data. A question that several tables of the same data have
    is taken once. Where the data differ, the ids become `NAME/ID`, since translations of one data set share their ids,
    and the fingerprint lists the parts; tables that were merged before keep the ids that they have. Documents keep
    their names, which are the same in all languages and differ between data sets (see `document_names`). What a table
    lacks, and what others have other statistics of, the new one lacks.

    Questions keep their splits, but that those which share a document, directly or through others, come into one (see
    `undivided`); a warning says how many questions moved. The order of the tables makes no difference, nor does merging
    in turn where all name documents, and merging what was merged changes nothing.

    Args:
        tables: At least one.

    Raises:
        InputError: No table, fingerprints that differ in more than the data (the message names in what), or one
            question with different labels.
    """
    if not tables:
        raise InputError("there are no label tables to merge; give at least one")
    first = tables[0].fingerprint
    for number, table in enumerate(tables[1:], start=2):
        theirs = table.fingerprint
        differing = [k for k in {**first, **theirs} if k not in _JOINED and first.get(k) != theirs.get(k)]
        if differing:
            raise InputError(
                f"label table {number} cannot join the first: their fingerprints differ in {', '.join(differing)}; "
                "label both with the same settings and versions"
            )
    parts = _parts(tables)
    several = len(parts) > 1
    lost = _lost(tables)
    prefixes = [_prefix(table) if several else "" for table in tables]
    frames = [
        _frames(table, prefix, lost, splits)
        for table, prefix, splits in zip(tables, prefixes, _splits(tables, prefixes), strict=True)
    ]
    joined = {name: _joined([own[name] for own in frames], name) for name in _FRAMES}
    fingerprint = {**first, "data": _merged_data(parts)} if several else first
    fingerprint = {key: value for key, value in fingerprint.items() if key not in lost}
    return LabelTable(fingerprint=fingerprint, **joined)  # type: ignore[arg-type]


def labelled_in(path: Path, dataset: Dataset) -> set[str]:
    """Ids, as the data set has them, of the questions that a table has of it; the table may be merged of several.

    Raises:
        InputError: The table cannot be read, or nothing of it was labelled from this very data.
    """
    table = LabelTable.read(path)
    data = _data_of(table)
    parts = data.get("parts", [data])
    if {"name": dataset.name, "fingerprint": dataset.fingerprint} not in parts:
        others = ", ".join(f"{part.get('name')} ({part.get('fingerprint')})" for part in parts)
        raise InputError(
            f"label table {path} has no question of {dataset.name} ({dataset.fingerprint}) but of {others}; name the "
            "very data that it was labelled from, and with --compose its number and --seed"
        )
    prefix = f"{dataset.name}/" if "parts" in data else ""
    ids = table.questions["question_id"]
    return set(ids[ids.str.startswith(prefix)].str.removeprefix(prefix))


def _data_of(table: LabelTable) -> dict[str, Any]:
    data = table.fingerprint.get("data")
    return data if isinstance(data, dict) else {"name": "data", "fingerprint": None}


def _parts(tables: Sequence[LabelTable]) -> list[dict[str, Any]]:
    """The distinct data of all tables, in their order."""
    parts: list[dict[str, Any]] = []
    for table in tables:
        data = _data_of(table)
        parts += [part for part in data.get("parts", [data]) if part not in parts]
    return parts


def _merged_data(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    digest = hashlib.sha256("\n".join(sorted(str(part.get("fingerprint")) for part in parts)).encode())
    return {
        "name": "+".join(dict.fromkeys(str(part.get("name")) for part in parts)),
        "fingerprint": digest.hexdigest()[:16],
        "parts": list(parts),
    }


def _prefix(table: LabelTable) -> str:
    data = _data_of(table)
    return "" if "parts" in data else f"{data.get('name')}/"


def _lost(tables: Sequence[LabelTable]) -> set[str]:
    """Optional columns of the questions that not all tables have, or not of the same meaning."""
    lost = {name for name in FEATURES.names if any(name not in table.questions for table in tables)}
    return lost | ({"statistics"} if len({table.statistic_names for table in tables}) > 1 else set())


def _frames(table: LabelTable, prefix: str, lost: set[str], splits: list[str]) -> dict[str, pd.DataFrame | None]:
    frames = {name: getattr(table, name) for name in _FRAMES}
    frames["questions"] = table.questions.drop(columns=list(lost), errors="ignore").assign(split=splits)
    return {
        name: frame if frame is None else frame.assign(question_id=prefix + frame["question_id"])
        for name, frame in frames.items()
    }


def _splits(tables: Sequence[LabelTable], prefixes: Sequence[str]) -> list[list[str]]:
    """Of each table's questions, one for each group of all tables; warns of the questions that this moves."""
    rows = [
        (prefix + name, split, own)
        for table, prefix in zip(tables, prefixes, strict=True)
        for name, split, own in zip(
            table.questions["question_id"],
            table.questions["split"],
            table.documents or [()] * len(table),
            strict=True,
        )
    ]
    # A question stands in several tables, of which one may know another split than the others.
    groups = connected([[("question", name), *(("document", one) for one in own)] for name, _, own in rows])
    splits = undivided([split for _, split, _ in rows], groups)
    moved = {name for (name, before, _), after in zip(rows, splits, strict=True) if before != after}
    if moved:
        asked = {name for name, _, _ in rows}
        warnings.warn(
            f"{len(moved)} of {len(asked)} questions moved to the split of others that share their documents (test "
            f"before val before train), the first is {min(moved)!r}; an agent that was trained on a part may have seen "
            "what tests now",
            stacklevel=3,
        )
    left = iter(splits)
    return [[next(left) for _ in range(len(table))] for table in tables]


def _joined(frames: Sequence[pd.DataFrame | None], name: str) -> pd.DataFrame | None:
    """All rows, a question's from the first frame that has it; None where one of the tables lacks the frame."""
    given = [frame for frame in frames if frame is not None]
    if len(given) < len(frames):
        return None
    seen: dict[str, pd.DataFrame] = {}
    fresh = []
    for frame in given:
        rows = {str(question): own for question, own in frame.groupby("question_id", sort=False)}
        for question in rows.keys() & seen.keys():
            if not _equal(rows[question], seen[question]):
                raise InputError(
                    f"question {question!r} has other {name} in one table than in another, so they are not of one "
                    "data set, or were labelled by different machines; keep one of the two"
                )
        fresh.append(frame[~frame["question_id"].isin(seen)])
        seen |= rows
    return pd.concat(fresh, ignore_index=True)


def _equal(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    if list(one.columns) != list(other.columns) or len(one) != len(other):
        return False
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b or (pd.isna(a) and pd.isna(b))
        for column in one.columns
        for a, b in zip(one[column], other[column], strict=True)
    )

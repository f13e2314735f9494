"""A merged label table, taken apart again by the data and the stores that it was labelled with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from corag_agent.composite.sources import Source, known_questions
from corag_search.errors import InputError
from corag_search.store import VectorStore
from data_prep.dataset import Dataset
from data_prep.table import LabelTable


def is_merged(table: LabelTable) -> bool:
    """Whether `merge_tables` made it of several data sets, so that its ids are `NAME/ID`."""
    data = table.fingerprint.get("data")
    return isinstance(data, dict) and "parts" in data


def sources_of(
    path: Path, table: LabelTable, given: Sequence[tuple[Dataset, VectorStore]], compose: int | None, seed: int
) -> list[Source]:
    """A source for each of the data sets, under its name, with the questions that are its own.

    A question goes to the first data set of its name that has it and whose store holds all its candidates.

    Args:
        path: Of the table.
        table: A merged one.
        given: Each data set with the store that was labelled with.
        compose: As of `Source.of`.
        seed: As of `Source.of`.

    Raises:
        InputError: A question has no place, a data set no question, or they do not belong together.
    """
    if "candidates" not in table.questions:
        raise InputError(f"{path} does not name the candidates of its questions; label again with `corag label`")
    left = dict(zip(table.questions["question_id"], table.questions["candidates"], strict=True))
    sources = []
    for dataset, store in given:
        prefix, chunks = f"{dataset.name}/", {chunk.id for chunk in store.chunks}
        known = {prefix + name for name in known_questions(dataset, compose, seed)}
        own = [name for name, candidates in left.items() if name in known and chunks.issuperset(candidates)]
        if not own:
            raise InputError(
                f"{path} has no question of {dataset.name} whose candidates are in the store that goes with it; name "
                "--data and --stores in pairs, each pair once, with its compound questions"
            )
        part = part_of(table, own, prefix)
        sources.append(replace(Source.of(path, part, dataset, store, compose, seed), name=dataset.name))
        left = {name: candidates for name, candidates in left.items() if name not in own}
    if left:
        raise InputError(
            f"{path} is merged: {len(left)} of its {len(table)} questions are in none of the data with its store, the "
            f"first is {min(left)!r}; give --data and --stores for every data set that was labelled, in pairs"
        )
    return sources


def part_of(table: LabelTable, names: Sequence[str], prefix: str = "") -> LabelTable:
    """The table of some questions, without its repeats; their ids lose the prefix that a merge gave them."""

    def own(frame: pd.DataFrame) -> pd.DataFrame:
        rows = frame[frame["question_id"].isin(names)]
        return rows.assign(question_id=rows["question_id"].str.removeprefix(prefix))

    rivals = None if table.rivals is None else own(table.rivals)
    return LabelTable(own(table.scores), own(table.questions), table.fingerprint, rivals)

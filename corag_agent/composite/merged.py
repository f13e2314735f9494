"""A merged label table, taken apart again by the data and the stores that it was labelled with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from corag_agent.composite.sources import Source, candidates_of
from corag_search.errors import InputError
from corag_search.store import VectorStore
from data_prep.dataset import Dataset, Question
from data_prep.table import LabelTable


def is_merged(table: LabelTable) -> bool:
    """Whether `merge_tables` made it of several data sets, so that its ids are `NAME/ID`."""
    data = table.fingerprint.get("data")
    return isinstance(data, dict) and "parts" in data


def sources_of(
    path: Path, table: LabelTable, given: Sequence[tuple[Dataset, VectorStore, Mapping[str, Question]]]
) -> list[Source]:
    """A source for each of the data sets, under its name, with the questions that are its own.

    A question goes to the first data set of its name that has it and whose store holds all its candidates.

    Args:
        path: Of the table.
        table: A merged one.
        given: Each data set with the store that was labelled with and its questions, as of `Source.of`.

    Raises:
        InputError: A question has no place, a data set no question, or they do not belong together.
    """
    left = candidates_of(path, table)
    sources = []
    for dataset, store, known in given:
        prefix, chunks = f"{dataset.name}/", {chunk.id for chunk in store.chunks}
        named = {prefix + name for name in known}
        own = [name for name, candidates in left.items() if name in named and chunks.issuperset(candidates)]
        if not own:
            raise InputError(
                f"{path} has no question of {dataset.name} whose candidates are in the store that goes with it; name "
                "--data and --stores in pairs, each pair once, with its compound questions"
            )
        part = part_of(table, own, prefix)
        sources.append(replace(Source.of(path, part, dataset, store, known), name=dataset.name))
        for name in own:
            del left[name]
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

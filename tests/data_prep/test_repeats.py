"""Repeated scores of a label table: looked up by order, and refused when they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.table import LabelTable

GRID = LabelGrid(exploration=(0.0,), cost_coefficient=(0.1, 0.2), iterations=(5,))
FINGERPRINT = {
    "embedder": {"name": "toy", "dimension": 1, "fingerprint": "x"},
    "grid": GRID.to_dict(),
    "rerankers": ["z", "a"],
}
# Order → score of the first and of the second sample.
SAMPLES = {"q1": {(0,): (0.2, 0.4), (2, 1): (0.5, 0.7)}, "q2": {(1, 2): (0.0, 1.0)}}
CHOSEN = {"q1": {"z": [(0,), (2, 1)], "a": [(2, 1), (2, 1)]}, "q2": {"z": [(1, 2)] * 2, "a": [(1, 2)] * 2}}


def measures(value: float) -> dict[str, float]:
    return dict.fromkeys(("rouge1", "rouge2", "rougeL"), value)


def repeats_frame() -> pd.DataFrame:
    rows = [
        {"question_id": question, "order": list(order), "reference": "llm", "sample": sample, **measures(value)}
        for question, own in SAMPLES.items()
        for order, values in own.items()
        for sample, value in enumerate(values)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)  # in whatever order they come


def make_table(repeats: pd.DataFrame | None) -> LabelTable:
    scores = [
        {"question_id": question, "reranker": reranker, **point._asdict(), "order": list(order)}
        | {"prompt_tokens": 7, "value": 0.5, **measures(sum(SAMPLES[question][order]) / 2)}
        for question, own in CHOSEN.items()
        for reranker, orders in own.items()
        for point, order in zip(GRID, orders, strict=True)
    ]
    common = {"domain": "d", "kind": "k", "language": "en", "split": "train", "reference": "r", "embedding": [0.0]}
    questions = pd.DataFrame([{"question_id": question, **common} for question in SAMPLES])
    return LabelTable(pd.DataFrame(scores), questions, FINGERPRINT, repeats=repeats)


def test_each_row_finds_the_repeats_of_its_order() -> None:
    repeated = make_table(repeats_frame()).repeated()
    assert repeated is not None and repeated.shape == (2, 2, 2, 1, 2, 1)
    assert repeated.reshape(2, 8).tolist() == [[0.2, 0.5, 0.5, 0.5, 0, 0, 0, 0], [0.4, 0.7, 0.7, 0.7, 1, 1, 1, 1]]


def test_they_come_back_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "l.parquet"
    table = make_table(repeats_frame())
    table.write(path)
    again = LabelTable.read(path)
    assert again.repeats is not None and table.repeats is not None
    assert again.repeats.to_json() == table.repeats.to_json()
    again.write(tmp_path / "m.parquet")
    assert (tmp_path / "m.repeats.parquet").read_bytes() == (tmp_path / "l.repeats.parquet").read_bytes()
    make_table(None).write(path)
    assert not (tmp_path / "l.repeats.parquet").exists()  # another table's
    assert LabelTable.read(path).repeated() is None


def test_an_unknown_measure_is_refused() -> None:
    with pytest.raises(InputError, match="metric must be one of"):
        make_table(repeats_frame()).repeated("bleu")


def changed(column: str, value: Any, sample: int = 1) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.sort_values(["question_id", "sample"], ignore_index=True)
        at = int(np.flatnonzero((frame["question_id"] == "q2") & (frame["sample"] == sample))[0])
        frame.at[at, column] = value
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("rougeL", np.inf), "finite"),
        (changed("rougeL", 1.5), r"repeats: rougeL must be in .0, 1., got 1.5 for question 'q2', reference 'llm'; "),
        (changed("rouge2", -0.1), r"repeats: rouge2 must be in .0, 1., got -0.1 for question 'q2'"),
        (changed("rougeL", np.nan), "rougeL of question 'q2' is missing"),
        (changed("sample", 0), "repeated row"),
        (changed("reference", "human"), "a score for each of at least 2"),
        (changed("rouge1", 0.5), "rouge1 of question 'q2', order .1, 2. is 0.5, which is not the mean"),
        (lambda frame: frame[frame["sample"] == 0], "there are 1"),
        (lambda frame: frame[frame["question_id"] == "q1"], "order .1, 2. of question 'q2' is missing"),
        (lambda frame: frame.drop(columns="sample"), "column sample is missing"),
    ],
)
def test_what_does_not_fit_is_refused(change: Callable[[pd.DataFrame], pd.DataFrame], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_table(change(repeats_frame()))


def test_references_with_different_samples_are_refused() -> None:
    """Two samples against one reference and one against another are no table of references by samples."""
    human = repeats_frame().query("sample == 0").assign(reference="human")
    with pytest.raises(InputError, match="for each of at least 2 references or samples, there are 4 and an order with"):
        make_table(pd.concat([repeats_frame(), human]))

"""Labels worked out by hand, and a plain-loop version of the same rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.selection import Reason, choose_labels
from data_prep.table import LabelTable

GRID = LabelGrid(exploration=(0, 0.5, 2.4), cost_coefficient=(0, 0.1, 0.2), iterations=(5, 10, 15))
POINTS = list(GRID)


def make_table(
    scores: dict[str, dict[str, Any]], tokens: dict[str, dict[str, Any]] | None = None, grid: LabelGrid = GRID
) -> LabelTable:
    """A table from question → reranker → one score for all grid points, or a list with one per point."""
    points = list(grid)
    rerankers = list(next(iter(scores.values())))
    rows = []
    for question, by_reranker in scores.items():
        for reranker, score in by_reranker.items():
            cost = (tokens or {}).get(question, {}).get(reranker, 100)
            for p, point in enumerate(points):
                value = score[p] if isinstance(score, list) else score
                rows.append(
                    {"question_id": question, "reranker": reranker, **point._asdict(), "order": [0], "value": 0.5}
                    | {"prompt_tokens": cost[p] if isinstance(cost, list) else cost}
                    | dict.fromkeys(("rouge1", "rouge2", "rougeL"), value)
                )
    common = {"domain": "law", "kind": "explicit", "language": "en", "split": "train", "reference": "r"}
    questions = pd.DataFrame([{"question_id": q, **common, "embedding": [0.0]} for q in scores])
    embedder = {"name": "toy", "dimension": 1, "fingerprint": "x"}
    return LabelTable(
        pd.DataFrame(rows), questions, {"embedder": embedder, "grid": grid.to_dict(), "rerankers": rerankers}
    )


def settings_of(table: LabelTable, question: int = 0) -> tuple[float, float, int]:
    chosen = choose_labels(table)
    return chosen.exploration[question], chosen.cost_coefficient[question], chosen.iterations[question]


def test_highest_score_wins() -> None:
    scores = [0.2] * len(POINTS)
    scores[POINTS.index((0.5, 0.2, 15))] = 0.7
    table = make_table({"q": {"a": 0.3, "b": scores}})
    chosen = choose_labels(table)
    assert chosen.reranker.tolist() == [1]
    assert chosen.runner_up.tolist() == [0]
    assert settings_of(table) == (0.5, 0.2, 15)
    assert (chosen.score[0], chosen.runner_up_score[0]) == (0.7, 0.3)


def test_equal_scores_go_to_fewer_tokens() -> None:
    tokens = [100] * len(POINTS)
    tokens[POINTS.index((0.5, 0.2, 15))] = 99
    assert settings_of(make_table({"q": {"a": 0.5, "b": 0.1}}, {"q": {"a": tokens}})) == (0.5, 0.2, 15)


def test_then_to_fewer_iterations_then_to_the_defaults() -> None:
    # All equal: the fewest iterations (5), with exploration and cost coefficient at the defaults (2.4, 0.1).
    assert settings_of(make_table({"q": {"a": 0.5, "b": 0.1}})) == (2.4, 0.1, 5)


def test_equal_distances_go_to_grid_order() -> None:
    # λ = 0 and λ = 0.2 are equally far from 0.1, though 0.2 − 0.1 and 0.1 − 0 differ in their last bits elsewhere.
    grid = LabelGrid(exploration=(2.4,), cost_coefficient=(0.0, 0.1, 0.2), iterations=(5,))
    table = make_table({"q": {"a": [0.5, 0.1, 0.5], "b": 0.1}}, grid=grid)
    assert settings_of(table) == (2.4, 0.0, 5)


def test_last_bits_of_a_score_decide_nothing() -> None:
    scores = [0.5] * len(POINTS)
    scores[-1] = math.nextafter(0.5, 1)
    table = make_table({"q": {"a": scores, "b": [0.5] * len(POINTS)}}, {"q": {"b": 50}})
    chosen = choose_labels(table)
    assert chosen.reranker.tolist() == [1]
    assert chosen.reasons == (Reason.TIE,)


def test_equal_rerankers_keep_their_order() -> None:
    assert choose_labels(make_table({"q": {"z": 0.5, "a": 0.5}})).reranker.tolist() == [0]


@pytest.mark.parametrize(
    ("best", "runner_up", "reason"),
    [
        (0.55, 0.5, Reason.SMALL),  # exactly 10 %, in floats a little more
        (0.33, 0.3, Reason.SMALL),
        (0.551, 0.5, Reason.KEPT),
        (0.5, 0.5, Reason.TIE),
        (0.0, 0.0, Reason.ZERO),
        (0.001, 0.0, Reason.KEPT),
    ],
)
def test_relative_gain(best: float, runner_up: float, reason: Reason) -> None:
    chosen = choose_labels(make_table({"q": {"a": runner_up, "b": best}}))
    assert chosen.reasons == (reason,)
    assert chosen.kept.tolist() == [reason is Reason.KEPT]


def test_absolute_gain() -> None:
    table = make_table({"q1": {"a": 0.2, "b": 0.29}, "q2": {"a": 0.2, "b": 0.3}, "q3": {"a": 0.2, "b": 0.31}})
    assert choose_labels(table, 0.1, "absolute").kept.tolist() == [False, False, True]
    assert choose_labels(table, 0.1, "relative").kept.tolist() == [True, True, True]


def test_a_single_reranker_has_no_runner_up() -> None:
    chosen = choose_labels(make_table({"q1": {"a": 0.4}, "q2": {"a": 0.0}}))
    assert chosen.runner_up.tolist() == [-1, -1]
    assert chosen.kept.tolist() == [True, False]


def test_summary() -> None:
    rows = choose_labels(make_table({"q1": {"a": 0.9, "b": 0.1}, "q2": {"a": 0.5, "b": 0.5}})).summary()
    assert rows == [
        ("questions", "", "2"),
        ("kept", "", "1 (50%)"),
        ("fell out", "the best two rerankers are equal", "1 (50%)"),
        ("best in law", "a", "1 (100%)"),
        ("best in law", "b", "0 (0%)"),
    ]


@pytest.mark.parametrize(("gain", "mode"), [(-0.1, "relative"), (math.nan, "relative"), (0.1, "percent")])
def test_unusable_arguments(gain: float, mode: str) -> None:
    with pytest.raises(InputError, match=r"minimum_gain must be|gain mode must be one of relative, absolute"):
        choose_labels(make_table({"q": {"a": 0.1}}), gain, mode)


def plain_key(point: int, score: float, tokens: int) -> tuple:
    defaults, ranges = GRID.defaults, GRID.ranges
    distance = sum(
        ((getattr(POINTS[point], name) - getattr(defaults, name)) / (high - low)) ** 2
        for name, (low, high) in ranges.items()
    )
    return (-score, tokens, POINTS[point].iterations, round(distance, 9), point)


def test_equals_plain_loops_on_random_tables() -> None:
    generator = np.random.default_rng(3)
    scores, tokens = {}, {}
    for q in range(30):
        draws = {r: generator.integers(0, 3, len(POINTS)) / 10 for r in "abc"}
        scores[f"{q:02}"] = {r: [float(x) for x in draw] for r, draw in draws.items()}
        tokens[f"{q:02}"] = {r: [int(x) for x in generator.integers(1, 4, len(POINTS))] for r in "abc"}
    chosen = choose_labels(make_table(scores, tokens))
    for q, name in enumerate(scores):
        best_of = [min(plain_key(p, scores[name][r][p], tokens[name][r][p]) for p in range(len(POINTS))) for r in "abc"]
        ranking = sorted(range(3), key=lambda r: (*best_of[r], r))
        assert (chosen.reranker[q], chosen.runner_up[q]) == (ranking[0], ranking[1])
        point = POINTS[best_of[ranking[0]][-1]]
        assert (chosen.exploration[q], chosen.cost_coefficient[q], chosen.iterations[q]) == point
        best, rival = -best_of[ranking[0]][0], -best_of[ranking[1]][0]
        assert chosen.kept[q] == (best > 0 and best - rival > 0.1 * rival + 1e-9)

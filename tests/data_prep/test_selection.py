"""Labels worked out by hand, and a plain-loop version of the same rule."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.selection import Reason, choose_labels, half_agreement, soft_targets
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
        ("settings in law", "exploration", "2.4 × 1"),
        ("settings in law", "cost_coefficient", "0.1 × 1"),
        ("settings in law", "iterations", "5 × 1"),
    ]


def test_a_domain_of_which_nothing_is_kept_has_no_settings() -> None:
    rows = choose_labels(make_table({"q": {"a": 0.5, "b": 0.5}})).summary()
    assert rows[-4:] == [("best in law", "b", "0"), *(("settings in law", name, "–") for name in POINTS[0]._fields)]


def test_rare_classes() -> None:
    scores = {f"{i:02}": {"a": 0.9, "b": 0.1, "c": 0.1} for i in range(10)}
    scores |= {f"x{i}": {"a": 0.1, "b": 0.9, "c": 0.1} for i in range(9)}
    scores["tie"] = {"a": 0.0, "b": 0.9, "c": 0.9}  # falls out, so it makes b no tenth example
    chosen = choose_labels(make_table(scores))
    assert chosen.rare() == {"b": 9, "c": 0}
    assert chosen.rare(11) == {"a": 10, "b": 9, "c": 0}


def repeated_table(scores: dict[str, dict[str, list[float]]]) -> LabelTable:
    """A table from question → reranker → one score for each sample, the same at all grid points."""
    means = {q: {r: sum(own) / len(own) for r, own in by.items()} for q, by in scores.items()}
    table = make_table(means)
    orders = {reranker: [number] for number, reranker in enumerate(table.rerankers)}
    repeats = [
        {"question_id": q, "order": orders[r], "reference": "llm", "sample": sample}
        | dict.fromkeys(("rouge1", "rouge2", "rougeL"), value)
        for q, by in scores.items()
        for r, own in by.items()
        for sample, value in enumerate(own)
    ]
    rows = table.scores.assign(order=[orders[r] for r in table.scores["reranker"]])
    return LabelTable(rows, table.questions, table.fingerprint, repeats=pd.DataFrame(repeats))


def test_halves_of_the_samples_agree_or_not() -> None:
    table = repeated_table(
        {
            "q1": {"a": [0.9, 0.8], "b": [0.1, 0.3]},
            "q2": {"a": [0.9, 0.2], "b": [0.1, 0.3]},
        }
    )
    assert half_agreement(table) is not None
    assert half_agreement(table).tolist() == [1.0, 0.0]  # type: ignore[union-attr]
    kept, weighted, dropped = (choose_labels(table, noise=noise) for noise in ("keep", "weight", "drop"))
    assert kept.kept.tolist() == weighted.kept.tolist() == [True, True]
    assert (kept.weight.tolist(), weighted.weight.tolist()) == ([1, 1], [1, 0])
    assert dropped.kept.tolist() == [True, False]
    assert dropped.reasons == (Reason.KEPT, Reason.NOISE)
    assert kept.summary()[2:5] == [
        ("same best reranker in both halves", "of all", "50%"),
        ("", "of the kept", "50%"),
        ("", "weight of the kept", "2.0"),
    ]


def test_every_split_in_half_counts() -> None:
    # Samples 0 and 1 favour a, 2 and 3 favour b: of the 6 halves, {0, 1} and {2, 3} name different rerankers; the
    # others have one of each kind, and their means are a 0.55 and b 0.4 on both sides.
    table = repeated_table({"q": {"a": [0.9, 0.9, 0.2, 0.2], "b": [0.2, 0.2, 0.6, 0.6]}})
    agreement = half_agreement(table)
    assert agreement is not None and agreement.tolist() == [pytest.approx(4 / 6)]


def test_many_samples_are_split_in_twenty_ways() -> None:
    generator = np.random.default_rng(0)
    draws = {f"{q:02}": {r: generator.random(8).tolist() for r in "ab"} for q in range(12)}
    agreement = half_agreement(repeated_table(draws))
    assert agreement is not None
    assert np.array_equal(agreement * 20, (agreement * 20).round())
    assert 0 < agreement.mean() < 1


def test_noise_needs_repeated_scores() -> None:
    table = make_table({"q": {"a": 0.9, "b": 0.1}})
    assert half_agreement(table) is None
    assert choose_labels(table).agreement is None
    for noise, message in (("drop", "one score of each answer"), ("hide", "one of keep, weight, drop, got 'hide'")):
        with pytest.raises(InputError, match=message):
            choose_labels(table, noise=noise)


def test_soft_targets_by_hand() -> None:
    scores = [0.1] * len(POINTS)
    scores[3] = 0.6  # only a reranker's best settings count
    targets = soft_targets(make_table({"q": {"a": scores, "b": 0.5}}), temperature=0.1)
    odds = math.exp((0.6 - 0.5) / 0.1)
    np.testing.assert_allclose(targets, [[odds / (odds + 1), 1 / (odds + 1)]])
    np.testing.assert_allclose(soft_targets(make_table({"q": {"a": 0.5, "b": 0.5}}), 1e-6), [[0.5, 0.5]])
    for temperature in (0.0, -1.0, math.nan):
        with pytest.raises(InputError, match="temperature must be"):
            soft_targets(make_table({"q": {"a": 0.5}}), temperature)


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

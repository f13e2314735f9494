"""Oracles on scores whose noise is known, and the same rule in plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.noise import Halves, Oracle, OracleGain, oracle_gains
from data_prep.selection import splits_in_half
from data_prep.table import LabelTable
from tests.data_prep.test_selection import make_table

GRID = LabelGrid(exploration=(0.0, 2.4), cost_coefficient=(0.1,), iterations=(5, 10))
POINTS, RERANKERS = list(GRID), ("a", "b", "c")
DEFAULT = POINTS.index(GRID.defaults)


def table_of(scores: np.ndarray, tokens: np.ndarray | None = None) -> LabelTable:
    """From scores `[references, samples, n, rerankers, points]`, and prompt tokens `[n, rerankers, points]`."""
    references, samples, questions = scores.shape[:3]
    mean = scores.mean(axis=(0, 1))
    names = [f"{q:03}" for q in range(questions)]
    by_name = {q: {r: mean[i, j].tolist() for j, r in enumerate(RERANKERS)} for i, q in enumerate(names)}
    costs = None
    if tokens is not None:
        costs = {q: {r: tokens[i, j].tolist() for j, r in enumerate(RERANKERS)} for i, q in enumerate(names)}
    table = make_table(by_name, costs, GRID)
    orders = [[number] for number in range(len(RERANKERS) * len(POINTS))]
    repeats = [
        {"question_id": q, "order": order, "reference": ("human", "llm")[reference], "sample": sample}
        | dict.fromkeys(("rouge1", "rouge2", "rougeL"), scores[reference, sample, i].reshape(-1)[order[0]])
        for i, q in enumerate(names)
        for order in orders
        for reference, sample in itertools.product(range(references), range(samples))
    ]
    rows = table.scores.assign(order=orders * questions)
    return LabelTable(rows, table.questions, table.fingerprint, repeats=pd.DataFrame(repeats))


def gains(table: LabelTable) -> dict[tuple[Halves, Oracle], OracleGain]:
    return {(gain.halves, gain.oracle): gain for gain in oracle_gains(table)}


def leads(gain: OracleGain) -> tuple[float, float, float]:
    """Naive lead, honest lead, and the standard error of the latter."""
    honest = gain.honest - gain.honest_fixed
    return (gain.naive - gain.naive_fixed).mean(), honest.mean(), honest.std() / np.sqrt(len(honest))


def shape(questions: int, samples: int = 4, references: int = 1) -> tuple[int, ...]:
    return references, samples, questions, len(RERANKERS), len(POINTS)


def test_pure_noise_leaves_no_honest_gain() -> None:
    noise = np.random.default_rng(1).normal(0.5, 0.2, shape(400)).clip(0, 1)
    for gain in oracle_gains(table_of(noise)):
        naive, honest, error = leads(gain)
        assert naive > 0.05 and abs(honest) < 3 * error < 0.5 * naive


def test_without_noise_all_of_the_gain_is_honest() -> None:
    truth = np.random.default_rng(2).random(shape(60, samples=1))
    by = gains(table_of(np.repeat(truth, 3, axis=1)))
    flat = truth[0, 0].reshape(60, -1)
    rerankers = truth[0, 0, :, :, DEFAULT]
    for oracle, best in ((Oracle.GRID, flat.max(axis=1)), (Oracle.RERANKERS, rerankers.max(axis=1))):
        gain = by[Halves.SAMPLES, oracle]
        for found, expected in (
            (gain.naive, best),
            (gain.honest, best),
            (gain.naive_fixed, flat[:, flat.mean(axis=0).argmax()]),
            (gain.honest_fixed, gain.naive_fixed),
        ):
            np.testing.assert_allclose(found, expected, atol=1e-12)


def test_what_can_be_gained_lies_between_honest_and_naive() -> None:
    generator = np.random.default_rng(3)
    truth = generator.normal(0.5, 0.05, shape(400, samples=1))
    gain = gains(table_of(truth + generator.normal(0, 0.075, shape(400, samples=6))))[Halves.SAMPLES, Oracle.GRID]
    flat = truth[0, 0].reshape(400, -1)
    possible = flat.max(axis=1).mean() - flat.mean(axis=0).max()
    naive, honest, error = leads(gain)
    assert honest + 3 * error < possible < naive - 3 * error
    assert honest > 0.5 * possible


def test_luck_of_an_answer_is_in_every_reference_but_not_in_other_samples() -> None:
    generator = np.random.default_rng(4)
    answers = generator.normal(0.5, 0.2, shape(300, samples=2)).clip(0, 1)
    by = gains(table_of(np.repeat(answers, 2, axis=0)))
    assert set(by) == set(itertools.product(Halves, Oracle))
    naive, honest, _ = leads(by[Halves.REFERENCES, Oracle.GRID])
    assert honest == pytest.approx(naive) and naive > 0.05
    _, honest, error = leads(by[Halves.SAMPLES, Oracle.GRID])
    assert abs(honest) < 3 * error


@pytest.mark.parametrize(
    ("references", "samples", "halves"),
    [(2, 1, {Halves.REFERENCES}), (1, 2, {Halves.SAMPLES}), (2, 3, set(Halves))],
)
def test_scores_are_divided_by_what_there_is_several_of(references: int, samples: int, halves: set[Halves]) -> None:
    scores = np.random.default_rng(5).random(shape(3, samples, references))
    assert {gain.halves for gain in oracle_gains(table_of(scores))} == halves


def plain_choice(scores: np.ndarray, tokens: np.ndarray, allowed: list[tuple[int, int]]) -> tuple[int, int]:
    """The best (reranker, point) by score, then tokens, iterations, distance from the defaults, point, reranker."""

    def key(at: tuple[int, int]) -> tuple:
        point = POINTS[at[1]]
        distance = ((point.exploration - 2.4) / 2.4) ** 2 + ((point.iterations - 10) / 5) ** 2
        return (-round(scores[at], 9), tokens[at], point.iterations, round(distance, 9), at[1], at[0])

    return min(allowed, key=key)


def test_equals_plain_loops_with_ties_and_an_odd_number_of_samples() -> None:
    generator = np.random.default_rng(6)
    scores = generator.integers(0, 3, shape(12, samples=3)) / 10
    tokens = generator.integers(1, 3, (12, len(RERANKERS), len(POINTS)))
    rows = np.array([1, 4, 5, 9])
    everywhere = list(itertools.product(range(len(RERANKERS)), range(len(POINTS))))
    at_defaults = [at for at in everywhere if at[1] == DEFAULT]
    found = {gain.oracle: gain for gain in oracle_gains(table_of(scores, tokens), rows)}
    ways = [((0,), (1, 2)), ((1,), (0, 2)), ((2,), (0, 1))]
    for oracle, allowed in ((Oracle.GRID, everywhere), (Oracle.RERANKERS, at_defaults)):
        for place, row in enumerate(rows):
            reached, fixed = [], []
            for half, rest in ways:
                for one, other in ((half, rest), (rest, half)):
                    by, on = (scores[0, list(part)].mean(axis=0) for part in (one, other))
                    reached.append(on[row][plain_choice(by[row], tokens[row], allowed)])
                    fixed.append(on[row][plain_choice(by[rows].mean(axis=0), tokens[rows].mean(axis=0), everywhere)])
            assert found[oracle].honest[place] == pytest.approx(np.mean(reached))
            assert found[oracle].honest_fixed[place] == pytest.approx(np.mean(fixed))
            mean = scores[0].mean(axis=0)
            assert found[oracle].naive[place] == pytest.approx(mean[row][plain_choice(mean[row], tokens[row], allowed)])


def test_splits_in_half() -> None:
    assert [split.tolist() for split in splits_in_half(2)] == [[True, False]]
    assert [np.flatnonzero(split).tolist() for split in splits_in_half(4)] == [[0, 1], [0, 2], [0, 3]]
    assert sorted(np.flatnonzero(split).tolist() for split in splits_in_half(3)) == [[0], [1], [2]]
    many = splits_in_half(10)
    assert all(split.sum() == 5 for split in many)
    # Two halves by turns are the same way.
    assert len(many) == 20 == len({frozenset((tuple(split), tuple(~split))) for split in many})


def test_needs_repeated_scores_and_a_question() -> None:
    with pytest.raises(InputError, match="noise cannot be told from one score of each answer; score the table anew"):
        oracle_gains(make_table({"q": {"a": 0.5}}))
    table = table_of(np.random.default_rng(7).random(shape(2)))
    with pytest.raises(InputError, match="there is no question"):
        oracle_gains(table, np.array([], np.intp))

"""The comparison's numbers against plain look-ups in a small table."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from corag_agent.evaluation.comparison import AGENT, TREE, agent_index, compare
from corag_agent.evaluation.text_table import text_table
from corag_agent.metrics import AgentOutcomes
from corag_search import InputError
from corag_search.agent import ConfigurationAgent, Prediction
from corag_search.agent_format import SETTINGS, expected_shapes
from data_prep.grid import LabelGrid
from data_prep.noise import Oracle
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table


def table_with_rivals() -> LabelTable:
    table = separable_table(questions=12)
    scores = table.scores.copy()
    rng = np.random.default_rng(0)
    scores["rougeL"] = rng.choice([0.1, 0.4, 0.4, 0.8], len(scores))
    scores["prompt_tokens"] = rng.integers(50, 300, len(scores)).astype(np.int32)
    rivals = scores.drop_duplicates(["question_id", "reranker"]).drop(
        columns=["exploration", "cost_coefficient", "iterations"]
    )
    frames = [rivals.assign(method=method) for method in ("best_single", "naive_rag")]
    return LabelTable(scores, table.questions, table.fingerprint, pd.concat(frames))


class FixedAgent:
    """Beta, with settings that lie between the grid's values."""

    needs_features = False

    def check_embedder(self, *_: object) -> None:
        pass

    def predict(self, _: np.ndarray) -> Prediction:
        return Prediction("beta", 9, 2.0, 0.02, {"beta": 1.0}, 1.0)


def by_name(table: LabelTable, rows: np.ndarray, agent: object = None) -> dict:
    return {(m.method, m.reranker): m for m in compare(table, rows, agent)}  # type: ignore[arg-type]


def test_every_method_is_what_the_table_says() -> None:
    table = table_with_rivals()
    rows = np.array([3, 7, 8])
    found = by_name(table, rows, FixedAgent())
    ids = list(table.questions["question_id"].iloc[rows])
    frame = table.scores.set_index(["question_id", "reranker", "exploration", "cost_coefficient", "iterations"])
    for reranker in table.rerankers:
        # The defaults are 2.4, 0.1 and 10 iterations, all in the grid.
        expected = frame.loc[[(i, reranker, 2.4, 0.1, 10) for i in ids]]
        np.testing.assert_array_equal(found[TREE, reranker].rouge, expected["rougeL"])
        np.testing.assert_array_equal(found[TREE, reranker].tokens, expected["prompt_tokens"])
        rivals = table.rivals[(table.rivals["method"] == "naive_rag") & (table.rivals["reranker"] == reranker)]
        np.testing.assert_array_equal(
            found["naive_rag", reranker].rouge, rivals.set_index("question_id").loc[ids, "rougeL"]
        )
    followed = frame.loc[[(i, "beta", 2.4, 0.0, 10) for i in ids]]  # 2.0 → 2.4, 0.02 → 0, 9 → 10
    np.testing.assert_array_equal(found[AGENT, ""].rouge, followed["rougeL"])
    np.testing.assert_array_equal(found[AGENT, ""].tokens, followed["prompt_tokens"])


def agent_that_says(table: LabelTable, reranker: int, settings: np.ndarray) -> ConfigurationAgent:
    """An agent whose heads give `settings` `[3]`, scaled, and the reranker of that index, whatever the query."""
    tensors = {name: np.zeros(shape, np.float32) for name, shape in expected_shapes([8, 2], 3).items()}
    tensors["reranker_head.bias"][reranker] = 1.0
    tensors["settings_head.bias"][:] = settings
    tensors["input_scale"][:] = 1.0
    ranges = {name: list(bounds) for name, bounds in table.grid.ranges.items()}
    config = {"rerankers": table.rerankers, "embedder": table.embedder, "ranges": ranges, "inputs": ["embedding"]}
    heads = {"settings_heads": "shared", "calibration": {"temperature": 1.0}, "fallback": None}
    return ConfigurationAgent(tensors, {**config, **heads, "settings": list(SETTINGS), "layers": [8, 2]})


@pytest.mark.parametrize(
    "grid",
    [
        LabelGrid(),
        LabelGrid(exploration=(0.1, 0.7), cost_coefficient=(0.0, 0.1, 0.2, 0.3), iterations=(5, 9, 25)),
        LabelGrid(exploration=(2.4,), cost_coefficient=(0.1, 0.25), iterations=(1, 3, 4, 8)),
    ],
    ids=["default", "even gaps", "single value"],
)
def test_the_metric_looks_up_what_the_comparison_does(grid: LabelGrid) -> None:
    table = separable_table(questions=3, grid=grid)
    cells = np.arange(3 * len(grid)).reshape(1, 3, *grid.shape)  # each place tells where it is
    rng = np.random.default_rng(0)
    count = 2000
    settings = rng.uniform(-0.2, 1.2, (count, 3)).astype(np.float32)
    settings[: count // 2] = rng.integers(0, 81, (count // 2, 3)) / 80  # grid values and the middles between them
    rerankers = rng.integers(0, 3, count)
    pairs = zip(rerankers, settings, strict=True)
    predictions = [agent_that_says(table, index, scaled).predict(np.zeros(8)) for index, scaled in pairs]
    _, *compared = agent_index(table, predictions)
    followed = AgentOutcomes(grid.to_dict()).follow(torch.from_numpy(rerankers), torch.from_numpy(settings))
    np.testing.assert_array_equal(cells[0][tuple(followed)], cells[0][tuple(compared)])
    snapped = [[grid.snap(name, getattr(p, name)) for name in ("exploration", "iterations")] for p in predictions]
    found = [[grid.exploration[e], grid.iterations[i]] for e, i in zip(compared[1], compared[3], strict=True)]
    assert found == snapped


def test_oracles_take_the_best_and_among_equals_the_cheapest() -> None:
    table = table_with_rivals()
    rows = np.arange(12)
    found = by_name(table, rows)
    for position, name in enumerate(table.questions["question_id"]):
        own = table.scores[table.scores["question_id"] == name]
        default = own[(own["exploration"] == 2.4) & (own["cost_coefficient"] == 0.1) & (own["iterations"] == 10)]
        for oracle, rows_of in ((Oracle.GRID, own), (Oracle.RERANKERS, default)):
            best = rows_of[rows_of["rougeL"] == rows_of["rougeL"].max()]
            assert found[oracle, ""].rouge[position] == best["rougeL"].iloc[0]
            assert found[oracle, ""].tokens[position] == best["prompt_tokens"].min()


def test_what_cannot_be_compared_is_refused() -> None:
    table = table_with_rivals()
    with pytest.raises(InputError, match="no questions to compare on"):
        compare(table, np.array([], np.intp))
    other = SimpleNamespace(
        check_embedder=lambda *_: None,
        needs_features=False,
        predict=lambda _: Prediction("delta", 5, 0.0, 0.0, {"delta": 1.0}, 1.0),
    )
    with pytest.raises(InputError, match="the agent chose the reranker 'delta', the table has alpha, beta, gamma"):
        compare(table, np.array([0]), other)  # type: ignore[arg-type]


def test_texts_are_no_markup() -> None:
    marked = text_table(("[name]",), [("best in [history]",), ("wiki:cat:1",), ("[/x]",)], "all [/b] :key:")
    assert all(text in marked for text in ("[name]", "best in [history]", "wiki:cat:1", "[/x]", "all [/b] :key:"))


def test_numbers_stand_to_the_right() -> None:
    lines = text_table(("name", "n"), [("a", "5"), (), ("bb", "1,234")]).splitlines()
    assert [line.strip("│┃ ") for line in lines if "a " in line or "bb" in line] == ["a    │     5", "bb   │ 1,234"]

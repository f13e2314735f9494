"""Out-of-fold choices: what they are worth is looked up, and nothing of a test fold is seen before that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from corag_agent.evaluation.cross_validation import Fold, agent_chooser, fixed_chooser, folds_of, out_of_fold
from corag_search.query_features import STATISTICS
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, with_features

torch.set_num_threads(1)
FOLDS = 4
SMALL = {"hidden": [16, 8], "optimizer": lambda weights: torch.optim.Adam(weights, lr=0.01)}


def written(directory: Path, table: LabelTable) -> tuple[str, LabelTable]:
    directory.mkdir(exist_ok=True)
    table.write(directory / "labels.parquet")
    return str(directory / "labels.parquet"), table


def noisy_features(table: LabelTable) -> LabelTable:
    table = with_features(table)
    generator = np.random.default_rng(0)
    statistics = list(generator.normal(size=(len(table), len(STATISTICS))).astype(np.float32))
    return LabelTable(table.scores, table.questions.assign(statistics=statistics), table.fingerprint)


def test_every_question_is_tested_once_a_seed_by_what_the_table_says(tmp_path: Path) -> None:
    path, table = written(tmp_path, with_features(separable_table()))
    seen: list[int] = []

    def third_point_of_the_second(fold: Fold) -> np.ndarray:
        test = fold.splits["test"]
        assert not set(test) & set(fold.seen) and len(test) + len(fold.seen) == len(table)
        seen.extend(test)
        return np.tile([1, 0, 1, 0], (len(test), 1))

    rouge, tokens = out_of_fold(path, table, third_point_of_the_second, FOLDS, seeds=(0, 1))
    assert sorted(seen) == sorted([*range(48)] * 2)
    np.testing.assert_array_equal(rouge, np.tile(table.rouge()[:, 1, 0, 1, 0], (2, 1)))
    np.testing.assert_array_equal(tokens, np.tile(table.tokens[:, 1, 0, 1, 0], (2, 1)))


@pytest.mark.parametrize(("chooser", "split_by"), [("fixed", "document"), ("agent", "document"), ("agent", "domain")])
def test_nothing_of_the_test_fold_is_seen(tmp_path: Path, chooser: str, split_by: str) -> None:
    """Other scores of the test questions, and other inputs of one of them, change no choice for the others."""
    choose = (
        fixed_chooser
        if chooser == "fixed"
        else agent_chooser({"extra_inputs": ["statistics"], "standardise": True}, SMALL, epochs=60)
    )
    whole = separable_table(rerankers=("alpha", "beta", "gamma", "delta"))  # each best in a domain of its own
    path, table = written(tmp_path / "one", noisy_features(whole))
    fold = next(folds_of(path, table, FOLDS, 0, split_by))
    test = fold.splits["test"]
    scores = table.scores.copy()
    changed = scores["question_id"].isin(table.questions["question_id"].iloc[test])
    scores.loc[changed, "rougeL"] = np.random.default_rng(1).random(int(changed.sum()))
    statistics = table.questions["statistics"].to_list()
    statistics[test[0]] = np.full(len(STATISTICS), 1e6, np.float32)
    questions = table.questions.assign(statistics=statistics)
    other_path, other = written(tmp_path / "two", LabelTable(scores, questions, table.fingerprint))
    other_fold = next(folds_of(other_path, other, FOLDS, 0, split_by))
    chosen = choose(fold)[1:]
    if split_by == "document":
        assert (len(set(chosen[:, 0])) > 1) == (chooser == "agent")  # it is more than the fallback that stays the same
    np.testing.assert_array_equal(chosen, choose(other_fold)[1:])


@pytest.mark.parametrize("extra", ["statistics", "chunk_mean"])
def test_a_table_needs_what_the_agent_looks_at_only(tmp_path: Path, extra: str) -> None:
    table = noisy_features(separable_table())
    unused = ({"statistics", "chunk_mean"} - {extra}).pop()
    fingerprint = {name: value for name, value in table.fingerprint.items() if name != unused}
    path, table = written(tmp_path, LabelTable(table.scores, table.questions.drop(columns=unused), fingerprint))
    fold = next(folds_of(path, table, FOLDS, seed=0))
    chosen = agent_chooser({"extra_inputs": [extra]}, SMALL, epochs=1)(fold)
    assert chosen.shape == (len(fold.splits["test"]), 4)

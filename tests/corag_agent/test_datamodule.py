from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from corag_agent.datamodule import LabelDataModule, PairSampler, draw_pairs
from corag_search.errors import InputError
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import GRID, RERANKERS, separable_table, write_separable_table


@pytest.fixture
def labels(tmp_path: Path) -> str:
    return write_separable_table(tmp_path)


def flatten_scores(table: LabelTable, questions: list[str]) -> LabelTable:
    """The table with no leader among the rerankers for these questions, so that they are not kept."""
    scores = table.scores.copy()
    scores.loc[scores["question_id"].isin(questions), ["rouge1", "rouge2", "rougeL"]] = 0.5
    return LabelTable(scores, table.questions, table.fingerprint)


def test_exposes_what_the_model_is_linked_to(labels: str) -> None:
    data = LabelDataModule(labels)
    assert data.input_dim == 8
    assert data.rerankers == list(RERANKERS)
    assert data.ranges == {"exploration": [0, 2.4], "cost_coefficient": [0, 0.1], "iterations": [5, 10]}
    assert data.grid == GRID.to_dict()
    assert data.embedder["name"] == "synthetic"
    assert data.label_fingerprint["data"] == {"name": "synthetic"}
    assert "labels" not in data.hparams


def test_training_batches(labels: str) -> None:
    data = LabelDataModule(labels, batch_size=8)
    data.setup("fit")
    kept = data.kept_for_training
    batches = list(data.train_dataloader())
    assert sum(len(batch.rerankers) for batch in batches) == len(kept) + len(kept) % 2
    for embeddings, rerankers, settings in batches:
        assert embeddings.shape[1:] == (2, 8) and embeddings.dtype == torch.float32
        assert settings.shape[1:] == (2, 3) and ((settings >= 0) & (settings <= 1)).all()
        assert (rerankers[:, 0] == rerankers[:, 1]).float().mean() == 0.5
        # The class can be read off a synthetic embedding, so members carry their own labels.
        assert torch.equal(embeddings[..., :3].argmax(-1), rerankers)


def test_targets_are_scaled_in_the_order_of_settings(labels: str) -> None:
    data = LabelDataModule(labels)
    # Class 1's best grid point is the fourth: exploration 0, cost_coefficient 0.1, iterations 10.
    position = int(np.flatnonzero(data.best_labels.reranker == 1)[0])
    assert (data.best_labels.exploration[position], data.best_labels.iterations[position]) == (0.0, 10)
    assert data._data.settings[position].tolist() == [1.0, 1.0, 0.0]


def test_pairs_depend_on_seed_and_epoch_only() -> None:
    classes = np.array([0, 0, 1, 1, 2, 2, 2])

    def epoch(seed: int, number: int) -> list:
        sampler = PairSampler(classes, 12, 5, seed)
        sampler.set_epoch(number)
        return [batch.tolist() for batch in sampler]

    assert epoch(0, 3) == epoch(0, 3)
    assert epoch(0, 3) != epoch(0, 4)
    assert epoch(0, 3) != epoch(1, 3)
    assert [len(batch) for batch in epoch(0, 0)] == [5, 5, 2]


def test_devices_share_an_epoch() -> None:
    classes = np.array([0, 0, 1, 1])
    whole = [batch.tolist() for batch in PairSampler(classes, 20, 4, seed=0)]
    parts = [[b.tolist() for b in PairSampler(classes, 20, 4, 0, num_replicas=2, rank=rank)] for rank in (0, 1)]
    assert parts[0] == whole[0::2]
    assert parts[1] == [whole[1], whole[3], whole[0]]  # as many as the other device has


@pytest.mark.parametrize(
    ("classes", "positive"),
    [([0, 0, 1, 1, 1], 0.5), ([0, 0, 0, 1], 0.5), ([2, 2], 1.0), ([0, 1, 2], 0.0)],
    ids=["two classes", "a class with one example", "a single class", "one example each"],
)
@pytest.mark.parametrize("pairs", [2, 10, 64])
def test_kinds_of_pairs(classes: list[int], positive: float, pairs: int) -> None:
    drawn = draw_pairs(np.array(classes), pairs, np.random.default_rng(0))
    assert drawn.shape == (pairs, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all()
    same = np.array(classes)[drawn[:, 0]] == np.array(classes)[drawn[:, 1]]
    assert same.mean() == positive


def test_anchors_go_round() -> None:
    drawn = draw_pairs(np.array([0, 0, 0, 1, 1]), 20, np.random.default_rng(0))
    for kind in (0, 1):
        assert set(Counter(drawn[kind::2, 0].tolist()).values()) == {2}


def test_anchors_come_by_their_weights() -> None:
    classes = np.arange(40) % 2
    weights = np.where(np.arange(40) < 20, 1.0, 0.25)
    weights[0] = 0.0
    counts = np.bincount(draw_pairs(classes, 4_800, np.random.default_rng(0), weights)[:, 0], minlength=40)
    assert counts[0] == 0
    # 19 of weight 1 and 20 of 0.25 share 4,800 anchors: 200 and 50 each.
    assert abs(counts[1:20].mean() - 200) < 4
    assert abs(counts[20:].mean() - 50) < 4
    for alike in (np.ones(40), np.zeros(40)):
        same = [draw_pairs(classes, 60, np.random.default_rng(1), w) for w in (alike, None)]
        assert np.array_equal(*same)


def noisy_table(table: LabelTable, noisy: list[str]) -> LabelTable:
    """Two samples of every score; of the noisy questions the second one favours other rerankers than the first."""
    points = len(table.grid)
    scores = table.scores.copy()
    scores["order"] = [[RERANKERS.index(r), n % points] for n, r in enumerate(scores["reranker"])]
    for measure in ("rouge1", "rouge2", "rougeL"):
        scores[measure] /= 2  # the best reranker 0.45 or 0.3, the others 0.15
    is_best = scores.groupby(["question_id", "reranker"])["rougeL"].transform("max") > 0.2
    swing = np.where(scores["question_id"].isin(noisy), np.where(is_best, 0.3, -0.15), 0.0)
    repeats = [
        scores[["question_id", "order"]].assign(
            reference="llm", sample=sample, **{m: scores[m] + sign * swing for m in ("rouge1", "rouge2", "rougeL")}
        )
        for sample, sign in enumerate((1, -1))
    ]
    return LabelTable(scores, table.questions, table.fingerprint, repeats=pd.concat(repeats))


def test_noisy_questions_are_dropped_or_weighted_by_option(tmp_path: Path) -> None:
    table = separable_table()
    train = table.split("train")
    noisy_table(table, table.questions["question_id"].iloc[train[:4]].tolist()).write(tmp_path / "labels.parquet")
    kept, dropped, weighted = (
        LabelDataModule(data_path(tmp_path), noise=noise) for noise in ("keep", "drop", "weight")
    )
    assert np.array_equal(kept.kept_for_training, train)
    assert np.array_equal(dropped.kept_for_training, train[4:])
    assert np.array_equal(weighted.kept_for_training, train)
    drawn = torch.cat([batch.embeddings[:, 0] for batch in weighted.train_dataloader()])
    noisy = torch.from_numpy(table.embeddings[train[:4]])
    assert torch.cdist(drawn, noisy).min() > 1e-6
    drawn = torch.cat([batch.embeddings[:, 0] for batch in kept.train_dataloader()])
    assert torch.cdist(drawn, noisy).min() < 1e-6


def test_few_examples_of_a_reranker_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # 30 training questions, 10 of each of three rerankers; three of beta fall out.
    table = separable_table()
    train = table.split("train")
    beta = [table.questions["question_id"].iloc[i] for i in train if i % 3 == 1]
    flatten_scores(table, beta[:3]).write(tmp_path / "labels.parquet")
    LabelDataModule(data_path(tmp_path)).setup("fit")
    assert "fewer than 10 kept training questions have the best reranker beta (7):" in caplog.text


def test_evaluation_covers_all_questions_of_the_split(tmp_path: Path) -> None:
    table = separable_table()
    val = table.questions.loc[table.split("val"), "question_id"].tolist()
    flatten_scores(table, val[:3]).write(tmp_path / "labels.parquet")
    data = LabelDataModule(str(tmp_path / "labels.parquet"), batch_size=4)
    batches = list(data.val_dataloader())
    assert [len(batch.kept) for batch in batches] == [4, 4, 1]
    kept = torch.cat([batch.kept for batch in batches])
    assert kept.tolist() == [False] * 3 + [True] * 6
    rouge = torch.cat([batch.rouge for batch in batches])
    np.testing.assert_array_equal(rouge, data.table.rouge()[data.table.split("val")].astype(np.float32))
    embeddings = torch.cat([batch.pairs.embeddings for batch in batches])
    np.testing.assert_array_equal(embeddings[:, 0], data.table.embeddings[data.table.split("val")])
    rerankers = torch.cat([batch.pairs.rerankers for batch in batches])[kept]
    assert (rerankers[:, 0] == rerankers[:, 1]).float().mean() == 0.5
    assert torch.equal(embeddings[~kept, 0], embeddings[~kept, 1])
    again = torch.cat([batch.pairs.embeddings for batch in LabelDataModule(data_path(tmp_path)).val_dataloader()])
    assert torch.equal(embeddings, again)


def data_path(directory: Path) -> str:
    return str(directory / "labels.parquet")


def test_too_few_kept_questions_are_refused(tmp_path: Path) -> None:
    table = separable_table()
    flatten_scores(table, table.questions["question_id"].tolist()).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path))
    for refuse in (data.check, data.setup):
        with pytest.raises(InputError, match=r"0 of 30 training .* more than 0.1 .relative.*lower data.minimum_gain"):
            refuse("fit")
    data.check("test")


def test_a_single_class_is_trained_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = separable_table()
    others = [q for i, q in enumerate(table.questions["question_id"]) if i % 3]
    flatten_scores(table, others).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path))
    data.setup("fit")
    assert "have the best reranker 'alpha'" in caplog.text
    assert all((batch.rerankers == 0).all() for batch in data.train_dataloader())


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    table = separable_table()
    questions = table.questions.assign(split="train")
    LabelTable(table.scores, questions, table.fingerprint).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path))
    with pytest.raises(InputError, match="no question in split 'val', which fit needs"):
        data.setup("fit")
    with pytest.raises(InputError, match="no question in split 'test', which test needs"):
        data.setup("test")


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"pairs_per_epoch": 0}, {"seed": -1}, {"minimum_gain": -1.0}])
def test_unusable_arguments(labels: str, options: dict) -> None:
    with pytest.raises(InputError, match="at least"):
        LabelDataModule(labels, **options)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        LabelDataModule(str(tmp_path / "none.parquet"))

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from corag_agent.batches import EVALUATED_AT_ONCE, PairBatch, QuestionBatch, QuestionDataset
from corag_agent.datamodule import LabelDataModule
from corag_agent.pairs import PairSampler, balanced_weights, draw_pairs, fixed_partners
from corag_search.errors import InputError
from data_prep.selection import best_fixed
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import GRID, RERANKERS, separable_table, with_features, write_separable_table


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
    assert data.input_names == ["embedding"]
    assert data.grid == GRID.to_dict()
    assert data.embedder["name"] == "synthetic"
    assert data.label_fingerprint["data"] == {"name": "synthetic"}
    assert "labels" not in data.hparams


def test_training_batches(labels: str) -> None:
    data = LabelDataModule(labels, batch_size=8)
    data.setup("fit")
    kept = data.trained_on
    batches = list(data.train_dataloader())
    assert sum(len(batch.rerankers) for batch in batches) == len(kept) + len(kept) % 2
    for inputs, rerankers, targets, settings, rouge, distinct in batches:
        assert inputs.shape[1:] == (2, 8) and inputs.dtype == torch.float32
        assert settings.shape[1:] == (2, 3, 3) and ((settings >= 0) & (settings <= 1)).all()
        assert (rerankers[:, 0] == rerankers[:, 1]).float().mean() == 0.5
        # The class can be read off a synthetic embedding, so members carry their own labels.
        assert torch.equal(inputs[..., :3].argmax(-1), rerankers)
        assert torch.equal(targets.argmax(-1), rerankers) and (targets.sum(-1) == 1).all() and distinct.all()
        assert torch.equal(rouge.flatten(3).amax(-1).argmax(-1), rerankers)


def test_targets_are_scaled_in_the_order_of_settings(labels: str) -> None:
    data = LabelDataModule(labels)
    # Class 1's best grid point is the fourth: exploration 0, cost_coefficient 0.1, iterations 10.
    position = int(np.flatnonzero(data.best_labels.reranker == 1)[0])
    assert (data.best_labels.exploration[position], data.best_labels.iterations[position]) == (0.0, 10)
    assert data._data.settings[position, 1].tolist() == [1.0, 1.0, 0.0]
    # All points of another reranker are equal, so the least iterations and the defaults, c = 2.4 and λ = 0.1, win.
    assert data._data.settings[position, 0].tolist() == [0.0, 1.0, 1.0]


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
            reference="llm",
            sample=sample,
            **{m: scores[m] + sign * share * swing for m, share in (("rouge1", 1), ("rouge2", 0.5), ("rougeL", 1))},
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
    assert np.array_equal(kept.trained_on, train)
    assert np.array_equal(dropped.trained_on, train[4:])
    assert np.array_equal(weighted.trained_on, train)
    drawn = torch.cat([batch.inputs[:, 0] for batch in weighted.train_dataloader()])
    noisy = torch.from_numpy(table.embeddings[train[:4]])
    assert torch.cdist(drawn, noisy).min() > 1e-6
    drawn = torch.cat([batch.inputs[:, 0] for batch in kept.train_dataloader()])
    assert torch.cdist(drawn, noisy).min() < 1e-6


def test_noise_drops_from_all_questions_too(tmp_path: Path) -> None:
    table = separable_table()
    train = table.split("train")
    names = table.questions["question_id"]
    noisy_table(flatten_scores(table, [names[train[9]]]), names.iloc[train[:4]].tolist()).write(
        tmp_path / "labels.parquet"
    )
    found = {n: LabelDataModule(data_path(tmp_path), noise=n, train_on="all").trained_on for n in ("keep", "drop")}
    assert np.array_equal(found["keep"], train)
    assert np.array_equal(found["drop"], train[4:])  # without a leader, but in both halves alike


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_questions_without_a_best_reranker_teach_no_class(tmp_path: Path, level: float) -> None:
    table = separable_table()
    train = table.split("train")
    alike = train[[0, 4, 5]]
    flat = flatten_scores(table, table.questions["question_id"].iloc[alike].tolist())
    scores = flat.scores.copy()
    scores.loc[scores["rougeL"] == 0.5, "rougeL"] = level
    LabelTable(scores, flat.questions, flat.fingerprint).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path), train_on="all", batch_size=64, pairs_per_epoch=256)
    assert np.array_equal(data.trained_on, train)
    assert np.array_equal(data.taught, np.setdiff1d(train, alike))
    batch = PairBatch(*map(torch.cat, zip(*data.train_dataloader(), strict=True)))
    members = batch.inputs.flatten(0, 1)[:, None]
    flat_rows = (members == data.inputs[torch.from_numpy(alike)]).all(-1).any(1)
    assert flat_rows.any() and torch.equal(batch.distinct.flatten(), ~flat_rows)
    assert torch.equal(batch.targets.sum(-1).flatten(), (~flat_rows).float())
    assert (batch.rouge.flatten(0, 1)[flat_rows] == level).all()  # their regret still counts
    # 30 questions to train on, 10 of each reranker, less the three: 1 of alpha, 1 of beta, 1 of gamma.
    assert data.class_weights.tolist() == [1.0, 1.0, 1.0]
    soft = LabelDataModule(data_path(tmp_path), train_on="all", target_temperature=0.1)
    assert soft._data.targets[alike[0]].tolist() == pytest.approx([1 / 3] * 3)  # a tie is a distribution of its own


def test_training_on_questions_without_any_best_reranker_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = separable_table()
    flatten_scores(table, table.questions["question_id"].tolist()).write(tmp_path / "labels.parquet")
    LabelDataModule(data_path(tmp_path), train_on="all").setup("fit")
    assert "fewer than 10 training questions have the best reranker alpha (0), beta (0), gamma (0)" in caplog.text


def test_few_examples_of_a_reranker_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # 30 training questions, 10 of each of three rerankers; three of beta fall out.
    table = separable_table()
    train = table.split("train")
    beta = [table.questions["question_id"].iloc[i] for i in train if i % 3 == 1]
    flatten_scores(table, beta[:3]).write(tmp_path / "labels.parquet")
    LabelDataModule(data_path(tmp_path)).setup("fit")
    assert "fewer than 10 kept training questions have the best reranker beta (7):" in caplog.text
    caplog.clear()
    LabelDataModule(data_path(tmp_path), train_on="all").setup("fit")
    assert "fewer than 10 training questions have the best reranker beta (7):" in caplog.text
    assert "minimum_gain" not in caplog.text


def test_evaluation_covers_all_questions_of_the_split(tmp_path: Path) -> None:
    table = separable_table()
    val = table.questions.loc[table.split("val"), "question_id"].tolist()
    flatten_scores(table, val[:3]).write(tmp_path / "labels.parquet")
    data = LabelDataModule(str(tmp_path / "labels.parquet"))
    batches = list(data.val_dataloader())
    kept = torch.cat([batch.kept for batch in batches])
    assert kept.tolist() == [False] * 3 + [True] * 6
    rouge = torch.cat([batch.pairs.rouge[:, 0] for batch in batches])
    np.testing.assert_array_equal(rouge, data.table.rouge()[data.table.split("val")].astype(np.float32))
    embeddings = torch.cat([batch.pairs.inputs for batch in batches])
    np.testing.assert_array_equal(embeddings[:, 0], data.table.embeddings[data.table.split("val")])
    rerankers = torch.cat([batch.pairs.rerankers for batch in batches])[kept]
    assert (rerankers[:, 0] == rerankers[:, 1]).float().mean() == 0.5
    assert torch.equal(embeddings[~kept, 0], embeddings[~kept, 1])
    again = torch.cat([batch.pairs.inputs for batch in LabelDataModule(data_path(tmp_path)).val_dataloader()])
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
    with pytest.raises(InputError, match="1 of 1 training questions are left to train on"):
        LabelDataModule(data_path(tmp_path), train_on="all", limit=1).check("fit")


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


@pytest.mark.parametrize("options", [{"fold": 2}, {"split_by": "domain"}])
def test_what_says_something_about_folds_needs_them(labels: str, options: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} is .*, but folds is not set"):
        LabelDataModule(labels, **options)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        LabelDataModule(str(tmp_path / "none.parquet"))


def test_devices_share_a_splits_questions() -> None:
    count = 2 * EVALUATED_AT_ONCE + 5
    rows = torch.arange(count)
    whole = QuestionBatch(
        PairBatch(*[rows[:, None]] * len(PairBatch._fields)), torch.ones(count, dtype=torch.bool), rows
    )
    parts = [list(QuestionDataset(whole, 3, device)) for device in range(3)]
    assert {len(part) for part in parts} == {1}  # as many batches each
    seen = torch.cat([batch.tokens for part in parts for batch in part])
    assert seen.sort().values.tolist() == rows.tolist()
    alone = list(QuestionDataset(whole))
    assert [len(batch.tokens) for batch in alone] == [EVALUATED_AT_ONCE, EVALUATED_AT_ONCE, 5]
    fewer = [
        list(
            QuestionDataset(
                QuestionBatch(PairBatch(*[rows[:1]] * len(PairBatch._fields)), rows[:1] > -1, rows[:1]), 2, d
            )
        )
        for d in (0, 1)
    ]
    assert [[len(batch.kept) for batch in part] for part in fewer] == [[1], [0]]


def test_every_partner_is_drawn_and_never_the_question_itself() -> None:
    classes = np.array([0, 1, 0, 2, 0, 1])
    drawn = draw_pairs(classes, 6_000, np.random.default_rng(0))
    seen = Counter(map(tuple, drawn.tolist()))
    positive = {(i, j) for i in range(6) for j in range(6) if i != j and classes[i] == classes[j]}
    negative = {(i, j) for i in range(6) for j in range(6) if classes[i] != classes[j]}
    assert set(seen) == positive | negative
    # Class 0 has 3 of the 5 anchors of positive pairs; each of its questions has two partners: 3,000 / 5 / 2.
    assert abs(seen[0, 2] - 300) < 60 and abs(seen[1, 5] - 600) < 80
    partners = fixed_partners(classes, np.random.default_rng(0))
    same = classes[partners] == classes
    assert same.tolist() == [True, False, True, False, True, False] and (partners != np.arange(6)).all()


def test_balanced_anchors() -> None:
    classes = np.array([0] * 30 + [1] * 10)
    weights = balanced_weights(classes)
    assert weights[0] == pytest.approx(1 / 3) and weights[-1] == 1.0
    anchors = draw_pairs(classes, 4_000, np.random.default_rng(0), weights)[:, 0]
    assert abs((classes[anchors] == 0).mean() - 0.5) < 0.03


def test_extra_inputs(tmp_path: Path) -> None:
    table = with_features(separable_table(), ["agreement", "query_length"])
    table.write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path), extra_inputs=["agreement", "chunk_mean"])
    assert data.input_names == ["embedding", "chunk_mean", "agreement"]
    assert data.input_dim == 17
    np.testing.assert_array_equal(data.inputs[3, :8], table.embeddings[3])
    np.testing.assert_array_equal(data.inputs[3, 8:], [*range(24, 32), 3.0])
    shift, scale = data.input_scaling
    train = table.split("train").astype(float)
    assert shift[:16].abs().max() == 0 and scale[:16].eq(1).all()
    assert (shift[16].item(), scale[16].item()) == pytest.approx((train.mean(), 1 / train.std()))
    shift, scale = LabelDataModule(data_path(tmp_path), standardise=True).input_scaling
    scaled = ((torch.from_numpy(table.embeddings) - shift) * scale)[torch.from_numpy(table.split("train"))]
    torch.testing.assert_close(scaled.mean(0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(8))
    with pytest.raises(InputError, match="extra_inputs has the statistics redundancy, but the label table lacks them"):
        LabelDataModule(data_path(tmp_path), extra_inputs=["redundancy"])
    with pytest.raises(InputError, match=r"extra_inputs must be among chunk_mean, statistics, .*, got 'mood'"):
        LabelDataModule(data_path(tmp_path), extra_inputs=["mood"])


def test_extra_inputs_that_a_table_lacks(labels: str) -> None:
    for name in ("chunk_mean", "statistics"):
        with pytest.raises(InputError, match="run `corag label` again to add"):
            LabelDataModule(labels, extra_inputs=[name])
    with pytest.raises(InputError, match="does not name the documents of its questions"):
        LabelDataModule(labels, folds=3)


def test_a_constant_input_is_left_as_it_is(tmp_path: Path) -> None:
    table = with_features(separable_table(), ["query_length"])
    questions = table.questions.assign(statistics=[np.array([7.0], np.float32)] * len(table))
    LabelTable(table.scores, questions, table.fingerprint).write(tmp_path / "labels.parquet")
    shift, scale = LabelDataModule(data_path(tmp_path), extra_inputs=["query_length"]).input_scaling
    assert (shift[8].item(), scale[8].item()) == (7.0, 1.0)


def test_folds_divide_no_document_and_cover_all(tmp_path: Path) -> None:
    table = with_features(separable_table())
    table.write(tmp_path / "labels.parquet")
    tested = []
    for fold in range(4):
        data = LabelDataModule(data_path(tmp_path), folds=4, fold=fold)
        parts = [{table.documents[i] for i in data.splits[split]} for split in ("train", "val", "test")]
        assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
        assert [len(data.splits[split]) for split in ("train", "val", "test")] == [24, 12, 12]
        tested += data.splits["test"].tolist()
    assert sorted(tested) == list(range(48))
    for options, message in (
        ({"folds": 2}, "folds must be at least 3"),
        ({"folds": -2}, "folds must be at least 3"),
        ({"folds": 13}, "13 folds need as many documents, the label table has 12"),
        ({"folds": 4, "fold": 4}, r"fold must be from 0 to 3 \(folds − 1\), got 4"),
    ):
        with pytest.raises(InputError, match=message):
            LabelDataModule(data_path(tmp_path), **options)


def test_folds_by_domain_divide_neither_domain_nor_document(tmp_path: Path) -> None:
    table = separable_table(rerankers=("alpha", "beta", "gamma", "delta"))  # four domains
    documents = [[f"d{i}"] for i in range(48)]
    with_documents = table.questions.assign(documents=documents)
    LabelTable(table.scores, with_documents, table.fingerprint).write(tmp_path / "labels.parquet")
    domains = table.questions["domain"].to_numpy()
    tested = []
    for fold in range(4):
        data = LabelDataModule(data_path(tmp_path), folds=4, fold=fold, split_by="domain")
        assert [len({*domains[data.splits[split]]}) for split in ("train", "val", "test")] == [2, 1, 1]
        tested += data.splits["test"].tolist()
    assert sorted(tested) == list(range(48))
    documents[0] = documents[1]  # two domains with a document in common
    LabelTable(table.scores, with_documents.assign(documents=documents), table.fingerprint).write(
        tmp_path / "labels.parquet"
    )
    with pytest.raises(InputError, match="4 folds need as many domains, the label table has 3 groups of them"):
        LabelDataModule(data_path(tmp_path), folds=4, split_by="domain")
    with pytest.raises(InputError, match="by document or by domain, got 'language'"):
        LabelDataModule(data_path(tmp_path), folds=4, split_by="language")


def test_soft_targets_and_all_questions(tmp_path: Path) -> None:
    table = separable_table()
    train = table.questions.loc[table.split("train"), "question_id"].tolist()
    flatten_scores(table, train[:4]).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path), train_on="all", target_temperature=0.3)
    assert len(data.trained_on) == 30 and len(LabelDataModule(data_path(tmp_path)).trained_on) == 26
    # Best scores 0.9, 0.3, 0.3: e⁰, e⁻², e⁻².
    share = 1 / (1 + 2 * np.exp(-2))
    position = int(table.split("train")[6])
    assert data._data.targets[position].max().item() == pytest.approx(share)
    assert data._data.targets[int(table.split("train")[0])].tolist() == pytest.approx([1 / 3] * 3)


def test_the_best_fixed_configuration_is_chosen_on_the_train_split(tmp_path: Path) -> None:
    table = separable_table()
    scores = table.scores.copy()
    split = scores["question_id"].map(table.questions.set_index("question_id")["split"])
    at = (scores["reranker"] == "gamma") & (scores["exploration"] == 2.4) & (scores["iterations"] == 10)
    scores.loc[at & (split == "train"), "rougeL"] = 0.95
    scores.loc[(scores["reranker"] == "alpha") & (split != "train"), "rougeL"] = 1.0
    LabelTable(scores, table.questions, table.fingerprint).write(tmp_path / "labels.parquet")
    # Both cost coefficients are equal then; 0.1 is the default.
    assert LabelDataModule(data_path(tmp_path)).fixed == (2, 1, 1, 1)


def test_the_fallback_is_the_best_of_train_and_validation_and_sees_no_test_question(tmp_path: Path) -> None:
    table = with_features(separable_table())
    split = table.scores["question_id"].map(table.questions.set_index("question_id")["split"])
    # Of 30, 9 and 9 questions: alpha is best for the first, beta for the first two, gamma for all three.
    wanted = {("alpha", "train"): 0.6, ("beta", "train"): 0.5, ("beta", "val"): 0.9, ("gamma", "test"): 1.0}
    keys = zip(table.scores["reranker"], split, strict=True)
    level = np.array([wanted.get(key, 0.4 if key[0] == "gamma" else 0.0) for key in keys])
    LabelTable(table.scores.assign(rougeL=level), table.questions, table.fingerprint).write(tmp_path / "labels.parquet")
    data = LabelDataModule(data_path(tmp_path))
    assert (data.fixed[0], data.fallback[0]) == (0, 1)
    for fold in range(3):
        folded = LabelDataModule(data_path(tmp_path), folds=3, fold=fold)
        others = np.flatnonzero(~np.isin(np.arange(len(folded.table)), folded.splits["test"]))
        assert folded.fallback == best_fixed(folded.table, others)


def test_a_limit_draws_from_the_train_split(labels: str) -> None:
    table = separable_table()
    train = set(table.split("train").tolist())
    drawn = {seed: LabelDataModule(labels, limit=12, seed=seed) for seed in (0, 1)}
    for data in drawn.values():
        assert len(data.trained_on) == 12 and set(data.splits["train"].tolist()) < train
        assert len(data.splits["val"]) == len(table.split("val"))
    assert set(drawn[0].splits["train"]) != set(drawn[1].splits["train"])
    smaller = LabelDataModule(labels, limit=5).splits["train"]
    assert set(smaller) < set(drawn[0].splits["train"])  # a curve's points are nested
    assert len(LabelDataModule(labels, limit=500).splits["train"]) == len(train)


def test_class_weights_by_hand(tmp_path: Path) -> None:
    table = separable_table()
    train = table.split("train")
    beta = [table.questions["question_id"].iloc[i] for i in train if i % 3 == 1]
    flatten_scores(table, beta[:5]).write(tmp_path / "labels.parquet")
    # 10, 5 and 10 of 25.
    assert LabelDataModule(data_path(tmp_path)).class_weights.tolist() == pytest.approx([25 / 30, 25 / 15, 25 / 30])


def with_splits(tmp_path: Path, split: dict[str, str]) -> str:
    """A table whose documents d0, d1 … have the split that is given for them, and train otherwise; q000 has d0."""
    table = with_features(separable_table())
    splits = [
        split.get(name, split.get(own[0], "train"))
        for name, own in zip(table.questions["question_id"], table.documents, strict=True)
    ]
    LabelTable(table.scores, table.questions.assign(split=splits), table.fingerprint).write(tmp_path / "l.parquet")
    return str(tmp_path / "l.parquet")


def test_a_document_in_two_splits_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = LabelDataModule(with_splits(tmp_path, {"d3": "test", "d7": "val", "q003": "train"}))
    assert len(data.splits["test"]) == 3
    (message,) = caplog.messages
    # Documents are of every twelfth question among 48: four questions each.
    assert message.startswith("1 of 12 groups of questions that share documents are divided between splits (4 of 48 ")
    assert "the first is that of 'd3' (train 1, test 3)" in message and "`corag label --merge`" in message


def test_whole_documents_and_folds_are_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LabelDataModule(with_splits(tmp_path, {"d3": "test", "d7": "val"}))
    LabelDataModule(with_splits(tmp_path, {"d3": "test", "d7": "val", "q003": "train"}), folds=3)
    LabelDataModule(write_separable_table(tmp_path))  # it names no documents
    assert caplog.messages == []

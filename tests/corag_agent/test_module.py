import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from corag_agent.calibration import ALWAYS, Calibration
from corag_agent.datamodule import LabelDataModule
from corag_agent.metrics import METRICS
from corag_agent.module import ConfigurationAgentModule
from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from data_prep.grid import LabelGrid
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, with_features, write_separable_table

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"))


def make_module(data: LabelDataModule, **options: Any) -> ConfigurationAgentModule:
    return ConfigurationAgentModule.for_data(data, **{"hidden": (32, 16, 8), **options})


def make_trainer(**options: Any) -> Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return Trainer(**{**quiet, "enable_model_summary": False, "num_sanity_val_steps": 0, **options})


def train(labels: str, epochs: int, **options: Any) -> tuple[Trainer, ConfigurationAgentModule]:
    seed_everything(0, verbose=False)
    data = LabelDataModule(labels, batch_size=8)
    module = make_module(data, **options)
    trainer = make_trainer(max_epochs=epochs)
    trainer.fit(module, datamodule=data)
    return trainer, module


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    for (name, left), (_, right) in zip(one.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.equal(left, right), name


def test_fast_development_run(labels: str) -> None:
    data = LabelDataModule(labels)
    module = make_module(data)
    trainer = make_trainer(fast_dev_run=True)
    trainer.fit(module, datamodule=data)
    trainer.test(module, datamodule=data, verbose=False)
    losses = {"loss", "loss_contrastive", "loss_classification", "loss_regression", "loss_regret"}
    assert set(trainer.callback_metrics) == {f"test/{name}" for name in losses | set(METRICS)}


def test_overfits_a_separable_table(labels: str) -> None:
    trainer, _ = train(labels, epochs=60, optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    reached = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert reached["train/loss_classification"] < 0.05
    assert reached["val/accuracy"] == 1.0
    assert reached["val/rougeL"] == pytest.approx(0.9)
    assert reached["val/regret"] == pytest.approx(0.0, abs=1e-6)
    assert reached["val/prompt_tokens"] == pytest.approx(101.0)


def test_an_epochs_loss_is_the_mean_over_its_pairs(labels: str) -> None:
    trainer, module = train(labels, epochs=2, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    data = LabelDataModule(labels, batch_size=8)
    loader = data.train_dataloader()
    loader.sampler.set_epoch(1)  # type: ignore[attr-defined]
    batches = list(loader)
    assert len({len(batch.rerankers) for batch in batches}) > 1
    with torch.no_grad():
        losses = torch.tensor([list(module._loss(module(batch.inputs), batch)) for batch in batches])
    sizes = torch.tensor([[float(len(batch.rerankers))] for batch in batches])
    expected = (losses * sizes).sum(0) / sizes.sum()
    for name, value in zip(("", "_contrastive", "_classification", "_regression", "_regret"), expected, strict=True):
        assert trainer.callback_metrics[f"train/loss{name}"].item() == pytest.approx(value.item(), rel=1e-5)


def test_same_seed_same_weights(labels: str) -> None:
    _, one = train(labels, epochs=2)
    _, other = train(labels, epochs=2)
    assert_same_weights(one, other)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_resume_continues_exactly(labels: str, tmp_path: Path, dropout: float) -> None:
    _, whole = train(labels, epochs=4, dropout=dropout)
    trainer, _ = train(labels, epochs=2, dropout=dropout)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    seed_everything(123, verbose=False)
    data = LabelDataModule(labels, batch_size=8)
    resumed = make_module(data, dropout=dropout)
    make_trainer(max_epochs=4).fit(resumed, datamodule=data, ckpt_path=str(tmp_path / "half.ckpt"))
    assert_same_weights(whole, resumed)
    assert resumed.calibration == whole.calibration


def test_other_seeds_drop_other_outputs(labels: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        seed_everything(0, verbose=False)
        data = LabelDataModule(labels, batch_size=8)
        module = make_module(data, dropout=0.4)
        module._seed = seed
        make_trainer(max_epochs=1).fit(module, datamodule=data)
        return module.encoder.layers[0].weight

    assert torch.equal(weights(0), weights(0)) and not torch.equal(weights(0), weights(1))


def test_batches_of_one_step_drop_other_outputs(labels: str) -> None:
    """Accumulated batches of a step draw their own masks; without accumulation a step draws what it always has."""

    class Watched(ConfigurationAgentModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            states.append((self.current_epoch, batch_idx, torch.get_rng_state().numpy().tobytes()))
            return super().training_step(batch, batch_idx)

    drawn = {}
    for accumulated in (1, 2):
        states: list[tuple[int, int, bytes]] = []
        data = LabelDataModule(labels, batch_size=8)
        module = Watched.for_data(data, hidden=(8,), dropout=0.4)
        module._seed = 0
        make_trainer(max_epochs=2, accumulate_grad_batches=accumulated).fit(module, datamodule=data)
        drawn[accumulated] = [state for *_, state in states]
        assert len(set(drawn[accumulated])) == len(states) >= 8
    assert drawn[2][::2] == drawn[1][: len(drawn[2]) // 2]


def test_a_checkpoint_keeps_the_metrics_that_it_was_chosen_with(labels: str, tmp_path: Path) -> None:
    trainer, _ = train(labels, epochs=1)
    trainer.save_checkpoint(tmp_path / "agent.ckpt")
    saved: dict[str, Any] = {}
    ConfigurationAgentModule.load_from_checkpoint(tmp_path / "agent.ckpt").on_save_checkpoint(saved)
    state = torch.load(tmp_path / "agent.ckpt", weights_only=True)
    assert saved["val_metrics"]["val/regret"] == trainer.callback_metrics["val/regret"].item()
    assert saved == {name: state[name] for name in saved}


def test_a_training_that_diverges_is_refused(labels: str) -> None:
    with pytest.raises(InputError, match=r"output for the val split is NaN or infinite.*lower rate"):
        train(labels, epochs=4, optimizer=lambda p: torch.optim.Adam(p, lr=1e20))


def test_reloaded_checkpoint_evaluates_the_same(labels: str, tmp_path: Path) -> None:
    trainer, module = train(labels, epochs=2)
    trainer.save_checkpoint(tmp_path / "agent.ckpt")
    data = LabelDataModule(labels, batch_size=8)
    before = make_trainer().test(module, datamodule=data, verbose=False)
    reloaded = ConfigurationAgentModule.load_from_checkpoint(tmp_path / "agent.ckpt")
    assert make_trainer().test(reloaded, datamodule=data, verbose=False) == before
    assert reloaded.hparams == module.hparams


def test_hyperparameters_are_plain(labels: str) -> None:
    def check(value: Any) -> None:
        assert type(value) in (str, int, float, bool, list, dict, type(None)), value
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(part)

    module = make_module(LabelDataModule(labels))
    check(dict(module.hparams))
    assert not {"optimizer", "scheduler"} & set(module.hparams)


def test_evaluation_without_a_kept_question(tmp_path: Path) -> None:
    table = separable_table()
    scores = table.scores.copy()
    ids = table.questions.loc[table.split("val"), "question_id"]
    scores.loc[scores["question_id"].isin(ids), "rougeL"] = 0.5
    LabelTable(scores, table.questions, table.fingerprint).write(tmp_path / "labels.parquet")
    trainer, _ = train(str(tmp_path / "labels.parquet"), epochs=1)
    assert trainer.callback_metrics["val/loss"].isnan()  # nothing to average over
    assert trainer.callback_metrics["val/rougeL"] == 0.5
    assert trainer.callback_metrics["val/regret"] == 0.0


def test_a_single_reranker(tmp_path: Path) -> None:
    labels = write_separable_table(tmp_path, rerankers=("only",))
    trainer, _ = train(labels, epochs=1)
    assert trainer.callback_metrics["val/accuracy"] == 1.0


def test_a_grid_of_one_point(tmp_path: Path) -> None:
    grid = LabelGrid(exploration=(0.5,), cost_coefficient=(0.1,), iterations=(10,))
    trainer, module = train(write_separable_table(tmp_path, grid=grid), epochs=1, weight_regret=1.0)
    metrics = trainer.callback_metrics
    assert [metrics[f"val/error_{name}"] for name in ("iterations", "cost_coefficient", "exploration")] == [0, 0, 0]
    assert metrics["val/loss"].isfinite() and module.ranges["iterations"] == (10.0, 10.0)


def test_injected_scheduler(labels: str) -> None:
    trainer, _ = train(
        labels,
        epochs=2,
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.1),
    )
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("change", ["rerankers", "grid", "embedder"])
def test_a_checkpoint_of_other_labels_is_refused(labels: str, change: str) -> None:
    module = make_module(LabelDataModule(labels))
    hyperparameters = copy.deepcopy(dict(module.hparams))
    hyperparameters[change] = "other"
    with pytest.raises(InputError, match=f"trained with {change} 'other', the label table has"):
        module.on_load_checkpoint({"hyper_parameters": hyperparameters})


@pytest.mark.parametrize(
    ("trained", "own", "line"),
    [
        (["chunk_mean"], [], r"this run is without chunk_mean, unlike .*data.extra_inputs to \[chunk_mean\] as then"),
        ([], ["agreement"], r"this run is with agreement, unlike .*data.extra_inputs to \[\] as then"),
        (
            ["agreement", "chunk_mean"],
            ["agreement", "query_length", "redundancy"],
            r"this run is without chunk_mean and with query_length, redundancy, unlike the training of the checkpoint",
        ),
    ],
)
def test_a_checkpoint_of_other_inputs_is_refused_by_their_names(
    tmp_path: Path, trained: list[str], own: list[str], line: str
) -> None:
    with_features(separable_table()).write(tmp_path / "labels.parquet")
    before, now = (
        make_module(LabelDataModule(str(tmp_path / "labels.parquet"), extra_inputs=names)) for names in (trained, own)
    )
    with pytest.raises(InputError, match=line):
        now.on_load_checkpoint({"hyper_parameters": dict(before.hparams)})
    before.on_load_checkpoint({"hyper_parameters": dict(before.hparams)})


@pytest.mark.parametrize("options", [{"margin": -1.0}, {"weight_regression": float("nan")}])
def test_unusable_arguments(labels: str, options: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} must be a finite number, at least 0"):
        make_module(LabelDataModule(labels), **options)


def test_what_comes_from_the_train_split_is_kept_with_the_weights(labels: str, tmp_path: Path) -> None:
    seed_everything(0, verbose=False)
    data = LabelDataModule(labels, standardise=True)
    module = make_module(data, balance_classes=True)
    trainer = make_trainer(max_epochs=1)
    trainer.fit(module, datamodule=data)
    trainer.save_checkpoint(tmp_path / "agent.ckpt")
    reloaded = ConfigurationAgentModule.load_from_checkpoint(tmp_path / "agent.ckpt")
    torch.testing.assert_close(reloaded.encoder.input_shift, data.input_scaling[0])
    torch.testing.assert_close(reloaded.encoder.input_scale, data.input_scaling[1])
    torch.testing.assert_close(reloaded.class_weights, data.class_weights)
    assert tuple(reloaded.fixed.tolist()) == data.fixed
    assert tuple(reloaded.fallback.tolist()) == data.fallback
    assert reloaded.calibration == module.calibration != Calibration()


def test_validation_compares_with_what_train_alone_chose_and_test_with_the_fallback(tmp_path: Path) -> None:
    table = separable_table()
    split = table.scores["question_id"].map(table.questions.set_index("question_id")["split"])
    # Alpha is best for the 30 training questions, beta for these and the 9 of validation, gamma for test.
    wanted = {
        **{("alpha", "train"): 0.6, ("beta", "train"): 0.5, ("gamma", "train"): 0.0},
        **{("alpha", "val"): 0.2, ("beta", "val"): 0.9, ("gamma", "val"): 0.0},
        **{("alpha", "test"): 0.1, ("beta", "test"): 0.3, ("gamma", "test"): 1.0},
    }
    level = np.array([wanted[key] for key in zip(table.scores["reranker"], split, strict=True)])
    LabelTable(table.scores.assign(rougeL=level), table.questions, table.fingerprint).write(tmp_path / "labels.parquet")
    trainer, module = train(str(tmp_path / "labels.parquet"), epochs=1)
    assert trainer.callback_metrics["val/fixed_rougeL"] == pytest.approx(0.2)
    assert module.fallback_configuration["reranker"] == "beta"
    module.calibration = Calibration(1.0, ALWAYS)
    trainer.test(module, datamodule=trainer.datamodule, verbose=False)  # type: ignore[attr-defined]
    found = {name: float(trainer.callback_metrics[f"test/{name}"]) for name in ("fixed_rougeL", "fallback_rougeL")}
    assert found == {"fixed_rougeL": pytest.approx(0.3), "fallback_rougeL": pytest.approx(0.3)}


def test_the_regret_loss_alone_learns_what_pays(labels: str) -> None:
    only = {"weight_contrastive": 0.0, "weight_classification": 0.0, "weight_regression": 0.0, "weight_regret": 1.0}
    trainer, _ = train(labels, 60, optimizer=lambda p: torch.optim.Adam(p, lr=0.01), **only)
    assert trainer.callback_metrics["val/accuracy"] == 1.0
    assert trainer.callback_metrics["val/regret"] < 0.35  # 0.3 when the settings are missed, 0.6 when the reranker is
    assert trainer.callback_metrics["train/loss_contrastive"] == 0.0


def test_starting_from_a_trained_agent(labels: str, tmp_path: Path) -> None:
    trainer, trained = train(labels, epochs=2, settings_heads="per_reranker")
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    start = str(tmp_path / "old.ckpt")
    same = make_module(LabelDataModule(labels), init_from=start, settings_heads="per_reranker")
    assert_same_weights(same.encoder.layers, trained.encoder.layers)
    assert_same_weights(same.encoder.reranker_head, trained.encoder.reranker_head)
    assert "init_from" not in same.hparams and start not in str(same.hparams)

    others = write_separable_table(tmp_path, rerankers=("gamma", "delta", "alpha", "epsilon"))
    data = LabelDataModule(others)
    fresh, new = (make_module(data, settings_heads="per_reranker", **o) for o in ({}, {"init_from": start}))
    assert_same_weights(new.encoder.layers, trained.encoder.layers)
    old, made = trained.encoder.state_dict(), new.encoder.state_dict()
    for at, before in ((0, 2), (2, 0)):
        for part in ("weight", "bias"):
            assert torch.equal(made[f"reranker_head.{part}"][at], old[f"reranker_head.{part}"][before])
            rows, old_rows = made[f"settings_head.{part}"], old[f"settings_head.{part}"]
            assert torch.equal(rows[3 * at : 3 * at + 3], old_rows[3 * before : 3 * before + 3])
    assert made["reranker_head.weight"].shape == fresh.encoder.reranker_head.weight.shape
    assert not torch.equal(made["reranker_head.weight"][1], old["reranker_head.weight"][1])


@pytest.mark.parametrize("heads", ["shared", "per_reranker"])
def test_starting_on_a_grid_of_other_ranges_predicts_the_same_settings(tmp_path: Path, heads: str) -> None:
    before = LabelGrid(exploration=(0.0, 2.4), cost_coefficient=(0.1,), iterations=(5, 10))
    after = LabelGrid(exploration=(0.5, 1.0, 4.5), cost_coefficient=(0.0, 0.3), iterations=(10,))
    for name, grid in (("old", before), ("new", after)):
        separable_table(grid=grid).write(tmp_path / f"{name}.parquet")
    trainer, trained = train(str(tmp_path / "old.parquet"), epochs=1, settings_heads=heads)
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    data = LabelDataModule(str(tmp_path / "new.parquet"))
    started = make_module(data, init_from=str(tmp_path / "old.ckpt"), settings_heads=heads)
    inputs = torch.randn(5, 8)
    with torch.no_grad():
        was, now = (module(inputs).settings.double() for module in (trained, started))
    # Where the old grid has one value, that was it; a new one is not divided by its range of 0.
    columns = {name: at for at, name in enumerate(SETTINGS)}
    wanted = {
        "exploration": (2.4 * was[..., columns["exploration"]] - 0.5) / 4.0,
        "cost_coefficient": torch.full((5, 3), 0.1 / 0.3, dtype=torch.float64),
        "iterations": 5 + 5 * was[..., columns["iterations"]] - 10,
    }
    for name, at in columns.items():
        torch.testing.assert_close(now[..., at], wanted[name], rtol=1e-5, atol=1e-5)


def test_starting_from_an_agent_of_other_inputs_is_refused(labels: str, tmp_path: Path) -> None:
    trainer, _ = train(labels, epochs=1)
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    with_features(separable_table()).write(tmp_path / "labels.parquet")
    data = LabelDataModule(str(tmp_path / "labels.parquet"), extra_inputs=["chunk_mean"])
    with pytest.raises(InputError, match=r"this run is with chunk_mean, unlike .* data.extra_inputs to \[\]"):
        make_module(data, init_from=str(tmp_path / "old.ckpt"))


def test_starting_from_an_agent_of_which_some_layers_fit(labels: str, tmp_path: Path) -> None:
    trainer, trained = train(labels, epochs=1)
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    data = LabelDataModule(write_separable_table(tmp_path, rerankers=("gamma", "delta", "alpha", "epsilon")))
    start = str(tmp_path / "old.ckpt")
    same, other = (make_module(data, init_from=start, hidden=(32, 16, last)) for last in (8, 4))
    assert_same_weights(same.encoder.settings_head, trained.encoder.settings_head)  # one head for all rerankers
    assert_same_weights(other.encoder.layers[:2], trained.encoder.layers[:2])
    assert other.encoder.settings_head.weight.shape == (3, 4)


def test_starting_from_what_does_not_fit(labels: str, tmp_path: Path) -> None:
    trainer, _ = train(labels, epochs=1)
    trainer.save_checkpoint(tmp_path / "old.ckpt")
    start = str(tmp_path / "old.ckpt")
    with pytest.raises(InputError, match=r"no layer of the checkpoint .hidden \[32, 16, 8\]. is as wide as this"):
        make_module(LabelDataModule(labels), init_from=start, hidden=(9,))
    with pytest.raises(InputError, match="no layer of the checkpoint"):
        make_module(LabelDataModule(labels), init_from=start, hidden=(9, 16))  # a bias alone is as wide
    with pytest.raises(InputError, match="init_from: the checkpoint was trained with embedder"):
        make_module(LabelDataModule(write_separable_table(tmp_path, dimension=6)), init_from=start)
    with pytest.raises(InputError, match=r"none.ckpt does not exist"):
        make_module(LabelDataModule(labels), init_from=str(tmp_path / "none.ckpt"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_trains_in_16_bit_on_a_gpu(labels: str) -> None:
    seed_everything(0, verbose=False)
    data = LabelDataModule(labels, batch_size=8)
    module = make_module(data, optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    trainer = make_trainer(accelerator="gpu", devices=1, precision="16-mixed", max_epochs=60)
    trainer.fit(module, datamodule=data)
    assert trainer.callback_metrics["val/accuracy"] == 1.0
    assert trainer.callback_metrics["val/regret"] < 1e-6

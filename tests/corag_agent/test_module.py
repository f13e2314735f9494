import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer, seed_everything

from corag_agent.datamodule import LabelDataModule
from corag_agent.losses import configuration_loss
from corag_agent.module import ConfigurationAgentModule
from corag_search.errors import InputError
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import separable_table, write_separable_table

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"))


def make_module(data: LabelDataModule, **options: Any) -> ConfigurationAgentModule:
    linked = {name: getattr(data, name) for name in ("input_dim", "rerankers", "grid", "embedder", "label_fingerprint")}
    return ConfigurationAgentModule(**linked, **{"hidden": (32, 16, 8), **options})


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
    losses = {"loss", "loss_contrastive", "loss_classification", "loss_regression"}
    looked_up = {"accuracy", "rougeL", "regret", "prompt_tokens"}
    assert set(trainer.callback_metrics) == {f"test/{name}" for name in losses | looked_up}


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
        losses = torch.tensor(
            [list(configuration_loss(*module(batch.embeddings), batch.rerankers, batch.settings)) for batch in batches]
        )
    sizes = torch.tensor([[float(len(batch.rerankers))] for batch in batches])
    expected = (losses * sizes).sum(0) / sizes.sum()
    for name, value in zip(("", "_contrastive", "_classification", "_regression"), expected, strict=True):
        assert trainer.callback_metrics[f"train/loss{name}"].item() == pytest.approx(value.item(), rel=1e-5)


def test_same_seed_same_weights(labels: str) -> None:
    _, one = train(labels, epochs=2)
    _, other = train(labels, epochs=2)
    assert_same_weights(one, other)


def test_resume_continues_exactly(labels: str, tmp_path: Path) -> None:
    _, whole = train(labels, epochs=4)
    trainer, _ = train(labels, epochs=2)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    seed_everything(123, verbose=False)
    data = LabelDataModule(labels, batch_size=8)
    resumed = make_module(data)
    make_trainer(max_epochs=4).fit(resumed, datamodule=data, ckpt_path=str(tmp_path / "half.ckpt"))
    assert_same_weights(whole, resumed)


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


def test_injected_scheduler(labels: str) -> None:
    trainer, _ = train(
        labels,
        epochs=2,
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
        scheduler=lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.1),
    )
    assert isinstance(trainer.optimizers[0], torch.optim.SGD)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("change", ["rerankers", "grid", "embedder", "input_dim"])
def test_a_checkpoint_of_other_labels_is_refused(labels: str, change: str) -> None:
    module = make_module(LabelDataModule(labels))
    hyperparameters = copy.deepcopy(dict(module.hparams))
    hyperparameters[change] = "other"
    with pytest.raises(InputError, match=f"trained with {change} 'other', the label table has"):
        module.on_load_checkpoint({"hyper_parameters": hyperparameters})


@pytest.mark.parametrize("options", [{"margin": -1.0}, {"weight_regression": float("nan")}])
def test_unusable_arguments(labels: str, options: dict) -> None:
    with pytest.raises(InputError, match=f"{next(iter(options))} must be a finite number, at least 0"):
        make_module(LabelDataModule(labels), **options)


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

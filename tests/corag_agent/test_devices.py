import csv
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from corag_agent.checkpoint import load_checkpoint
from corag_agent.export import export
from corag_agent.training import training_cli
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from data_prep.table import LabelTable
from tests.corag_agent.synthetic_labels import write_separable_table

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
GPU_CONFIG = ["--config", str(ROOT / "configs" / "train_gpu.yaml")]
EPOCHS = 3
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"))


def arguments(labels: str, output: Path, *more: str) -> list[str]:
    given = ["--data.labels", labels, "--output", str(output), "--trainer.enable_progress_bar", "false"]
    return ["fit", *given, "--trainer.max_epochs", str(EPOCHS), *more]


def run(labels: str, output: Path, *more: str) -> Any:
    return training_cli(arguments(labels, output, *more))


def weights(output: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return load_checkpoint(output / "checkpoints" / f"{name}.ckpt")[0].encoder.state_dict()


def close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], tolerance: float) -> bool:
    assert list(left) == list(right)
    return all(torch.allclose(left[name], right[name], rtol=0, atol=tolerance) for name in left)


def logged(output: Path) -> list[dict[str, float]]:
    """The rows of metrics.csv, without empty cells."""
    with (output / "logs" / "version_0" / "metrics.csv").open(newline="") as file:
        return [{name: float(cell) for name, cell in row.items() if cell} for row in csv.DictReader(file)]


class Pair(NamedTuple):
    """Folders of the same training by one process and by two, and what the two printed."""

    one: Path
    two: Path
    said: str
    warned: str


@pytest.fixture(scope="module")
def pair(labels: str, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """30 pairs an epoch: three steps of ten by one process, or of five by each of two."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    pairs = ["--data.pairs_per_epoch", "30", "--model.contrast", "drawn"]
    run(labels, one, *pairs, "--data.batch_size", "10")
    devices = ["--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp"]
    told = arguments(labels, two, *pairs, "--data.batch_size", "5", *devices)
    finished = subprocess.run(
        [sys.executable, "-m", "corag_agent.cli", *told],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return Pair(one, two, finished.stdout, finished.stderr)


def test_two_processes_take_the_steps_of_one_with_twice_the_batch(pair: Pair) -> None:
    states = [load_checkpoint(output / "checkpoints" / "last.ckpt")[1] for output in (pair.one, pair.two)]
    assert [state["global_step"] for state in states] == [3 * EPOCHS, 3 * EPOCHS]


def test_two_processes_end_with_the_weights_of_one(pair: Pair, labels: str, tmp_path: Path) -> None:
    assert close(weights(pair.one), weights(pair.two), 1e-5)
    run(labels, tmp_path, "--data.pairs_per_epoch", "30", "--data.batch_size", "5")
    assert not close(weights(pair.one), weights(tmp_path), 1e-3)  # what the tolerance tells apart


def test_two_processes_measure_each_question_once(pair: Pair) -> None:
    one, two = logged(pair.one), logged(pair.two)
    assert len(one) == len(two) == 2 * EPOCHS
    for left, right in zip(one, two, strict=True):
        assert left == pytest.approx(right, abs=1e-5, nan_ok=True)


def test_two_processes_leave_one_set_of_files(pair: Pair) -> None:
    found = [sorted(str(path.relative_to(each)) for path in each.rglob("*")) for each in (pair.one, pair.two)]
    assert found[0] == found[1]
    assert (pair.one / "confusion.val.csv").read_text() == (pair.two / "confusion.val.csv").read_text()
    assert [line.split(" (")[0] for line in pair.said.splitlines()] == ["best checkpoint"]
    assert [line for line in pair.warned.splitlines() if line.startswith("corag")] == []


def test_16_bit_on_the_cpu(labels: str, tmp_path: Path) -> None:
    cli = run(labels, tmp_path / "half", "--trainer.precision", "bf16-mixed")
    assert cli.trainer.precision == "bf16-mixed"
    run(labels, tmp_path / "full")
    half, full = weights(tmp_path / "half"), weights(tmp_path / "full")
    assert {value.dtype for value in half.values()} == {torch.float32}
    assert close(half, full, 0.02)
    assert not close(half, full, 1e-7)  # it was indeed another precision
    assert all(math.isfinite(row["train/loss"]) for row in logged(tmp_path / "half") if "train/loss" in row)
    agent = ConfigurationAgent.load(export(tmp_path / "half" / "checkpoints" / "best.ckpt", tmp_path / "agent"))
    assert agent.predict(np.eye(8)[1]).reranker in ("alpha", "beta", "gamma")


def test_compiled_training_is_the_same(labels: str, tmp_path: Path) -> None:
    cli = run(labels, tmp_path / "compiled", "--compile", "aot_eager")
    assert cli.model.encoder._compiled_call_impl is not None
    run(labels, tmp_path / "plain")
    assert close(weights(tmp_path / "compiled"), weights(tmp_path / "plain"), 1e-6)
    (tmp_path / "compiled" / "config.fit.yaml").read_text().index("compile: aot_eager")


def test_an_unknown_backend_leaves_nothing(labels: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"compile must be a backend of torch.compile \(.*inductor.*\), got 'fast'"):
        run(labels, tmp_path / "output", "--compile", "fast")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_fit_on_a_gpu_and_the_export_on_the_cpu(labels: str, tmp_path: Path, precision: str) -> None:
    cli = run(labels, tmp_path, *GPU_CONFIG, "--trainer.precision", precision)
    assert cli.trainer.precision == precision
    assert cli.trainer.strategy.root_device.type == "cuda"
    assert (tmp_path / "confusion.val.csv").is_file()
    best = tmp_path / "checkpoints" / "best.ckpt"
    agent = ConfigurationAgent.load(export(best, tmp_path / "agent"))
    embeddings = LabelTable.read(labels).embeddings
    module = load_checkpoint(best)[0].cuda().eval()
    with torch.no_grad():
        logits = module.encoder(torch.from_numpy(embeddings).cuda()).logits
    on_gpu = torch.softmax(logits / module.calibration.temperature, dim=-1).cpu().numpy()
    on_cpu = [list(agent.predict(row).probabilities.values()) for row in embeddings]
    assert np.allclose(on_cpu, on_gpu, rtol=0, atol=1e-5)


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_learns_what_the_cpu_learns(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path / "gpu", *GPU_CONFIG, "--trainer.precision", "32-true")
    run(labels, tmp_path / "cpu")
    assert close(weights(tmp_path / "gpu"), weights(tmp_path / "cpu"), 1e-3)


@pytest.mark.gpu
@needs_gpu
def test_compiled_on_a_gpu(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path / "compiled", *GPU_CONFIG, "--trainer.precision", "32-true", "--compile", "inductor")
    run(labels, tmp_path / "plain", *GPU_CONFIG, "--trainer.precision", "32-true")
    assert close(weights(tmp_path / "compiled"), weights(tmp_path / "plain"), 1e-3)


@pytest.mark.gpu
@needs_gpu
def test_the_gpu_configuration_measures_what_it_trained(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path, *GPU_CONFIG)
    given = ["--data.labels", labels, "--output", str(tmp_path), "--trainer.enable_progress_bar", "false"]
    cli = training_cli(["test", *GPU_CONFIG, *given, "--ckpt_path", "best"])
    assert 0 <= float(cli.trainer.callback_metrics["test/regret"]) <= 0.6
    assert (tmp_path / "confusion.test.csv").is_file()

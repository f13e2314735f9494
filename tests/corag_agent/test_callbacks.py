import csv
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from lightning.pytorch import Trainer

from corag_agent.callbacks import ConfusionMatrix, FeatureProjection
from corag_agent.callbacks.best_model import BestModelReport
from corag_agent.callbacks.confusion import confusion_counts
from corag_agent.callbacks.projection import draw_features, principal_plane
from corag_agent.checkpoint import load_checkpoint
from corag_agent.datamodule import LabelDataModule
from corag_agent.encoder import EncoderOutput
from corag_agent.training import training_cli
from tests.corag_agent.synthetic_labels import write_separable_table

torch.set_num_threads(1)
CONFIGS = Path(__file__).parents[2] / "configs"
REPORTS = ("confusion.val.csv", "confusion.val.svg", "features.png")


def run(labels: str, output: Path, *more: str, subcommand: str = "fit", callbacks: Any = ()) -> Any:
    given = ["--data.labels", labels, "--output", str(output), "--trainer.enable_progress_bar", "false"]
    epochs = ["--trainer.max_epochs", "3"] if subcommand == "fit" else []
    return training_cli([subcommand, *given, *epochs, *more], callbacks)


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_separable_table(tmp_path_factory.mktemp("labels"))


class Heard(BestModelReport):
    """Keeps what it is to report."""

    def __init__(self) -> None:
        self.reports: list[tuple[EncoderOutput, str]] = []

    def report(self, trainer: Trainer, output: EncoderOutput, split: str) -> None:
        self.reports.append((output, split))


@pytest.fixture(scope="module")
def trained(labels: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Heard, Any]:
    """A training whose best checkpoint is its first and, by the loss, its worst; not to be written to."""
    output, heard = tmp_path_factory.mktemp("trained"), Heard()
    worst = ["--checkpoint.monitor", "val/loss", "--checkpoint.mode", "max"]
    return output, heard, run(labels, output, *worst, callbacks=[heard])


def counts_in(file: Path) -> tuple[list[str], np.ndarray[Any, Any]]:
    with file.open(newline="") as rows:
        (corner, *names), *body = csv.reader(rows)
    assert corner == "best"
    assert [row[0] for row in body] == names
    return names, np.array([[int(cell) for cell in row[1:]] for row in body])


def test_fit_reports_on_the_best_checkpoint(trained: tuple[Path, Heard, Any]) -> None:
    output, heard, cli = trained
    ((reported, split),) = heard.reports
    assert split == "val"
    epochs = {name: load_checkpoint(output / "checkpoints" / f"{name}.ckpt") for name in ("best", "last")}
    assert [state["epoch"] for _, state in epochs.values()] == [0, 2]
    data = cli.datamodule
    with torch.no_grad():
        best, last = (module.encoder(data.inputs) for module, _ in epochs.values())
    assert all(torch.equal(left, right) for left, right in zip(reported, best, strict=True))
    assert not torch.allclose(reported.features, last.features)


def test_the_files_of_fit(trained: tuple[Path, Heard, Any]) -> None:
    output, heard, cli = trained
    names, counts = counts_in(output / "confusion.val.csv")
    assert names == ["alpha", "beta", "gamma"]
    data, chosen = cli.datamodule, heard.reports[0][0].logits.argmax(-1).tolist()
    expected = np.zeros((3, 3), int)
    for at in data.splits["val"]:
        if data.best_labels.kept[at]:
            expected[data.best_labels.reranker[at], chosen[at]] += 1
    assert counts.tolist() == expected.tolist()
    drawn = (output / "confusion.val.svg").read_text()
    ElementTree.fromstring(drawn)
    assert all(f"<!-- {name} -->" in drawn for name in names)
    assert (output / "features.png").read_bytes().startswith(b"\x89PNG")
    kinds = {"checkpoints", "config.fit.yaml", "logs", *REPORTS}
    assert {path.name for path in output.iterdir()} == kinds  # nothing of W&B, nothing of the test split


def test_the_confusion_matrix_after_test_has_the_accuracy_that_is_logged(
    labels: str, trained: tuple[Path, Heard, Any], tmp_path: Path
) -> None:
    best = str(trained[0] / "checkpoints" / "best.ckpt")
    heard = Heard()
    cli = run(labels, tmp_path, "--ckpt_path", best, subcommand="test", callbacks=[heard])
    _, counts = counts_in(tmp_path / "confusion.test.csv")
    assert np.trace(counts) / counts.sum() == pytest.approx(float(cli.trainer.callback_metrics["test/accuracy"]))
    assert counts.sum() == 9
    assert heard.reports[0][1] == "test"
    assert torch.equal(heard.reports[0][0].logits, trained[1].reports[0][0].logits)
    assert (tmp_path / "confusion.test.svg").is_file()
    assert (tmp_path / "features.png").read_bytes() != (trained[0] / "features.png").read_bytes()  # test points added


def test_the_same_run_draws_the_same_bytes(labels: str, trained: tuple[Path, Heard, Any], tmp_path: Path) -> None:
    run(labels, tmp_path, "--checkpoint.monitor", "val/loss", "--checkpoint.mode", "max")
    for name in REPORTS:
        assert (tmp_path / name).read_bytes() == (trained[0] / name).read_bytes()


@pytest.mark.parametrize("arguments", [("--trainer.callbacks", "[]"), ("--trainer.fast_dev_run", "true")])
def test_no_reports(labels: str, tmp_path: Path, arguments: tuple[str, str]) -> None:
    run(labels, tmp_path, *arguments)
    assert not any((tmp_path / name).exists() for name in REPORTS)


def events(folder: Path) -> list[Any]:
    """Values in TensorBoard's files: records of a length, its checksum, a message and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    values = []
    for file in folder.rglob("events.out.tfevents.*"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 16 + length
            values += event.summary.value
        assert at == len(data)
    return values


def test_tensorboard_takes_curves_and_figures(labels: str, tmp_path: Path) -> None:
    run(labels, tmp_path, "--trainer.logger", "TensorBoardLogger")
    values = events(tmp_path / "logs")
    assert {"val/regret", "train/loss"} <= {value.tag for value in values if value.HasField("simple_value")}
    images = {value.tag: value.image for value in values if value.HasField("image")}
    assert set(images) == {"confusion/val", "features"}
    assert all(image.encoded_image_string.startswith(b"\x89PNG") and image.width > 100 for image in images.values())


def test_several_loggers_write_below_output(labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "two.yaml").write_text(
        "trainer:\n  logger:\n"
        "    - {class_path: CSVLogger, init_args: {save_dir: '', name: csv}}\n"
        "    - {class_path: TensorBoardLogger, init_args: {save_dir: '', name: board}}\n"
    )
    run(labels, tmp_path / "out", "--config", str(tmp_path / "two.yaml"))
    assert (tmp_path / "out" / "csv" / "version_0" / "metrics.csv").is_file()
    assert events(tmp_path / "out" / "board")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_confusion_counts_count(pairs: list[tuple[int, int]]) -> None:
    best, predicted = np.array(pairs, np.intp).reshape(-1, 2).T
    counts = confusion_counts(best, predicted, 4)
    assert [[pairs.count((row, column)) for column in range(4)] for row in range(4)] == counts.tolist()


features_of_any_shape = arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=st.floats(0, 10, allow_subnormal=False)
)


@given(features_of_any_shape)
def test_the_plane_keeps_the_variance_of_the_two_greatest_axes(features: np.ndarray[Any, Any]) -> None:
    plane = principal_plane(features, np.arange(len(features)))
    assert plane.points.shape == (len(features), 2)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.atleast_2d(np.cov(features.T, bias=True))))[::-1]
    expected = np.pad(eigenvalues, (0, 2))[:2]
    assert plane.points.var(axis=0) == pytest.approx(expected, abs=1e-8)
    assert plane.points.mean(axis=0) == pytest.approx(np.zeros(2), abs=1e-8)
    if eigenvalues.sum() > 1e-6:
        assert plane.shares == pytest.approx(expected / eigenvalues.sum(), abs=1e-8)


def test_the_plane_by_hand() -> None:
    # Training rows spread by ±2 along (3, −4)/5 and by ±1 across it; axes point where their greatest entry is positive.
    along, across = np.array([3.0, -4.0]) / 5, np.array([4.0, 3.0]) / 5
    rows = np.add([2 * along, -2 * along, across, -across, 10 * across], [7.0, 5.0])
    plane = principal_plane(rows, np.arange(4))
    assert plane.points == pytest.approx(np.array([[-2, 0], [2, 0], [0, 1], [0, -1], [0, 10]]), abs=1e-12)
    assert plane.shares == pytest.approx([0.8, 0.2])


def test_a_plane_of_nothing() -> None:
    plane = principal_plane(np.ones((3, 4)), np.arange(0))
    assert (plane.points == 0).all()
    assert (plane.shares == 0).all()


def test_every_question_of_the_splits_is_drawn_once(labels: str) -> None:
    data = LabelDataModule(labels)
    data.best_labels.kept[data.splits["val"][:4]] = False
    plane = principal_plane(np.random.default_rng(0).random((len(data.table), 3)), data.splits["train"])
    splits = {name: data.splits[name] for name in ("train", "val")}
    figure = draw_features(plane, data, splits)
    (axes,) = figure.axes
    drawn = [np.asarray(collection.get_offsets()) for collection in axes.collections]
    assert [len(points) for points in drawn] == [0, 30, 4, 5]  # left out and kept, of train and of val
    expected = plane.points[np.concatenate(list(splits.values()))]
    assert sorted(map(tuple, np.concatenate(drawn))) == sorted(map(tuple, expected))
    entries = [text.get_text() for text in figure.legends[0].get_texts()]
    assert entries == ["alpha", "beta", "gamma", "not kept", "train", "val"]


def test_reports_by_the_first_process_only(labels: str, tmp_path: Path) -> None:
    second = SimpleNamespace(is_global_zero=False, fast_dev_run=False, default_root_dir=str(tmp_path))
    for callback in (ConfusionMatrix(), FeatureProjection()):
        callback.on_fit_end(second, None)  # type: ignore[arg-type]
        callback.on_test_end(second, None)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []

"""Training data of the configuration agent, from a label table."""

from __future__ import annotations

import glob
import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from corag_agent.batches import PairBatch, PairDataset, QuestionBatch, QuestionDataset
from corag_agent.encoder_inputs import encoder_inputs
from corag_agent.folds import split_by_folds
from corag_agent.pairs import PairSampler, Positions, balanced_weights, fixed_partners
from corag_agent.seen import Seen
from corag_search.agent_format import CHUNK_MEAN, EMBEDDING, SETTINGS
from corag_search.errors import InputError
from data_prep.grid import GridPoint
from data_prep.selection import ENOUGH, best_fixed, best_settings, choose_labels, soft_targets
from data_prep.table import SPLITS, LabelTable

logger = logging.getLogger(__name__)


class LabelDataModule(LightningDataModule):
    """Training pairs and evaluation batches from a label table.

    Training pairs are drawn from the kept questions of the train split (METHOD §6). Validation and test cover all
    questions of their split, kept or not. Everything lies in memory, on the device that trains.

    Attributes:
        table: The label table.
        best_labels: The best label of each question.
        input_names: What the encoder takes: "embedding", then what `extra_inputs` adds.
        inputs: It, for every question, `[n, input_dim]`.
        splits: Positions of the questions of train, val and test.
    """

    def __init__(
        self,
        labels: str,
        batch_size: int = 32,
        minimum_gain: float = 0.1,
        gain_mode: str = "relative",
        noise: str = "keep",
        train_on: str = "kept",
        limit: int | None = None,
        extra_inputs: Sequence[str] = (),
        standardise: bool = False,
        target_temperature: float | None = None,
        balance: bool = False,
        pairs_per_epoch: int | None = None,
        folds: int | None = None,
        fold: int = 0,
        split_by: str = "document",
        seed: int = 0,
    ) -> None:
        """Reads the table, so that the model can be built to fit it.

        Args:
            labels: Path of the label table, `NAME.parquet`.
            batch_size: Pairs in a training batch.
            minimum_gain: Lead of the best reranker over the runner-up that a question needs to be trained on.
            gain_mode: relative (a share of the runner-up's ROUGE-L, the paper's) or absolute (points of it).
            noise: keep, weight or drop, for questions whose repeated scores disagree about the best reranker; needs a
                table of several samples or references.
            train_on: kept (the paper's), or all questions of the train split, whatever the lead, but for those that
                `noise` drops. Where all rerankers reach the same, none is taught to be the best.
            limit: Train on the questions of at most so many of the train split, drawn by the seed, as a learning curve
                needs it; None for all.
            extra_inputs: What the encoder sees beside the query embedding: chunk_mean (the mean embedding of the
                retrieved chunks), names of retrieval statistics, or statistics for all of these.
            standardise: Whether every input is centred and scaled by the training questions; statistics always are.
            target_temperature: The classification aims at the softmax of each reranker's best ROUGE-L divided by this,
                in points of ROUGE-L; None for the best reranker alone (the paper's).
            balance: Whether each best reranker gives equally many anchors of pairs.
            pairs_per_epoch: Pairs drawn in an epoch; None for as many as questions to train on, rounded up to even.
            folds: Cross-validation: the questions are divided into so many folds, and the table's own splits are not
                used; None for those.
            fold: From 0: this fold is the test split, the next one validates, the others train.
            split_by: document or domain, which no fold divides.
            seed: Of the pairs and the folds.

        Raises:
            InputError: When the table or an argument is unusable.
        """
        super().__init__()
        for name, value, least in (
            ("batch_size", batch_size, 1),
            ("limit", limit, 1),
            ("pairs_per_epoch", pairs_per_epoch, 1),
            ("seed", seed, 0),
        ):
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value!r}")
        for option, given, default in (("fold", fold, 0), ("split_by", split_by, "document")):
            if folds is None and given != default:
                raise InputError(
                    f"{option} is {given!r}, but folds is not set; say into how many the questions are divided"
                )
        if train_on not in ("kept", "all"):
            raise InputError(f"train_on must be kept or all, got {train_on!r}")
        extra_inputs = list(extra_inputs)
        # The path stays out of checkpoints and loggers: it may name a home folder.
        self.save_hyperparameters(ignore=["labels"])
        self._name = Path(labels).name.removesuffix(".parquet")
        self.table = _read(labels, tuple(sorted(p.stat().st_mtime_ns for p in _files_of(labels))))
        self.best_labels = choose_labels(self.table, minimum_gain, gain_mode, noise)
        self.input_names, self.inputs = encoder_inputs(self.table, extra_inputs)
        self.splits = (
            {split: self.table.split(split) for split in SPLITS}
            if folds is None
            else split_by_folds(self.table, folds, fold, seed, split_by)
        )
        if folds is None:
            self._warn_of_divided()
        if limit is not None:
            drawn = np.random.default_rng(seed).permutation(self.splits["train"])[:limit]
            self.splits["train"] = np.sort(drawn)
        classes, distinct = torch.from_numpy(self.best_labels.reranker), torch.from_numpy(self.best_labels.distinct)
        one_hot = torch.nn.functional.one_hot(classes, len(self.rerankers)) * distinct[:, None].float()
        self._data = PairBatch(
            inputs=self.inputs,
            rerankers=classes,
            targets=one_hot
            if target_temperature is None
            else torch.from_numpy(soft_targets(self.table, target_temperature).astype(np.float32)),
            settings=torch.from_numpy(self._scaled_settings()),
            rouge=torch.from_numpy(self.table.rouge().astype(np.float32)),
            distinct=distinct,
        )

    @property
    def input_dim(self) -> int:
        """Width of what the encoder takes."""
        return self.inputs.shape[1]

    @property
    def rerankers(self) -> list[str]:
        """Names of the rerankers, in the order of the classes."""
        return self.table.rerankers

    @property
    def grid(self) -> dict[str, list[float]]:
        """The grid that was labelled, as `LabelGrid.to_dict` gives it."""
        return self.table.grid.to_dict()

    @property
    def embedder(self) -> dict[str, Any]:
        """Name, dimension and fingerprint of the embedder."""
        return self.table.embedder

    @property
    def label_fingerprint(self) -> dict[str, Any]:
        """What the labels depend on."""
        return self.table.fingerprint

    @property
    def trained_on(self) -> Positions:
        """Positions of the questions that training draws from, `[m]`."""
        train, labels = self.splits["train"], self.best_labels
        return train[(labels.sure if self.hparams["train_on"] == "all" else labels.kept)[train]]

    @property
    def taught(self) -> Positions:
        """Positions of those among them that have a best reranker, `[m]`."""
        return self.trained_on[self.best_labels.distinct[self.trained_on]]

    @property
    def input_scaling(self) -> tuple[Tensor, Tensor]:
        """What is subtracted from the inputs, and what they are multiplied by then, each `[input_dim]`."""
        train = self.inputs[torch.from_numpy(self.splits["train"])].double()
        shift = train.mean(dim=0)
        spread = train.std(dim=0, correction=0)
        scale = torch.where(spread > 1e-6, 1 / spread.clamp_min(1e-6), 1.0)
        if not self.hparams["standardise"]:
            vectors = sum(name in (EMBEDDING, CHUNK_MEAN) for name in self.input_names) * self.embedder["dimension"]
            shift[:vectors], scale[:vectors] = 0.0, 1.0
        return shift.float(), scale.float()

    @property
    def fixed(self) -> tuple[int, int, int, int]:
        """The configuration that is best for the train split as a whole: index into the last axes of `rouge`."""
        return best_fixed(self.table, self.splits["train"])

    @property
    def fallback(self) -> tuple[int, int, int, int]:
        """The one that is best for the train and validation splits together, likewise."""
        return best_fixed(self.table, self._not_held_out)

    @property
    def seen(self) -> Seen:
        """What an agent has seen after training on this."""
        return Seen.of_table(self.table, self._name, self._not_held_out, ("train", "val"))

    @property
    def _not_held_out(self) -> Positions:
        return np.concatenate([self.splits["train"], self.splits["val"]])

    @property
    def class_weights(self) -> Tensor:
        """Weights that make every best reranker count alike in the classification, `[rerankers]`; 1 on average."""
        classes = self.best_labels.reranker[self.taught]
        sizes = np.bincount(classes, minlength=len(self.rerankers))
        present = (sizes > 0).sum()
        return torch.from_numpy(np.where(sizes > 0, len(classes) / (present * np.maximum(sizes, 1)), 1.0)).float()

    def check(self, stage: str) -> None:
        """Refuses a table whose splits do not hold what the stage (fit, validate or test) needs.

        Raises:
            InputError: When a split is empty or too few questions are kept for training.
        """
        needed = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}.get(stage, ())
        for split in needed:
            if not len(self.splits[split]):
                raise InputError(f"the label table has no question in split {split!r}, which {stage} needs; add some")
        drawn, train = self.trained_on, len(self.splits["train"])
        if stage == "fit" and len(drawn) < 2:
            if self.hparams["train_on"] == "all":
                raise InputError(
                    f"{len(drawn)} of {train} training questions are left to train on, at least 2 are needed for a "
                    "pair; label more questions, raise data.limit or keep noisy ones (data.noise)"
                )
            raise InputError(
                f"{len(drawn)} of {train} training questions have a best reranker that leads by more than "
                f"{self.hparams['minimum_gain']:g} ({self.hparams['gain_mode']}), at least 2 are needed for a pair; "
                "label more questions or lower data.minimum_gain"
            )

    def setup(self, stage: str) -> None:
        """Checks as `check`, and warns of rerankers with few examples and where pairs of one kind only can be drawn.

        Raises:
            InputError: As `check`.
        """
        self.check(stage)
        if stage == "fit":
            self._warn_of_pairs()
            self._warn_of_rare_classes()

    def train_dataloader(self) -> DataLoader[PairBatch]:
        """Batches of pairs; which ones depends on (seed, epoch) only."""
        drawn, trainer = self.trained_on, self.trainer
        labels = self.best_labels
        # Questions without a best reranker are a class of their own, whose pairs teach none.
        classes = np.where(labels.distinct, labels.reranker, len(self.rerankers))[drawn]
        weights = labels.weight[drawn]
        sampler = PairSampler(
            classes,
            self.hparams["pairs_per_epoch"] or len(drawn) + len(drawn) % 2,
            self.hparams["batch_size"],
            self.hparams["seed"],
            trainer.world_size if trainer else 1,
            trainer.global_rank if trainer else 0,
            weights=weights * balanced_weights(classes) if self.hparams["balance"] else weights,
        )
        data = PairBatch(*(column[torch.from_numpy(drawn)].to(self._device) for column in self._data))
        return DataLoader(PairDataset(data), batch_size=None, sampler=sampler)

    def val_dataloader(self) -> DataLoader[QuestionBatch]:
        """All questions of the validation split."""
        return self._questions("val")

    def test_dataloader(self) -> DataLoader[QuestionBatch]:
        """All questions of the test split."""
        return self._questions("test")

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Nothing to do: the tensors that batches are cut from lie there."""
        return batch

    @property
    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else torch.device("cpu")

    def _questions(self, split: str) -> DataLoader[QuestionBatch]:
        at = self.splits[split]
        kept = self.best_labels.kept[at]
        partners = np.arange(len(at))
        if kept.sum() > 1:
            classes = self.best_labels.reranker[at[kept]]
            generator = np.random.default_rng(self.hparams["seed"])
            partners[kept] = np.flatnonzero(kept)[fixed_partners(classes, generator)]
        pairs = torch.from_numpy(np.stack([at, at[partners]], axis=1))
        whole = QuestionBatch(
            PairBatch(*(column[pairs].to(self._device) for column in self._data)),
            torch.from_numpy(kept).to(self._device),
            torch.from_numpy(self.table.tokens[at].astype(np.float32)).to(self._device),
        )
        trainer = self.trainer
        data = QuestionDataset(whole, *((trainer.world_size, trainer.global_rank) if trainer else ()))
        # Of Lightning's kind, so that it does not divide anew among devices what is divided.
        return DataLoader(data, batch_size=None, sampler=DistributedSampler(data, 1, 0, shuffle=False))

    def _scaled_settings(self) -> npt.NDArray[np.float32]:
        """Each reranker's own best settings, `[n, rerankers, 3]`."""
        settings = dict(zip(GridPoint._fields, np.moveaxis(best_settings(self.table), -1, 0), strict=True))
        columns = [self.table.grid.scaled(name, settings[name]) for name in SETTINGS]
        return np.stack(columns, axis=-1).astype(np.float32)

    @property
    def _drawn(self) -> str:
        return "training questions" if self.hparams["train_on"] == "all" else "kept training questions"

    def _warn_of_divided(self) -> None:
        table = self.table
        if table.groups is None:
            return
        splits = table.questions["split"].to_numpy()
        groups = {int(number): splits[table.groups == number] for number in np.unique(table.groups)}
        divided = {number: own for number, own in groups.items() if len(set(own)) > 1}
        if divided:
            first, own = next(iter(divided.items()))
            at = int(np.argmax(table.groups == first))
            logger.warning(
                "%d of %d groups of questions that share documents are divided between splits (%d of %d questions), "
                "the first is that of %r (%s), so what is measured on them was seen in training; `corag label --merge` "
                "of the table, alone or with others, gives each group one split",
                len(divided),
                len(groups),
                sum(map(len, divided.values())),
                len(table),
                table.questions["documents"][at][0],
                ", ".join(f"{split} {(own == split).sum()}" for split in self.splits if split in own),
            )

    def _warn_of_rare_classes(self) -> None:
        counts = np.bincount(self.best_labels.reranker[self.taught], minlength=len(self.rerankers))
        rare = [f"{name} ({count})" for name, count in zip(self.rerankers, counts, strict=True) if count < ENOUGH]
        if rare:
            logger.warning(
                "fewer than %d %s have the best reranker %s: little can be learned of when to choose it; label more "
                "questions%s",
                ENOUGH,
                self._drawn,
                ", ".join(rare),
                "" if self.hparams["train_on"] == "all" else ", or lower data.minimum_gain",
            )

    def _warn_of_pairs(self) -> None:
        taught = self.taught
        names, counts = np.unique(self.best_labels.reranker[taught], return_counts=True)
        if len(names) == 1:
            logger.warning(
                "all %d %s have the best reranker %r: every pair is positive, and the agent can learn the settings "
                "only",
                len(taught),
                self._drawn,
                self.rerankers[int(names[0])],
            )
        elif counts.size and counts.max() == 1:
            logger.warning("no two %s share a best reranker: every pair is negative", self._drawn)


def _files_of(path: str) -> list[Path]:
    return list(Path(path).parent.glob(f"{glob.escape(Path(path).stem)}*.parquet"))


@lru_cache(maxsize=1)
def _read(path: str, changed: tuple[int, ...]) -> LabelTable:
    """Read once for the many trainings on one table that a study or a cross-validation runs; until the file changes."""
    return LabelTable.read(path)

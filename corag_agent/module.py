"""Training of the configuration agent with Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn

from corag_agent.batches import PairBatch, QuestionBatch
from corag_agent.calibration import Calibration
from corag_agent.datamodule import LabelDataModule
from corag_agent.encoder import ConfigurationEncoder, EncoderOutput
from corag_agent.encoder_inputs import check_inputs
from corag_agent.losses import ConfigurationLoss, LossTerms, LossWeights
from corag_agent.metrics import METRICS, AgentOutcomes, agent_metrics, calibration_of
from corag_agent.seen import Seen
from corag_agent.starting import start_from
from corag_search.agent_format import EMBEDDING, PER_RERANKER, SETTINGS, SHARED
from corag_search.errors import InputError
from data_prep.grid import GridPoint, LabelGrid

# What the network must know of the data.
OF_DATA = ("input_dim", "input_names", "rerankers", "grid", "embedder", "label_fingerprint")
# What a checkpoint and a label table must agree on beside the names of the inputs: embedder and classes, look-up.
_BOUND = ("embedder", "rerankers", "grid")

_LOSSES = ("loss", *(f"loss_{name}" for name in LossTerms._fields[1:]))
# What a run of `fit` logs, and so what may be monitored.
FIT_METRICS = (*(f"train/{name}" for name in _LOSSES), *(f"val/{name}" for name in (*_LOSSES, *METRICS)))


class ConfigurationAgentModule(LightningModule):
    """The encoder with its losses and metrics.

    Logs `train/`, `val/` and `test/` followed by `loss` and `loss_contrastive`, `loss_classification`,
    `loss_regression`, `loss_regret` (on val and test over kept questions, NaN without any), and for val and test the
    metrics of `corag_agent.metrics.METRICS`:

    - over kept questions: `accuracy`, `macro_f1`, `error_iterations`, `error_cost_coefficient`, `error_exploration`
      (mean distance from the best settings, in their own units) and `calibration_error`;
    - over all questions: `rougeL` and `prompt_tokens` (reached by following the agent), `regret` (the oracle over all
      grid points less `rougeL`), `fixed_rougeL` (of the best fixed configuration: on val of the train split, on test of
      the train and validation splits together),
      `regret_closed` and `regret_closed_rerankers` (share of the gap between fixed and oracle that is closed, for the
      oracle over all grid points and the one over rerankers at default settings; NaN without a gap),
      `fallback_rougeL`, `fallback_regret` and `fallback_share` (with that one as the fallback; on val its threshold was
      chosen there).

    Attributes:
        encoder: The network that is exported.
        calibration: Chosen on the validation split at the end of each epoch.
        fixed: The best fixed configuration of the train split: index of reranker, exploration, cost coefficient and
            iterations, `[4]`. Validation compares with it, since its own questions have had no part in it.
        fallback: That of the train and validation splits together, `[4]`; what is exported.
        seen: What it was trained on, and whatever it was started from; None where that is not known.
        started_from: Hyperparameters of the checkpoint of `init_from`, as that has them; empty without.
    """

    fixed: Tensor
    fallback: Tensor
    class_weights: Tensor

    def __init__(
        self,
        input_dim: int,
        rerankers: list[str],
        grid: dict[str, list[float]],
        embedder: dict[str, Any],
        label_fingerprint: dict[str, Any] | None = None,
        input_names: Sequence[str] = (EMBEDDING,),
        hidden: Sequence[int] = (512, 256, 128),
        dropout: float = 0.0,
        settings_heads: str = SHARED,
        margin: float = 1.0,
        contrast: str = "drawn",
        weight_contrastive: float = 1.0,
        weight_classification: float = 1.0,
        weight_regression: float = 1.0,
        weight_regret: float = 0.0,
        balance_classes: bool = False,
        init_from: str | None = None,
        optimizer: OptimizerCallable = lambda parameters: torch.optim.Adam(parameters, lr=0.001, fused=True),
        scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Builds the network.

        Args:
            input_dim: Width of what the encoder takes (from the data).
            rerankers: Names, in the order of the classes (from the data).
            grid: What was labelled, as `LabelGrid.to_dict` gives it; its ranges scale the settings (from the data).
            embedder: Name, dimension and fingerprint of the embedder (from the data).
            label_fingerprint: What the labels depend on (from the data).
            input_names: What the encoder takes (from the data).
            hidden: Widths of the fully connected layers.
            dropout: Share of each layer's outputs that is dropped in training.
            settings_heads: shared (the paper's), or per_reranker: each reranker's settings have a head of their own.
            margin: Distance up to which queries with different best rerankers are pushed apart.
            contrast: drawn (the paper's: the pairs that were sampled), or all pairs of questions in a batch.
            weight_contrastive: Factor of the contrastive loss in the sum.
            weight_classification: Factor of the cross-entropy.
            weight_regression: Factor of the settings' squared error.
            weight_regret: Factor of the expected ROUGE-L that is lost to the oracle.
            balance_classes: Whether every best reranker counts alike in the cross-entropy.
            init_from: A .ckpt file of an agent for the same embedder and inputs to start from; layers of the same
                width and the rows of rerankers of the same name are taken over, the others start anew.
            optimizer: Makes the optimizer from the parameters; the paper's is Adam with rate 0.001.
            scheduler: Makes the learning rate's scheduler from the optimizer, stepped after each epoch; None for none.

        Raises:
            InputError: When an argument is unusable.
        """
        super().__init__()
        weights = LossWeights(weight_contrastive, weight_classification, weight_regression, weight_regret)
        for name, value in {"margin": margin, **{f"weight_{k}": v for k, v in weights._asdict().items()}}.items():
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be a finite number, at least 0, got {value!r}")
        if contrast not in ("drawn", "all"):
            raise InputError(f"contrast must be drawn or all, got {contrast!r}")
        hidden, input_names = list(hidden), list(input_names)
        # Plain values only: a checkpoint is loaded without running code. The path may name a home folder.
        self.save_hyperparameters(ignore=["optimizer", "scheduler", "init_from"])
        labelled = LabelGrid.from_dict(grid)
        self.ranges = labelled.ranges
        self.encoder = ConfigurationEncoder(input_dim, len(rerankers), hidden, dropout, settings_heads)
        self.seen: Seen | None = Seen()
        self.started_from = {} if init_from is None else start_from(init_from, self)
        for name in ("fixed", "fallback"):
            self.register_buffer(name, torch.tensor([0, *labelled.index(labelled.defaults)]))
        self.register_buffer("class_weights", torch.ones(len(rerankers)))
        self.calibration = Calibration()
        self._val_metrics: dict[str, float] = {}
        self._seed = torch.initial_seed()
        self._loss = ConfigurationLoss(
            _scaled_axes(labelled), weights, margin, contrast == "all", settings_heads == PER_RERANKER
        )
        self._optimizer, self._scheduler = optimizer, scheduler
        # By stage, over the epoch's pairs: the sum of each loss, and their number, `[losses + 1]`.
        self._sums: dict[str, Tensor] = {}
        self._metrics = nn.ModuleDict({stage: AgentOutcomes(grid) for stage in ("val", "test")})

    @classmethod
    def for_data(cls, data: LabelDataModule, **options: Any) -> ConfigurationAgentModule:
        """A network that fits a data module; options as of the constructor."""
        return cls(**{name: getattr(data, name) for name in OF_DATA}, **options)

    @property
    def fallback_configuration(self) -> dict[str, Any]:
        """The fallback by name: reranker, exploration and so on."""
        reranker, *point = self.fallback.tolist()
        grid = LabelGrid.from_dict(self.hparams["grid"])
        settings = {name: getattr(grid, name)[at] for name, at in zip(GridPoint._fields, point, strict=True)}
        return {"reranker": self.hparams["rerankers"][reranker], **settings}

    def forward(self, inputs: Tensor) -> EncoderOutput:
        """Encodes queries `[..., input_dim]`."""
        return self.encoder(inputs)

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """The loss of a batch of pairs."""
        return self._shared_step(batch, self(batch.inputs), "train").total

    def validation_step(self, batch: QuestionBatch, batch_idx: int) -> None:
        """Losses and outcomes of a batch of the validation split."""
        self._evaluate(batch, "val")

    def test_step(self, batch: QuestionBatch, batch_idx: int) -> None:
        """Losses and outcomes of a batch of the test split."""
        self._evaluate(batch, "test")

    def setup(self, stage: str) -> None:
        """Forgets what an interrupted run has left, and takes from the data what training needs; nothing of test."""
        self._sums.clear()
        data = getattr(self.trainer, "datamodule", None)
        if stage == "fit" and data is not None:
            shift, scale = data.input_scaling
            self.encoder.input_shift.copy_(shift)
            self.encoder.input_scale.copy_(scale)
            self.fixed.copy_(torch.tensor(data.fixed))
            self.fallback.copy_(torch.tensor(data.fallback))
            self.seen = self.seen and self.seen.joined(data.seen)
            if self.hparams["balance_classes"]:
                self.class_weights.copy_(data.class_weights)
        elif stage == "fit":
            self.seen = None

    def on_train_batch_start(self, batch: PairBatch, batch_idx: int) -> None:
        """Lets what is dropped depend on (seed, step, device, batch of the step): a resumed run drops the same."""
        if self.hparams["dropout"]:
            place = batch_idx % self.trainer.accumulate_grad_batches
            generator = np.random.default_rng([self._seed, self.global_step, self.global_rank, place])
            torch.manual_seed(int(generator.integers(2**63)))

    def on_train_epoch_end(self) -> None:
        """Logs the epoch's losses."""
        self._log_losses("train")

    def on_validation_epoch_end(self) -> None:
        """Calibrates, and logs the losses and metrics of the validation split.

        Raises:
            InputError: When training has diverged.
        """
        self._log_losses("val")
        self._log_metrics("val")

    def on_test_epoch_end(self) -> None:
        """Logs the losses and metrics of the test split."""
        self._log_losses("test")
        self._log_metrics("test")

    def configure_optimizers(self) -> Any:
        """What the configuration injected."""
        optimizer = self._optimizer(self.parameters())
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        monitor = getattr(scheduler, "monitor", None)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": monitor}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the calibration, the metrics that it was chosen with, the seed of what is dropped, and what was seen."""
        checkpoint["calibration"] = self.calibration._asdict()
        checkpoint["val_metrics"] = self._val_metrics
        checkpoint["seed"] = self._seed
        checkpoint["seen"] = self.seen and self.seen.to_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes over what `on_save_checkpoint` added; refuses what was trained on labels of another kind.

        Raises:
            InputError: When rerankers, grid, embedder or inputs differ.
        """
        trained = checkpoint.get("hyper_parameters", {})
        if "input_names" in trained:
            check_inputs(trained["input_names"], self.hparams["input_names"])
        for name in _BOUND:
            if name in trained and trained[name] != self.hparams[name]:
                raise InputError(
                    f"the checkpoint was trained with {name} {trained[name]!r}, the label table has "
                    f"{self.hparams[name]!r}; use the table it was trained on, or train anew"
                )
        self.calibration = Calibration(**checkpoint.get("calibration", {}))
        self._val_metrics = dict(checkpoint.get("val_metrics", {}))
        self._seed = checkpoint.get("seed", self._seed)
        seen = checkpoint.get("seen")  # None in checkpoints from before it was recorded
        self.seen = self.seen and seen and self.seen.joined(Seen.of(**seen))

    def _shared_step(self, pairs: PairBatch, output: EncoderOutput, stage: str) -> LossTerms:
        losses = self._loss(output, pairs, self.class_weights if self.hparams["balance_classes"] else None)
        count = len(pairs.rerankers)
        added = count * torch.stack([*losses, losses.total.new_ones(())]).detach()
        self._sums[stage] = self._sums[stage] + added if stage in self._sums else added
        return losses

    def _evaluate(self, batch: QuestionBatch, stage: str) -> None:
        output = self(batch.pairs.inputs)
        kept = batch.kept
        self._shared_step(
            PairBatch(*(part[kept] for part in batch.pairs)), EncoderOutput(*(part[kept] for part in output)), stage
        )
        own = EncoderOutput(*(part[:, 0] for part in output))
        fixed = self.fixed if stage == "val" else self.fallback
        self._metrics[stage].update(own, batch, fixed)  # type: ignore[operator]

    def _log_losses(self, stage: str) -> None:
        """Once an epoch: logging a batch takes as long as training on it."""
        sums = self.trainer.strategy.reduce(self._sums.pop(stage), reduce_op="sum")  # over devices
        means = sums[:-1] / sums[-1]
        self.log_dict({f"{stage}/{name}": mean for name, mean in zip(_LOSSES, means, strict=True)}, sync_dist=True)

    def _log_metrics(self, stage: str) -> None:
        metric: AgentOutcomes = self._metrics[stage]  # type: ignore[assignment]
        outcomes = metric.gathered()  # of all devices
        metric.reset()
        if not (outcomes.logits.isfinite().all() and outcomes.errors.isfinite().all()):
            raise InputError(
                f"the network's output for the {stage} split is NaN or infinite, so its training has diverged; train "
                "with a lower rate (model.optimizer.init_args.lr)"
            )
        if stage == "val":
            self.calibration = calibration_of(outcomes)
        values = {f"{stage}/{name}": value for name, value in agent_metrics(outcomes, self.calibration).items()}
        if stage == "val":
            self._val_metrics = {name: value for name, value in values.items() if isfinite(value)}
        self.log_dict(values)


def _scaled_axes(grid: LabelGrid) -> list[Tensor]:
    """The grid's values in the order of `SETTINGS`, each scaled to [0, 1] by its range."""
    return [torch.from_numpy(grid.scaled(name, getattr(grid, name))).float() for name in SETTINGS]

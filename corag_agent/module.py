"""Training of the configuration agent with Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from corag_agent.datamodule import PairBatch, QuestionBatch
from corag_agent.encoder import ConfigurationEncoder, EncoderOutput
from corag_agent.losses import LossTerms, LossWeights, configuration_loss
from corag_agent.metrics import FollowedScore, Regret
from corag_search.errors import InputError
from data_prep.grid import LabelGrid

# What a checkpoint and a label table must agree on: classes, look-up and input.
_BOUND = ("input_dim", "rerankers", "grid", "embedder")
_NOT_KEPT = -1

_LOSSES = ("loss", "loss_contrastive", "loss_classification", "loss_regression")
_METRICS = ("accuracy", "rougeL", "regret", "prompt_tokens")
# What a run of `fit` logs, and so what may be monitored.
FIT_METRICS = (*(f"train/{name}" for name in _LOSSES), *(f"val/{name}" for name in (*_LOSSES, *_METRICS)))


class ConfigurationAgentModule(LightningModule):
    """The encoder with its losses and metrics (METHOD §5).

    Logs `train/`, `val/` and `test/` followed by `loss`, `loss_contrastive`, `loss_classification`, `loss_regression`
    (over kept questions, NaN without any). For val and test also `accuracy` (over kept questions), `rougeL` and
    `prompt_tokens` (reached by following the agent, over all questions) and `regret` (the oracle over all grid points
    less `rougeL`).

    Attributes:
        encoder: The network that is exported.
    """

    def __init__(
        self,
        input_dim: int,
        rerankers: list[str],
        grid: dict[str, list[float]],
        embedder: dict[str, Any],
        label_fingerprint: dict[str, Any] | None = None,
        hidden: Sequence[int] = (512, 256, 128),
        margin: float = 1.0,
        weight_contrastive: float = 1.0,
        weight_classification: float = 1.0,
        weight_regression: float = 1.0,
        optimizer: OptimizerCallable = lambda parameters: torch.optim.Adam(parameters, lr=0.001),
        scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        """Builds the network.

        Args:
            input_dim: Width of the query embeddings (from the data).
            rerankers: Names, in the order of the classes (from the data).
            grid: What was labelled, as `LabelGrid.to_dict` gives it; its ranges scale the settings (from the data).
            embedder: Name, dimension and fingerprint of the embedder (from the data).
            label_fingerprint: What the labels depend on (from the data).
            hidden: Widths of the fully connected layers.
            margin: Distance up to which queries with different best rerankers are pushed apart.
            weight_contrastive: Factor of the contrastive loss in the sum.
            weight_classification: Factor of the cross-entropy.
            weight_regression: Factor of the settings' squared error.
            optimizer: Makes the optimizer from the parameters; the paper's is Adam with rate 0.001.
            scheduler: Makes the learning rate's scheduler from the optimizer, stepped after each epoch; None for none.

        Raises:
            InputError: When an argument is unusable.
        """
        super().__init__()
        weights = LossWeights(weight_contrastive, weight_classification, weight_regression)
        for name, value in {"margin": margin, **{f"weight_{k}": v for k, v in weights._asdict().items()}}.items():
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be a finite number, at least 0, got {value!r}")
        hidden = list(hidden)
        # Plain values only: a checkpoint is loaded without running code.
        self.save_hyperparameters(ignore=["optimizer", "scheduler"])
        self.ranges = LabelGrid.from_dict(grid).ranges
        self.encoder = ConfigurationEncoder(input_dim, len(rerankers), hidden)
        self._margin, self._weights = margin, weights
        self._optimizer, self._scheduler = optimizer, scheduler
        # By stage, over the epoch's pairs: the sum of each loss, and their number, `[losses + 1]`.
        self._sums: dict[str, Tensor] = {}
        self.metrics = nn.ModuleDict({stage: _metrics(len(rerankers), grid) for stage in ("val", "test")})

    def forward(self, embeddings: Tensor) -> EncoderOutput:
        """Encodes query embeddings `[..., d]`."""
        return self.encoder(embeddings)

    def training_step(self, batch: PairBatch, batch_idx: int) -> Tensor:
        """The loss of a batch of pairs."""
        return self._shared_step(batch, self(batch.embeddings), "train").total

    def validation_step(self, batch: QuestionBatch, batch_idx: int) -> None:
        """Losses and metrics of a batch of the validation split."""
        self._evaluate(batch, "val")

    def test_step(self, batch: QuestionBatch, batch_idx: int) -> None:
        """Losses and metrics of a batch of the test split."""
        self._evaluate(batch, "test")

    def setup(self, stage: str) -> None:
        """Forgets what an interrupted run has left."""
        self._sums.clear()

    def on_train_epoch_end(self) -> None:
        """Logs the epoch's losses."""
        self._log_epoch("train")

    def on_validation_epoch_end(self) -> None:
        """Logs the losses and metrics of the validation split."""
        self._log_epoch("val")

    def on_test_epoch_end(self) -> None:
        """Logs the losses and metrics of the test split."""
        self._log_epoch("test")

    def configure_optimizers(self) -> Any:
        """What the configuration injected."""
        optimizer = self._optimizer(self.parameters())
        if self._scheduler is None:
            return optimizer
        scheduler = self._scheduler(optimizer)
        monitor = getattr(scheduler, "monitor", None)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": monitor}}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuses a checkpoint that was trained on labels of another kind.

        Raises:
            InputError: When rerankers, grid, embedder or its width differ.
        """
        trained = checkpoint.get("hyper_parameters", {})
        for name in _BOUND:
            if name in trained and trained[name] != self.hparams[name]:
                raise InputError(
                    f"the checkpoint was trained with {name} {trained[name]!r}, the label table has "
                    f"{self.hparams[name]!r}; use the table it was trained on, or train anew"
                )

    def _shared_step(self, pairs: PairBatch, output: EncoderOutput, stage: str) -> LossTerms:
        losses = configuration_loss(*output, pairs.rerankers, pairs.settings, self._margin, self._weights)
        count = len(pairs.rerankers)
        added = count * torch.stack([*losses, losses.total.new_ones(())]).detach()
        self._sums[stage] = self._sums[stage] + added if stage in self._sums else added
        return losses

    def _log_epoch(self, stage: str) -> None:
        """Once an epoch: logging a batch takes as long as training on it."""
        sums = self.trainer.strategy.reduce(self._sums.pop(stage), reduce_op="sum")  # over devices
        means = sums[:-1] / sums[-1]
        self.log_dict({f"{stage}/{name}": mean for name, mean in zip(_LOSSES, means, strict=True)}, sync_dist=True)
        if stage in self.metrics:
            self.log_dict({f"{stage}/{name}": metric for name, metric in self.metrics[stage].items()})  # type: ignore[operator]

    def _evaluate(self, batch: QuestionBatch, stage: str) -> None:
        output = self(batch.pairs.embeddings)
        kept = batch.kept
        self._shared_step(
            PairBatch(*(part[kept] for part in batch.pairs)), EncoderOutput(*(part[kept] for part in output)), stage
        )
        metrics: dict[str, Metric] = self.metrics[stage]  # type: ignore[assignment]
        predicted = output.logits[:, 0].argmax(dim=-1)
        metrics["accuracy"].update(predicted, batch.pairs.rerankers[:, 0].masked_fill(~kept, _NOT_KEPT))
        for name, outcomes in (("rougeL", batch.rouge), ("regret", batch.rouge), ("prompt_tokens", batch.tokens)):
            metrics[name].update(predicted, output.settings[:, 0], outcomes)


def _metrics(rerankers: int, grid: dict[str, list[float]]) -> nn.ModuleDict:
    return nn.ModuleDict(
        {
            "accuracy": MulticlassAccuracy(max(rerankers, 2), average="micro", ignore_index=_NOT_KEPT),
            "rougeL": FollowedScore(grid),
            "regret": Regret(grid),
            "prompt_tokens": FollowedScore(grid),
        }
    )

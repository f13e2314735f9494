"""What following the agent reaches, looked up in the label table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score

from corag_agent.batches import QuestionBatch
from corag_agent.calibration import Calibration, calibrate, calibration_error, confidences
from corag_agent.encoder import EncoderOutput
from corag_search.agent_format import SETTINGS
from data_prep.grid import GridPoint, LabelGrid

METRICS = (
    *("accuracy", "macro_f1", *(f"error_{name}" for name in SETTINGS), "calibration_error"),  # over kept questions
    "rougeL",
    "regret",
    "regret_closed",
    "regret_closed_rerankers",
    "prompt_tokens",
    "fixed_rougeL",
    "fallback_rougeL",
    "fallback_regret",
    "fallback_share",
)


class Outcomes(NamedTuple):
    """What an evaluation saw of each question.

    Attributes:
        logits: `[n, rerankers]`.
        rerankers: Index of the best reranker, `[n]`.
        kept: Whether the question's label is clear, bool `[n]`.
        errors: Distance of the predicted settings from the best ones, in their own units, `[n, 3]`, as `SETTINGS`.
        followed: ROUGE-L reached by following the agent, its settings snapped to the grid, `[n]`.
        tokens: Prompt tokens of it, `[n]`.
        fixed: ROUGE-L of the best fixed configuration, `[n]`.
        oracle: The greatest ROUGE-L over all grid points, `[n]`.
        oracle_rerankers: The greatest over the rerankers at the default settings, `[n]`.
    """

    logits: Tensor
    rerankers: Tensor
    kept: Tensor
    errors: Tensor
    followed: Tensor
    tokens: Tensor
    fixed: Tensor
    oracle: Tensor
    oracle_rerankers: Tensor


class AgentOutcomes(Metric):
    """Gathers `Outcomes` over batches and devices."""

    full_state_update = False

    def __init__(self, grid: Mapping[str, Sequence[float]]) -> None:
        """Prepares the look-up.

        Args:
            grid: The table's grid, as `LabelGrid.to_dict` gives it.
        """
        super().__init__()
        for name in Outcomes._fields:
            self.add_state(name, [], dist_reduce_fx="cat")
        self._grid = LabelGrid.from_dict(grid)

    def update(self, output: EncoderOutput, batch: QuestionBatch, fixed: Tensor) -> None:
        """Adds a batch.

        Args:
            output: Of the encoder for the questions themselves: logits `[batch, rerankers]` and so on.
            batch: The questions.
            fixed: Index of the best fixed configuration into the last four axes of `rouge`, `[4]`.
        """
        rouge, best = batch.pairs.rouge[:, 0], batch.pairs.rerankers[:, 0]
        rows = torch.arange(len(rouge), device=rouge.device)
        predicted = output.logits.argmax(dim=-1)
        at = self.follow(predicted, output.settings[rows, predicted])
        wanted = self._unscaled(batch.pairs.settings[:, 0][rows, best])
        chosen = self._unscaled(output.settings[rows, best])
        exploration, cost_coefficient, iterations = self._grid.index(self._grid.defaults)
        at_defaults = rouge[:, :, exploration, cost_coefficient, iterations]
        added = Outcomes(
            logits=output.logits,
            rerankers=best,
            kept=batch.kept,
            errors=(chosen - wanted).abs(),
            followed=rouge[rows, *at],
            tokens=batch.tokens[rows, *at],
            fixed=rouge[rows, *fixed.tolist()],
            oracle=rouge.flatten(1).amax(dim=1),
            oracle_rerankers=at_defaults.amax(dim=1),
        )
        for name, values in added._asdict().items():
            getattr(self, name).append(values.detach())

    def compute(self) -> Outcomes:
        """Everything that was added, in the order of the devices."""
        states = (getattr(self, name) for name in Outcomes._fields)
        return Outcomes(*(torch.cat(state) if isinstance(state, list) else state for state in states))

    def gathered(self) -> Outcomes:
        """`compute`, with the dimensions that torchmetrics drops where there is a single question."""
        outcomes = self.compute()
        if outcomes.kept.ndim:
            return outcomes
        return Outcomes(
            *(
                values.reshape(1, -1) if name in ("logits", "errors") else values.reshape(1)
                for name, values in outcomes._asdict().items()
            )
        )

    def follow(self, rerankers: Tensor, settings: Tensor) -> tuple[Tensor, ...]:
        """Index of the predicted configurations into the last four axes of a table's outcomes, four of `[batch]`.

        Args:
            rerankers: Predicted reranker, `[batch]`.
            settings: Predicted settings of it, scaled, in the order of `SETTINGS`, `[batch, 3]`; clamped here.
        """
        values = self._unscaled(settings)
        positions = {}
        for value, name in zip(values.T, SETTINGS, strict=True):
            nearest = self._grid.nearest(name, (value.round() if name == "iterations" else value).cpu().numpy())
            positions[name] = torch.from_numpy(nearest).to(rerankers.device)
        return rerankers, *(positions[name] for name in GridPoint._fields)

    def _unscaled(self, settings: Tensor) -> Tensor:
        # As `ConfigurationAgent.predict` has it, to the last bit: what inference would do is what is measured.
        low, high = torch.tensor([self._grid.ranges[name] for name in SETTINGS], dtype=torch.float64).T
        return low + settings.detach().cpu().double().clamp(0.0, 1.0) * (high - low)


def agent_metrics(outcomes: Outcomes, calibration: Calibration) -> dict[str, float]:
    """All of `METRICS`; NaN where there is nothing to average over, or no gap to be closed.

    Args:
        outcomes: Of a split.
        calibration: Decides who falls back.
    """
    kept = outcomes.kept
    logits, best = outcomes.logits[kept].float(), outcomes.rerankers[kept]
    predicted = logits.argmax(dim=-1)
    classes = max(logits.shape[-1], 2)  # torchmetrics knows no single class
    some = bool(kept.any())
    sure = torch.from_numpy(confidences(outcomes.logits.double().cpu().numpy(), calibration.temperature))
    errors = outcomes.errors[kept].mean(dim=0)
    falls = (sure < calibration.threshold).to(outcomes.fixed.device)
    with_fallback = torch.where(falls, outcomes.fixed, outcomes.followed)
    gain = (outcomes.followed - outcomes.fixed).sum()
    values = {
        "accuracy": multiclass_accuracy(predicted, best, classes, average="micro") if some else nan,
        "macro_f1": multiclass_f1_score(predicted, best, classes, average="macro") if some else nan,
        **{f"error_{name}": error for name, error in zip(SETTINGS, errors, strict=True)},
        "calibration_error": calibration_error(sure[kept.cpu()].numpy(), (predicted == best).cpu().numpy()),
        "rougeL": outcomes.followed.mean(),
        "regret": (outcomes.oracle - outcomes.followed).mean(),
        "regret_closed": _share(gain, (outcomes.oracle - outcomes.fixed).sum()),
        "regret_closed_rerankers": _share(gain, (outcomes.oracle_rerankers - outcomes.fixed).sum()),
        "prompt_tokens": outcomes.tokens.mean(),
        "fixed_rougeL": outcomes.fixed.mean(),
        "fallback_rougeL": with_fallback.mean(),
        "fallback_regret": (outcomes.oracle - with_fallback).mean(),
        "fallback_share": falls.float().mean(),
    }
    return {name: float(value) for name, value in values.items()}


def _share(gain: Tensor, gap: Tensor) -> Tensor | float:
    # The best fixed configuration can lie above the oracle at the default settings: nothing is a share of that.
    return gain / gap if gap > 0 else nan


def calibration_of(outcomes: Outcomes) -> Calibration:
    """The calibration that a split's outcomes give."""
    columns = (outcomes.logits.double(), outcomes.rerankers, outcomes.kept, outcomes.followed, outcomes.fixed)
    return calibrate(*(column.cpu().numpy() for column in columns))

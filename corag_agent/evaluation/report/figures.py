"""How the claims came out: each on every data set, in the setting that has both of its sides for the most questions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.intervals import RESAMPLES, paired_ratio
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.claims import CLAIMS, TIMES, Claim
from corag_agent.evaluation.report.main_setting import Settings, chosen_reranker
from corag_agent.evaluation.report.store_sizes import larger_stores, store_size
from corag_agent.evaluation.report.wording import TREE, counted, interval_text, milliseconds, number

# Percentile intervals of fewer are too narrow: meant to hold the true difference for 95 of 100 samples, those between
# best rerankers held it for 77 with 5 questions, 84 with 10 and 89 with 30 (docs/evaluation.md).
ENOUGH_QUESTIONS = 30


@dataclass(frozen=True, slots=True)
class Figure:
    """A claim as it came out on one data set.

    Attributes:
        claim: What is compared.
        dataset: On which questions.
        method: Whose figure it is.
        reranker: The tree search's, with which the agent is compared; "" else.
        ratio: Mean of the method / mean of the baseline.
        low: Lower end of the ratio's 95 % interval.
        high: Upper end.
        own: The method's mean.
        other: The baseline's mean.
        questions: How many both answered.
        on_distribution: Whether no agent was used off what its labels were made with.
        run: Where it was measured.
        chunks: Size of the store, of a claim that is about one of a certain size; None else, or where it is not known.
    """

    claim: Claim
    dataset: str
    method: str
    reranker: str
    ratio: float
    low: float
    high: float
    own: float
    other: float
    questions: int
    on_distribution: bool
    run: str
    chunks: int | None = None

    @property
    def few(self) -> bool:
        """Whether there are too few questions to tell anything from the interval."""
        return self.questions < ENOUGH_QUESTIONS

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference excludes zero, on questions enough."""
        return not self.few and (self.low > 1 or self.high < 1)

    @property
    def verdict(self) -> str:
        """Whether the target is met, by the whole interval or on average only, if enough questions tell."""
        if self.few:
            return "too few questions"
        sign = 1 if self.claim.rising else -1
        low, mean, high = (sign * (value - self.claim.threshold) for value in (self.low, self.ratio, self.high))
        # A difference of zero meets no target that is a difference.
        if min(low, high) > 0 or (min(low, high) == 0 and self.claim.threshold != 1):
            return "✓ met"
        if max(low, high) < 0:
            return "✗ missed"
        return "(✓) met on average" if mean > 0 else "(✗) missed on average"

    @property
    def shown(self) -> str:
        """The ratio, as the claim shows it."""
        return self.claim.shown(self.ratio)

    @property
    def interval(self) -> str:
        """Both ends, as the claim shows them."""
        return interval_text(self.low, self.high, self.claim.shown)

    @property
    def measured_on(self) -> str:
        """How many questions it stands on, in which run, and the size of the store where that matters."""
        asked = f"{counted(self.questions, 'question')} ({self.run})"
        return asked if self.chunks is None else f"{asked}, {counted(self.chunks, 'chunk')}"

    def sentence(self) -> str:
        """What the figure says, and whether chance could have made it."""
        form = milliseconds if self.claim.metric in TIMES else number
        counts = 0 if self.claim.metric == "prompt_tokens" else 3
        own, other = (number(value, counts) if form is number else form(value) for value in (self.own, self.other))
        value = self.shown
        if not self.claim.share:
            value = value.lstrip("+−")
        fixed = "its best reranker" if self.reranker == BEST else self.reranker
        rival = f"{self.claim.rival} {fixed}".strip()
        more = "above" if self.ratio >= 1 else "below"
        if self.claim.metric == "seconds":
            more = "more" if self.ratio >= 1 else "less"
        told = self.claim.sentence.format(own=own, other=other, value=value, more=more, rival=rival)
        zero = "100 %" if self.claim.share else "zero"
        if math.isnan(self.low):
            told += " One question gives no interval."
        elif self.few:
            told += f" {self.questions} questions are too few to tell; {ENOUGH_QUESTIONS} are the least."
        elif self.differs:
            told += f" The interval excludes {zero}."
        else:
            told += f" The interval includes {zero}: these questions do not tell the two apart."
        return told


def figures_of(run: EvaluationRun, resamples: int = RESAMPLES) -> list[Figure]:
    """Every claim on every data set, for the methods whose claim it is, where they were compared.

    A claim is looked at in the setting that has both of its sides for the most questions, one on times in such a one in
    which they were measured; one on a store of a certain size in the one nearest to that, of a data set and those that
    are it with larger stores. These have no figures of their own.
    """
    larger = larger_stores(run)
    figures: list[Figure] = []
    for dataset in sorted(set(run.succeeded["dataset"]).difference(*larger.values())):
        plain, timed = Settings(run, dataset), Settings(run, dataset, measured=True)
        grown = [Settings(run, name, measured=True) for name in sorted(larger.get(dataset, ()))]
        for claim in CLAIMS:
            for method in claim.methods:
                stores = [timed, *grown] if claim.chunks else [timed if claim.metric in TIMES else plain]
                rows = _setting(run, claim, method, stores)
                if rows is not None:
                    figures += _figures(run, claim, dataset, method, rows, resamples)
    return figures


def _setting(run: EvaluationRun, claim: Claim, method: str, stores: list[Settings]) -> pd.DataFrame | None:
    """Records of the setting in which a claim is looked at; None where no store has one with both sides."""
    found = [rows for settings in stores if (rows := settings.first_with(method, claim.baseline)) is not None]
    if claim.chunks is None or len(found) < 2:
        return found[0] if found else None
    wanted = claim.chunks
    return min(found, key=lambda rows: abs((_chunks(run, rows) or 0) - wanted))


def _chunks(run: EvaluationRun, rows: pd.DataFrame) -> int | None:
    return store_size(run, rows["dataset"].iloc[0], int(rows["chunk_size"].iloc[0]))


def _figures(
    run: EvaluationRun, claim: Claim, dataset: str, method: str, rows: pd.DataFrame, resamples: int
) -> Iterator[Figure]:
    """A claim against the baseline's best reranker; against the tree search with each that it has."""
    each = sorted(rows.loc[rows["method"] == TREE, "reranker"].unique())
    for reranker in each if claim.baseline == TREE else [chosen_reranker(rows, claim.baseline)]:
        both = _both(claim, method, reranker, rows)
        a, b = both[claim.metric].to_numpy(float), both[f"{claim.metric}_other"].to_numpy(float)
        if not len(both) or not b.mean() > 0:
            continue
        gain = paired_ratio(a, b, resamples=resamples, groups=list(both["question_id"]))
        yield Figure(
            claim=claim,
            dataset=dataset,
            method=method,
            reranker=reranker if claim.baseline == TREE else "",
            ratio=1 + gain.mean,
            low=1 + gain.low,
            high=1 + gain.high,
            own=float(a.mean()),
            other=float(b.mean()),
            questions=both["question_id"].nunique(),
            on_distribution=bool(both["on_distribution"].all()),
            run=str(rows["run"].iloc[0]),
            chunks=_chunks(run, rows) if claim.chunks else None,
        )


def _both(claim: Claim, method: str, reranker: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Records of the method and of the baseline, whose columns end in `_other`, side by side where both answered."""
    own, other = rows[rows["method"] == method], rows[rows["method"] == claim.baseline]
    key = ["question_id"]
    if claim.paired and method == TREE:
        own, other, key = own[own["reranker"] != BEST], other[other["reranker"] != BEST], [*key, "reranker"]
    else:
        own, other = own[own["reranker"] == chosen_reranker(rows, method)], other[other["reranker"] == reranker]
    return own.merge(other, on=key, suffixes=("", "_other"))

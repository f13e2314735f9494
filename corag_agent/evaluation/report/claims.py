"""What is claimed of the search, and how a figure bears it out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from corag_agent.evaluation.best_of_half import BEST, best_rerankers
from corag_agent.evaluation.intervals import RESAMPLES, paired_ratio
from corag_agent.evaluation.records import SECONDS, EvaluationRun
from corag_agent.evaluation.report.wording import (
    AGENT,
    NAIVE,
    TREE,
    UPPER,
    interval_text,
    milliseconds,
    number,
    percent,
    signed_percent,
)
from corag_agent.evaluation.summary import experiments

TIMES = ("seconds_search", "seconds")


@dataclass(frozen=True, slots=True)
class Claim:
    """A comparison that has a target.

    Attributes:
        baseline: Method that is compared with.
        metric: What is compared.
        rival: The baseline within a sentence.
        title: For the table.
        sentence: What a figure says; names `own`, `other`, `value`, `more` and `rival`.
        threshold: Of the ratio own / other.
        rising: Whether the target is a ratio above the threshold.
        share: Whether the ratio is shown as a share, and not as a difference.
        paired: Whether the tree search is compared with the baseline of the same reranker, over all rerankers.
    """

    baseline: str
    metric: str
    rival: str
    title: str
    sentence: str
    threshold: float
    rising: bool = True
    share: bool = False
    paired: bool = False

    @property
    def target(self) -> str:
        """The target, in words."""
        bound = "at least" if self.rising else "at most"
        if self.share:
            return f"{bound} {number(100 * self.threshold, 0)} %"
        return "above 0" if self.threshold == 1 else f"{bound} +{number(100 * self.threshold - 100, 0)} %"

    def shown(self, ratio: float) -> str:
        """A ratio as this claim shows it."""
        return percent(ratio) if self.share else signed_percent(ratio - 1)


_ROUGE = "Its ROUGE-L is {value} {more} that of {rival}: {own} against {other}."
CLAIMS = (
    Claim(NAIVE, "rougeL", "NaiveRAG", "ROUGE-L against NaiveRAG", _ROUGE, 1.3),
    Claim(
        NAIVE,
        "prompt_tokens",
        "NaiveRAG",
        "Tokens against NaiveRAG",
        "It spends {own} tokens on chunks where {rival} spends {other}: {value} of them.",
        0.5,
        rising=False,
        share=True,
    ),
    Claim("best_single", "rougeL", "the best single chunk", "ROUGE-L against the best single chunk", _ROUGE, 1),
    Claim(
        "naive_matched",
        "rougeL",
        "NaiveRAG at the same tokens",
        "ROUGE-L against NaiveRAG at the same tokens",
        _ROUGE,
        1,
    ),
    Claim("greedy_climb", "rougeL", "the greedy climb", "ROUGE-L against a greedy climb", _ROUGE, 1),
    Claim(TREE, "rougeL", "the tree search with", "ROUGE-L of the agent against each fixed reranker", _ROUGE, 1),
    Claim(
        UPPER,
        "objective",
        "Upper",
        "Share of Upper's objective",
        "By the same reranker it reaches {value} of the objective of the best of all orders: {own} of {other}.",
        0.99,
        share=True,
        paired=True,
    ),
    Claim(
        UPPER,
        "rougeL",
        "Upper",
        "Share of Upper's ROUGE-L",
        "Its ROUGE-L is {value} of what the best of all orders gives: {own} of {other}.",
        0.95,
        share=True,
    ),
    Claim(
        UPPER,
        "seconds_search",
        "Upper",
        "Share of Upper's search time",
        "Choosing the chunks takes {own} ms where trying all orders takes {other} ms: {value} of it.",
        0.1,
        rising=False,
        share=True,
        paired=True,
    ),
    Claim(
        NAIVE,
        "seconds",
        "NaiveRAG",
        "Time added to the plain pipeline",
        "From question to answer it takes {own} ms, LLM included, and {rival} {other} ms: {value} {more}.",
        1.1,
        rising=False,
        paired=True,
    ),
)


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

    @property
    def differs(self) -> bool:
        """Whether the interval of the difference excludes zero."""
        return self.low > 1 or self.high < 1

    @property
    def verdict(self) -> str:
        """Whether the target is met, by the whole interval or on average only."""
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
        elif self.differs:
            told += f" The interval excludes {zero}."
        else:
            told += f" The interval includes {zero}: these questions do not tell the two apart."
        return told


def figures_of(run: EvaluationRun, resamples: int = RESAMPLES) -> list[Figure]:
    """Every claim on every data set, for the tree search and for that with the agent, where they were compared.

    A data set is looked at in one setting, `main_setting`; times in that of those where they were measured.
    """
    figures = []
    for dataset in sorted(run.succeeded["dataset"].unique()):
        rows, timed = main_setting(run, dataset), main_setting(run, dataset, measured=True)
        for claim in CLAIMS:
            shown = timed if claim.metric in TIMES else rows
            for method in (TREE, AGENT):
                for reranker in _baselines(claim, method, shown):
                    figure = _figure(claim, dataset, method, reranker, shown, resamples)
                    figures += [figure] if figure else []
    return figures


def main_setting(run: EvaluationRun, dataset: str, measured: bool = False) -> pd.DataFrame:
    """Records of one experiment, chunk size and budget: that with the most methods.

    Of equals one that the agent's labels cover, then the first experiment, then the smallest chunks and budget.

    Args:
        run: To look in.
        dataset: Whose records.
        measured: Only those whose time was measured.

    Returns:
        None that failed or varies a setting; those of each method's best reranker among them; `seconds` is the sum over
        the stages.
    """
    rows = run.succeeded
    rows = rows[(rows["dataset"] == dataset) & (rows["variant"] == "")]
    if measured:
        rows = rows[rows["seconds_search"].notna() & rows["seconds_generate"].notna()]
    rows = rows.assign(seconds=rows[list(SECONDS)].sum(axis=1))
    rows["place"] = rows["run"].map(experiments(run).index)
    settings = [part for _, part in rows.groupby(["place", "chunk_size", "budget"])]
    if not settings:
        return rows
    best = max(settings, key=lambda part: (part["method"].nunique(), bool(part["on_distribution"].all())))
    return pd.concat([best, best_rerankers(best)], ignore_index=True)


def _baselines(claim: Claim, method: str, rows: pd.DataFrame) -> list[str]:
    """Rerankers of the baseline to compare with: its best, but the agent with each that the tree search has."""
    if claim.baseline == TREE:
        return sorted(rows.loc[rows["method"] == TREE, "reranker"].unique()) if method == AGENT else []
    if claim.paired and claim.baseline == UPPER and method == AGENT:
        return []  # it has no reranker of its own
    return [chosen_reranker(rows, claim.baseline)]


def chosen_reranker(rows: pd.DataFrame, method: str) -> str:
    """`BEST` where the method has that; else its only one, or the first by name where too few questions tell."""
    names = rows.loc[rows["method"] == method, "reranker"]
    return BEST if (names == BEST).any() else str(names.min())


def _figure(
    claim: Claim, dataset: str, method: str, reranker: str, rows: pd.DataFrame, resamples: int
) -> Figure | None:
    """A claim over the questions that both answered; None without such, or where the baseline's mean is not above 0."""
    own, other = rows[rows["method"] == method], rows[rows["method"] == claim.baseline]
    key = ["question_id"]
    if claim.paired and method == TREE:
        own, other, key = own[own["reranker"] != BEST], other[other["reranker"] != BEST], [*key, "reranker"]
    else:
        own, other = own[own["reranker"] == chosen_reranker(rows, method)], other[other["reranker"] == reranker]
    both = own.merge(other, on=key, suffixes=("", "_other"))
    a, b = both[claim.metric].to_numpy(float), both[f"{claim.metric}_other"].to_numpy(float)
    if not len(both) or not b.mean() > 0:
        return None
    gain = paired_ratio(a, b, resamples=resamples, groups=list(both["question_id"]))
    fixed = reranker if claim.baseline == TREE else ""
    ends = (1 + gain.mean, 1 + gain.low, 1 + gain.high)
    means = (float(a.mean()), float(b.mean()))
    fits = bool(own["on_distribution"].all())
    return Figure(claim, dataset, method, fixed, *ends, *means, both["question_id"].nunique(), fits)

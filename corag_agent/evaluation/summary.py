"""Tables of an evaluation run, as frames: means by method, paired differences, latency, structure.

Intervals are 95 % percentile bootstraps over questions; with `by_document`, whole documents are drawn. Questions are
the default: what is claimed is about other questions on these corpora, a paired difference has lost most of what the
questions of a document share, and of a handful of documents percentile intervals are too narrow (docs/evaluation.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import pandas as pd

from corag_agent.evaluation.best_of_half import BEST, HALVINGS, best_rerankers
from corag_agent.evaluation.intervals import RESAMPLES, Interval, bootstrap_mean, paired_bootstrap, paired_ratio
from corag_agent.evaluation.records import PARTIAL, QUESTION, SECONDS, STAGES, EvaluationRun
from corag_search.errors import InputError

METRICS = ("rouge1", "rouge2", "rougeL", *PARTIAL)
_COUNTS = ("prompt_tokens", "answer_tokens", "evaluations")
# What a method is told apart by within one experiment and data set.
SETTING = ("method", "reranker", "chunk_size", "budget", "variant")


def method_table(
    run: EvaluationRun,
    experiment: str | None = None,
    by: Sequence[str] = ("dataset",),
    seed: int = 0,
    resamples: int = RESAMPLES,
    by_document: bool = False,
) -> pd.DataFrame:
    """What each method reaches, on the questions that every setting of the experiment has.

    So rows are about the same questions, while an experiment is under way too, or shares records with one that asks
    more.

    Args:
        run: To summarise.
        experiment: Name of one of its runs; None for the first.
        by: Columns of the records to tell apart: dataset, domain, kind, language.
        seed: Of halves and resampling.
        resamples: Of the bootstrap.
        by_document: Whether whole documents are resampled.

    Returns:
        One row for each group and `SETTING`, rerankers with `BEST` among them: `questions`, `failed`, the means of
        `METRICS`, `rougeL_low` and `rougeL_high`, `prompt_tokens`, `answer_tokens`, `evaluations`, `on_distribution`
        (whether all were).

    Raises:
        InputError: Unknown experiment or column.
    """
    everything = shared_questions(_of(run.records, experiment, run))
    rows = _with_best(everything[everything["error"] == ""], run, by, seed)
    failed = everything[everything["error"] != ""].groupby([*by, *SETTING]).size().to_dict()
    table = []
    for key, group in _grouped(rows, by):
        interval = bootstrap_mean(group["rougeL"], seed, resamples, _documents(group) if by_document else None)
        table.append(
            dict(zip([*by, *SETTING], key, strict=True))
            | {"questions": len(group), "failed": failed.get(key, 0)}
            | {str(name): float(mean) for name, mean in group[[*METRICS, *_COUNTS]].mean().items()}
            | {"rougeL_low": interval.low, "rougeL_high": interval.high}
            | {"on_distribution": bool(group["on_distribution"].all())}
        )
    return pd.DataFrame(table)


def differences(
    run: EvaluationRun,
    baseline: str = "naive_rag",
    experiment: str | None = None,
    by: Sequence[str] = ("dataset",),
    metric: str = "rougeL",
    seed: int = 0,
    resamples: int = RESAMPLES,
    by_document: bool = False,
) -> pd.DataFrame:
    """How far each method is from a baseline, on the questions that both have.

    A method is compared with the baseline of the same reranker, chunk size, budget and variant; one without a reranker
    with the baseline's `BEST`.

    Args:
        run: To summarise.
        baseline: Name of a method.
        experiment: Name of one of its runs; None for the first.
        by: As of `method_table`.
        metric: What is compared.
        seed: Of halves and resampling.
        resamples: Of the bootstrap.
        by_document: Whether whole documents are resampled.

    Returns:
        One row for each group and `SETTING`, but for the baseline's own: `questions`, `score` and `baseline_score`
        (means), `difference` with `low` and `high`, `relative` (mean over mean, less 1) with `relative_low` and
        `relative_high` (NaN where the baseline's mean is 0), and `tokens` (mean prompt tokens over the baseline's) with
        `tokens_low` and `tokens_high`.

    Raises:
        InputError: Unknown experiment, column or metric, or the experiment has no such method.
    """
    if metric not in METRICS:
        raise InputError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    rows = _with_best(_of(run.succeeded, experiment, run), run, by, seed)
    against = rows[rows["method"] == baseline].set_index([*QUESTION, "reranker", "chunk_size", "budget", "variant"])
    if against.empty:
        raise InputError(
            f"the baseline {baseline!r} is no method of this run; it has {', '.join(rows['method'].unique())}"
        )
    rerankers = set(rows.loc[rows["method"] == baseline, "reranker"])
    table = []
    for key, group in _grouped(rows[rows["method"] != baseline], by):
        setting = dict(zip([*by, *SETTING], key, strict=True))
        own = str(setting["reranker"])
        other = own if own in rerankers else _stand_in(rerankers)
        fixed = (other, *(setting[name] for name in ("chunk_size", "budget", "variant")))
        keys = [(*question, *fixed) for question in group[QUESTION].itertuples(index=False, name=None)]
        matched = against.reindex(pd.MultiIndex.from_tuples(keys, names=against.index.names))
        both = group[metric].notna().to_numpy() & matched[metric].notna().to_numpy()
        if both.any():
            groups = _documents(group[both]) if by_document else None
            table.append(setting | _compared(group[both], matched[both], metric, seed, resamples, groups))
    return pd.DataFrame(table)


def latency_table(run: EvaluationRun, experiment: str | None = None, by: Sequence[str] = ("dataset",)) -> pd.DataFrame:
    """Seconds by stage and in all, where they were measured.

    Args:
        run: To summarise.
        experiment: Name of one of its runs, one with `timing`; None for the first.
        by: As of `method_table`.

    Returns:
        One row for each group, `SETTING` and `stage` ("total" among them, the sum of those measured for a question):
        `questions`, `mean`, `p50`, `p95`, in seconds.

    Raises:
        InputError: Unknown experiment or column.
    """
    _check_columns(by)
    rows = _in_order(_of(run.succeeded, experiment, run), run)
    table = []
    for key, group in _grouped(rows, by):
        setting = dict(zip([*by, *SETTING], key, strict=True))
        seconds = group[list(SECONDS)].set_axis(list(STAGES), axis=1)
        # Without search or generation it is no total.
        whole = seconds["search"].notna() & seconds["generate"].notna()
        for stage, values in (*seconds.items(), ("total", seconds[whole].sum(axis=1))):
            measured = values.dropna().to_numpy()
            if len(measured):
                p50, p95 = np.percentile(measured, [50, 95])
                spent = {"mean": float(measured.mean()), "p50": float(p50), "p95": float(p95)}
                table.append(setting | {"stage": stage, "questions": len(measured)} | spent)
    return pd.DataFrame(table, columns=[*by, *SETTING, "stage", "questions", "mean", "p50", "p95"])


def structure_table(run: EvaluationRun, by: Sequence[str] = ("dataset",), resamples: int = RESAMPLES) -> pd.DataFrame:
    """Shares that tell how far each reranker is from additive and from monotone.

    Args:
        run: To summarise.
        by: Columns of `structure` to tell apart.
        resamples: Of the bootstrap.

    Returns:
        One row for each group, `run`, `reranker`, `chunk_size` and `budget`: `questions`, `pairs`, the shares of pairs
        that are `not_additive`, `worse_than_best` and of which the `order_matters`, the share of questions whose best
        combination is not the largest affordable (`not_largest`, with `low` and `high`), and `best_chunks` (mean).
    """
    table = []
    if run.structure is None:
        return pd.DataFrame()
    # Two experiments may measure the same questions, which count once each, and over other candidates.
    names = [*by, "run", "reranker", "chunk_size", "budget"]
    for key, group in run.structure.groupby(names, sort=False):
        pairs = int(group["pairs"].sum())
        interval = bootstrap_mean((~group["best_is_largest"]).to_numpy(float), resamples=resamples)
        table.append(
            dict(zip(names, key, strict=True))
            | {"questions": len(group), "pairs": pairs}
            | {"not_additive": 1 - group["additive"].sum() / pairs if pairs else np.nan}
            | {name: group[name].sum() / pairs if pairs else np.nan for name in ("worse_than_best", "order_matters")}
            | {"not_largest": interval.mean, "low": interval.low, "high": interval.high}
            | {"best_chunks": float(group["best_chunks"].mean())}
        )
    return pd.DataFrame(table)


def experiments(run: EvaluationRun) -> list[str]:
    """Names of the runs that have records, in the order of the configuration."""
    names = [one["name"] for one in run.settings.get("runs", [])]
    present = list(run.records["run"].unique())
    return [name for name in names if name in present] + [name for name in present if name not in names]


def shared_questions(records: pd.DataFrame) -> pd.DataFrame:
    """Records of the questions that every setting of their experiment and data set has, be it with an error.

    All records of an experiment and data set stay where there is no such question.
    """
    place = ["run", "dataset"]
    wanted = records.drop_duplicates([*place, *SETTING]).groupby(place).size().rename("wanted")
    had = records.groupby([*place, "question_id"])["method"].transform("size")
    shared = had == records.join(wanted, on=place)["wanted"]
    return records[shared | ~shared.groupby([records[name] for name in place]).transform("any")]


def _with_best(rows: pd.DataFrame, run: EvaluationRun, by: Sequence[str], seed: int) -> pd.DataFrame:
    """Records of an experiment that did not fail, and those of each method's best reranker.

    Methods are in the order of the configuration, and the best reranker is the first of each.
    """
    _check_columns(by)
    return _in_order(pd.concat([best_rerankers(rows, seed, halvings=HALVINGS), rows], ignore_index=True), run)


def _grouped(rows: pd.DataFrame, by: Sequence[str]) -> Iterator[tuple[tuple[Hashable, ...], pd.DataFrame]]:
    """Rows by group and `SETTING`; groups sorted, then methods and rerankers as they come."""
    for _, part in rows.groupby([*by, "chunk_size", "budget", "variant"]):
        yield from part.groupby([*by, *SETTING], sort=False)


def _in_order(rows: pd.DataFrame, run: EvaluationRun) -> pd.DataFrame:
    """Rows of one experiment, methods in the order of its configuration."""
    known = {one["name"]: one.get("methods", []) for one in run.settings.get("runs", [])}
    methods = known.get(rows["run"].iloc[0], []) if len(rows) else []
    place = {name: number for number, name in enumerate(methods)}
    order = rows["method"].map(lambda name: place.get(name, len(place)))
    return rows.iloc[np.argsort(order.to_numpy(), kind="stable")]


def _of(records: pd.DataFrame, experiment: str | None, run: EvaluationRun) -> pd.DataFrame:
    names = experiments(run)
    if not names:
        raise InputError("the evaluation has no records yet; run `corag evaluate`")
    chosen = names[0] if experiment is None else experiment
    if chosen not in names:
        raise InputError(f"there is no run {chosen!r} in this evaluation; it has {', '.join(names)}")
    return records[records["run"] == chosen]


def _check_columns(by: Sequence[str]) -> None:
    for name in by:
        if name not in ("dataset", "domain", "kind", "language"):
            raise InputError(f"records are told apart by dataset, domain, kind and language, got {name!r}")


def _documents(rows: pd.DataFrame) -> list[Hashable]:
    """The document of each row's question; a question without gold passages is alone."""
    questions = rows[QUESTION].itertuples(index=False, name=None)
    return [own[0] if len(own) else question for own, question in zip(rows["documents"], questions, strict=True)]


def _stand_in(rerankers: set[str]) -> str:
    """The baseline's reranker for a method that has none."""
    for name in (BEST, ""):
        if name in rerankers:
            return name
    return min(rerankers)


def _compared(
    own: pd.DataFrame,
    other: pd.DataFrame,
    metric: str,
    seed: int,
    resamples: int,
    groups: list[Hashable] | None,
) -> dict[str, float]:
    a, b = own[metric].to_numpy(float), other[metric].to_numpy(float)
    difference = paired_bootstrap(a, b, seed, resamples, groups)
    nothing = Interval(np.nan, np.nan, np.nan, len(a))
    relative = paired_ratio(a, b, seed, resamples, groups) if b.mean() > 0 else nothing
    tokens = paired_ratio(
        own["prompt_tokens"].to_numpy(float), other["prompt_tokens"].to_numpy(float), seed, resamples, groups
    )
    return {
        "questions": len(a),
        "score": float(a.mean()),
        "baseline_score": float(b.mean()),
        **dict(zip(("difference", "low", "high"), _three(difference), strict=True)),
        **dict(zip(("relative", "relative_low", "relative_high"), _three(relative), strict=True)),
        **dict(zip(("tokens", "tokens_low", "tokens_high"), (1 + end for end in _three(tokens)), strict=True)),
    }


def _three(interval: Interval) -> Iterator[float]:
    yield from (interval.mean, interval.low, interval.high)

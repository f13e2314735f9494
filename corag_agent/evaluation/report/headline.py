"""The figures that a reader wants first: gains over the rivals and prices, each with its interval and its target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from corag_agent.evaluation.best_of_half import BEST
from corag_agent.evaluation.report.cells import BEST_NOTE, OFF, OFF_NOTE
from corag_agent.evaluation.report.claims import CLAIMS
from corag_agent.evaluation.report.figures import ENOUGH_QUESTIONS, Figure
from corag_agent.evaluation.report.plots import Measured, interval_plot
from corag_agent.evaluation.report.report_table import Column, ReportTable, Row
from corag_agent.evaluation.report.section import Plot, legend_of
from corag_agent.evaluation.report.wording import AGENT, MISSING, NAIVE, TREE, counted, method_name, number, way_name


def headline_table(figures: Sequence[Figure]) -> ReportTable:
    """All figures, claim by claim."""
    columns = ("data set", "result", "95 % interval", "target", "what it says", "measured on")
    several = len({figure.method for figure in figures}) > 1
    rows = []
    for claim in CLAIMS:
        for figure in figures:
            if figure.claim == claim:
                name = f"{figure.dataset}, {method_name(figure.method)}" if several else figure.dataset
                name += f", against {_fixed(figure)}" if figure.reranker else ""
                result = figure.shown + ("" if figure.on_distribution else OFF)
                cells = (name, result, figure.interval, figure.verdict, figure.sentence(), figure.measured_on)
                rows.append(Row(cells, f"{claim.title}. {claim.whose_target}."))
    caption = "Headline figures, with 95 % paired bootstrap intervals"
    note = (
        "Met or missed: the whole interval lies on that side of the target; on average: the mean does, the interval "
        f"reaches across. Of fewer than {ENOUGH_QUESTIONS} questions neither is said, since so few give intervals "
        "that are too narrow. What the paper claims, it claims of its own data and language models; the other targets "
        f"are this project's. {BEST_NOTE}"
    )
    if not all(figure.on_distribution for figure in figures):
        note += f" {OFF_NOTE}"
    return ReportTable(caption, tuple(Column(name, numeric=False) for name in columns), tuple(rows), note)


def _fixed(figure: Figure) -> str:
    return "the best" if figure.reranker == BEST else figure.reranker


def leading_method(figures: Sequence[Figure]) -> str:
    """The one that the page speaks of first: the search with the agent, if every data set has it."""
    datasets = [{figure.dataset for figure in figures if figure.method == method} for method in (TREE, AGENT)]
    return AGENT if datasets[1] and datasets[0] <= datasets[1] else TREE


def rivals_plot(figures: Sequence[Figure]) -> Plot | None:
    """ROUGE-L of the leading method above each rival; None without rivals."""
    leading = leading_method(figures)
    shown = [figure for figure in figures if figure.method == leading and figure.claim.metric == "rougeL"]
    if not shown:
        return None
    datasets = list(dict.fromkeys(figure.dataset for figure in shown))
    rivals = dict.fromkeys(
        (figure.claim.baseline, figure.reranker) for claim in CLAIMS for figure in shown if figure.claim == claim
    )
    rows = []
    for baseline, reranker in rivals:
        found = [figure for figure in shown if (figure.claim.baseline, figure.reranker) == (baseline, reranker)]
        marks = [_above(figure, datasets.index(figure.dataset)) for figure in found]
        rows.append((way_name(baseline, reranker), marks))
    title = f"ROUGE-L of {method_name(leading)} above each rival, in %"
    told = "; ".join(f"{figure.dataset}, {method_name(figure.claim.baseline)}: {figure.shown}" for figure in shown)
    svg = interval_plot(rows, "% above the rival, 95 % interval", f"{title}. {told}.", reference=0)
    return Plot(title, svg, legend_of(datasets))


def _above(figure: Figure, series: int) -> Measured:
    """By how many percent a figure is above its rival."""
    return Measured(100 * (figure.ratio - 1), 100 * (figure.low - 1), 100 * (figure.high - 1), series)


def verdict_sentence(figures: Sequence[Figure]) -> str:
    """The run in one sentence."""
    leading = leading_method(figures)
    gains = [f for f in figures if f.method == leading and (f.claim.baseline, f.claim.metric) == (NAIVE, "rougeL")]
    tokens = [
        f for f in figures if f.method == leading and (f.claim.baseline, f.claim.metric) == (NAIVE, "prompt_tokens")
    ]
    if not gains:
        return (
            "Neither tree search nor NaiveRAG was compared at one setting in this run, so there is no headline figure."
        )
    told = _told(gains, leading)
    if tokens:
        low, high = (number(100 * choose(figure.ratio for figure in tokens), 0) for choose in (min, max))
        spent = f"spends {low if low == high else f'{low} to {high}'} % of its tokens"
        told += f"; it {spent}" if any(figure.few for figure in gains) else f", and {spent}"
    return told + "."


def _told(gains: Sequence[Figure], leading: str) -> str:
    """On how many data sets the leading method is better than NaiveRAG, and so on; `gains` are its figures."""
    few = sum(figure.few for figure in gains)
    sets = counted(len(gains), "data set")
    too_few = f"too few questions to tell (fewer than {ENOUGH_QUESTIONS})"
    if few == len(gains):
        return f"By ROUGE-L, there are {too_few} whether {method_name(leading)} is better than NaiveRAG on {sets}"
    counts = {
        "better than": sum(figure.differs and figure.ratio > 1 for figure in gains),
        "worse than": sum(figure.differs and figure.ratio < 1 for figure in gains),
        "not told apart from": sum(not figure.few and not figure.differs for figure in gains),
    }
    (first, count), *others = [(words, count) for words, count in counts.items() if count]
    parts = [f"{first} NaiveRAG on {count} of {sets}"]
    parts += [f"{words} it on {count}" for words, count in others]
    told = f"By ROUGE-L, {method_name(leading)} is {', '.join(parts)}"
    return f"{told}; on {few} there are {too_few}" if few else told


def tiles_html(figures: Sequence[Figure]) -> str:
    """The gain over NaiveRAG and the tokens, a tile for each data set."""
    leading = leading_method(figures)
    return "".join(_tiles(figures, leading))


def _tiles(figures: Sequence[Figure], leading: str) -> Iterator[str]:
    for dataset in dict.fromkeys(figure.dataset for figure in figures):
        found = {
            (figure.method, figure.claim.metric): figure
            for figure in figures
            if figure.dataset == dataset and figure.claim.baseline == NAIVE
        }
        gain, tokens = found.get((leading, "rougeL")), found.get((leading, "prompt_tokens"))
        if gain is None:
            continue
        kind = "better" if gain.differs and gain.ratio > 1 else "worse" if gain.differs else "open"
        word = {"better": "better", "worse": "worse", "open": "not told apart"}[kind]
        word = "too few questions to tell" if gain.few else word
        time = found.get((leading, "seconds"))
        other = found.get((TREE, "rougeL")) if leading == AGENT else None
        details = [
            f"ROUGE-L against NaiveRAG: <b>{word}</b>",
            f"95 %: {gain.interval}",
            f"{gain.claim.whose_target}; {gain.verdict}",
            f"<b>{tokens.shown}</b> of the tokens{_ends(tokens)}" if tokens else "",
            f"<b>{time.shown}</b> time for a question{_ends(time)}{_among(time)}" if time else "",
        ]
        told = "".join(f"<p>{detail}</p>" for detail in details if detail)
        off = f'<p class="soft">{OFF_NOTE}</p>' if not gain.on_distribution else ""
        without = f", without agent {other.shown}" if other else ""
        yield (
            f'<div class="tile {kind}"><div><h3><bdi>{escape(dataset)}</bdi></h3>'
            f'<p class="large">{gain.shown}</p></div><div>{told}'
            f'<p class="soft">{counted(gain.questions, "question")}{without}</p>{off}</div></div>'
        )


def _ends(figure: Figure) -> str:
    return "" if figure.interval == MISSING else f" ({figure.interval})"


def _among(figure: Figure) -> str:
    return "" if figure.chunks is None else f" among {counted(figure.chunks, 'chunk')}"

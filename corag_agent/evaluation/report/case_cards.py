"""Cases as HTML, in full, and as Markdown, cut short."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from corag_agent.evaluation.report.cases import Case, CaseAnswer, CaseChunk, Cases
from corag_agent.evaluation.report.report_table import markdown_text
from corag_agent.evaluation.report.wording import number, signed

_SCORES = {
    "rougeL": "ROUGE-L",
    "human_rougeL": "human ROUGE-L",
    "token_f1": "token F1",
    "gold_recall": "gold recall",
}
_ANSWER, _CHUNK = 240, 140  # characters that Markdown keeps


def cases_html(cases: Cases) -> str:
    """The section as part of a page: the first data set open, the others folded."""
    parts = []
    for index, (heading, own) in enumerate(_by_dataset(cases.cases)):
        opened = "" if index else " open"
        shown = "".join(map(_case_html, own))
        parts.append(f'<details class="folded"{opened}><summary>{escape(heading)}</summary>{shown}</details>')
    return (
        '<section id="cases" aria-labelledby="cases-title"><h2 id="cases-title">Cases</h2>'
        f'<p class="note">{escape(cases.note)}</p>{"".join(parts)}</section>'
    )


def cases_markdown(cases: Cases) -> Iterator[str]:
    """The section's blocks; texts are cut."""
    yield "## Cases"
    yield cases.note
    for heading, own in _by_dataset(cases.cases):
        yield f"### {markdown_text(heading)}"
        for case in own:
            yield f"**{_title(case)}** {_cut(case.question, _ANSWER)} ({markdown_text(case.question_id)})"
            yield f"Reference: {_cut(case.reference, _ANSWER)}"
            yield "\n".join(line for answer in case.answers for line in _answer_markdown(answer))


def _by_dataset(cases: Sequence[Case]) -> Iterator[tuple[str, list[Case]]]:
    for (dataset, setting), own in groupby(cases, lambda case: (case.dataset, case.setting)):
        yield f"{dataset}, {setting}", list(own)


def _title(case: Case) -> str:
    return f"{case.what.capitalize()}, {signed(case.gain)}:"


def _case_html(case: Case) -> str:
    cards = "".join(map(_answer_html, case.answers))
    return (
        f'<div class="case"><h3>{_title(case)} <bdi>{escape(case.question)}</bdi></h3>'
        f'<p class="soft"><bdi>{escape(case.question_id)}</bdi></p>{_told("Reference", case.reference)}'
        f'<div class="cards">{cards}</div></div>'
    )


def _answer_html(answer: CaseAnswer) -> str:
    return (
        f'<article><h4>{escape(answer.way)}</h4><p class="soft">{_scores(answer)}</p>'
        f'{_told("Answer", answer.answer or "(empty)")}<ol class="chunks">'
        f"{''.join(map(_chunk_html, answer.chunks))}</ol></article>"
    )


def _chunk_html(chunk: CaseChunk) -> str:
    kind, star = (' class="gold"', "<b>★ gold </b>") if chunk.gold else ("", "")
    source = f'<p class="soft">{star}<bdi>{escape(chunk.name)}</bdi> · {chunk.cost} tokens</p>'
    return f'<li{kind}>{source}<p class="text" dir="auto">{escape(chunk.text)}</p></li>'


def _told(title: str, text: str) -> str:
    return f'<p class="told"><b>{title}</b> <span dir="auto">{escape(text)}</span></p>'


def _scores(answer: CaseAnswer) -> str:
    known = {column: score for column, score in answer.scores.items() if math.isfinite(score)}
    scores = (f"{name} {number(known[column])}" for column, name in _SCORES.items() if column in known)
    return " · ".join((*scores, f"{answer.tokens} tokens"))


def _answer_markdown(answer: CaseAnswer) -> Iterator[str]:
    yield f"- {markdown_text(answer.way)} ({_scores(answer)}): {_cut(answer.answer, _ANSWER)}"
    for place, chunk in enumerate(answer.chunks, 1):
        star = "★ " if chunk.gold else ""
        source = f"{star}{markdown_text(chunk.name)}, {chunk.cost} tokens"
        yield f"  {place}. {source}: {_cut(chunk.text, _CHUNK)}"


def _cut(text: str, length: int) -> str:
    """The beginning of a text, as it means itself in Markdown."""
    whole = " ".join(text.split())
    return markdown_text(whole if len(whole) <= length else whole[:length].rstrip() + "…")

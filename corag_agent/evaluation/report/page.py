"""The report as one HTML page that opens from disk and loads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template
from typing import Any

import yaml

from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.browser import browser_data, chosen_questions, has_texts
from corag_agent.evaluation.report.case_cards import cases_html
from corag_agent.evaluation.report.contents import Contents, contents_of
from corag_agent.evaluation.report.headline import (
    headline_table,
    leading_method,
    rivals_plot,
    tiles_html,
    verdict_sentence,
)
from corag_agent.evaluation.report.report_table import table_html
from corag_agent.evaluation.report.section import plot_html, section_html
from corag_agent.evaluation.report.wording import counted, method_name


def report_page(run: EvaluationRun, questions: int | None = None, contents: Contents | None = None) -> str:
    """A run as one page; equal runs give equal pages.

    Args:
        run: What `corag evaluate` wrote.
        questions: At most so many in the question browser, spread evenly; None for all.
        contents: Of this run, if they were worked out before.

    Returns:
        The page, to be saved as UTF-8.
    """
    contents = contents or contents_of(run)
    rivals = rivals_plot(contents.figures)
    sections = [(section.anchor, section.title) for section in contents.sections]
    sections += [("cases", "Cases")] if contents.cases else []
    links = [("headline", "Headline"), *sections, ("questions", "Questions"), ("configuration", "Configuration")]
    figures = contents.figures
    return Template(_part("page.html")).substitute(
        title=escape(f"corag evaluation · {', '.join(sorted(run.asked['dataset'].unique()))}"),
        style=_part("page.css"),
        verdict=escape(verdict_sentence(figures)),
        facts="".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in contents.facts.items()),
        links=" ".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title in links),
        lead=escape(_lead(contents)),
        tiles=tiles_html(figures),
        rivals=plot_html(rivals) if rivals else "",
        claims=table_html(headline_table(figures)) if figures else "",
        sections="".join(map(section_html, contents.sections)),
        cases=cases_html(contents.cases) if contents.cases else "",
        browser=_browser(run, questions),
        configuration=_configuration(run.settings),
    )


def _part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _lead(contents: Contents) -> str:
    if not contents.figures:
        return "Needs the methods tree or agent beside naive_rag, at one chunk size and budget."
    leading = method_name(leading_method(contents.figures))
    return (
        f"Large: by how much the mean ROUGE-L of {leading} is above NaiveRAG's on the same questions. "
        "ROUGE-L compares an answer with the reference, 0 to 1. Each figure has its 95 % interval."
    )


def _browser(run: EvaluationRun, limit: int | None) -> str:
    if not has_texts(run):
        text = "This run has no texts: it was published without them, so there are no questions to look through."
        return (
            '<section id="questions" aria-labelledby="questions-title"><h2 id="questions-title">Questions</h2>'
            f'<p class="note">{text}</p></section>'
        )
    shown, every = len(chosen_questions(run, limit)), len(run.questions)
    note = (
        "Every question with what each method chose and answered. ★ marks chunks that hold a part of a gold passage; "
        "the figures are ROUGE-L of the method, and its difference from the other one. "
    )
    if shown < every:
        note += f"{shown:,} of {counted(every, 'question')}, spread evenly; --questions sets how many. "
    return Template(_part("browser.html")).substitute(
        note=escape(note.strip()), script=_part("page.js"), data=browser_data(run, limit)
    )


def _configuration(settings: Mapping[str, Any]) -> str:
    """Plain values in a list, what has parts folded."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, (dict, list))}
    pairs = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in plain.items())
    folded = "".join(_folded(name, value) for name, value in settings.items() if name not in plain)
    return f'<dl class="facts">{pairs}</dl>{folded}'


def _folded(name: str, value: Any) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    summary = f"<summary>{escape(name)}</summary>"
    return f'<details class="folded">{summary}<pre tabindex="0">{escape(text)}</pre></details>'

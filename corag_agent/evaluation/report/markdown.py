"""The report's tables as Markdown."""

from __future__ import annotations

from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.report.case_cards import cases_markdown
from corag_agent.evaluation.report.contents import Contents, contents_of
from corag_agent.evaluation.report.headline import headline_table, verdict_sentence
from corag_agent.evaluation.report.report_table import markdown_text, table_markdown


def report_markdown(run: EvaluationRun, contents: Contents | None = None) -> str:
    """The headline, all tables and the beginnings of the cases of `report_page`, as GitHub shows them.

    Args:
        run: What `corag evaluate` wrote.
        contents: Of this run, if they were worked out before.
    """
    contents = contents or contents_of(run)
    facts = "; ".join(f"{name}: {markdown_text(value)}" for name, value in contents.facts.items())
    blocks = ["# Evaluation", verdict_sentence(contents.figures), facts]
    if contents.figures:
        blocks += ["## Headline", table_markdown(headline_table(contents.figures))]
    for section in contents.sections:
        blocks += [f"## {section.title}", *([section.text] if section.text else [])]
        blocks += map(table_markdown, section.tables)
    blocks += cases_markdown(contents.cases) if contents.cases else ()
    return "\n\n".join(blocks) + "\n"

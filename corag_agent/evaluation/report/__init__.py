"""An evaluation run for people: a page of HTML that stands alone, and the same tables as Markdown."""

from corag_agent.evaluation.report.contents import Contents, contents_of
from corag_agent.evaluation.report.markdown import report_markdown
from corag_agent.evaluation.report.page import report_page

__all__ = ["Contents", "contents_of", "report_markdown", "report_page"]

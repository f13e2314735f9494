"""`corag answer`: the answer to one query or a file of them."""

from __future__ import annotations

import argparse
from collections.abc import Set

from jsonargparse import ArgumentParser

from corag_agent.commands.parser import add_pipeline
from corag_agent.commands.queries import add_queries, ask_each
from corag_agent.commands.search import describe, printable, selected_as_dict
from corag_search.pipeline import Answer

EXAMPLE = """  corag answer --store runs/store --query "How tall is the Eiffel Tower and who built it?"
  corag answer --config configs/paper.yaml --store runs/store --agent runs/agent/export --queries questions.txt"""


def add_arguments(parser: ArgumentParser) -> None:
    add_queries(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    ask_each(arguments, named, "answer", describe_answer, answer_as_dict)


def describe_answer(answer: Answer) -> str:
    """The answer, its chunks and where the time went, for people."""
    steps = ", ".join(f"{step} {1000 * seconds:.0f}" for step, seconds in answer.timings.items())
    return f"{describe(answer.selected)}\n  milliseconds: {steps}\n  answer: {printable(answer.text)}"


def answer_as_dict(answer: Answer) -> dict:
    """The answer, its sources and where the time went, for programs."""
    return {
        **selected_as_dict(answer.selected),
        "answer": answer.text,
        "citations": [citation.to_dict() for citation in answer.citations],
        "prompt_tokens": answer.prompt_tokens,
        "answer_tokens": answer.answer_tokens,
        "timings": answer.timings,
    }

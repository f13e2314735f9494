"""Queries from the command line or from a file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, check_store, overrides, pipeline_of, warn_of_idle
from corag_search.errors import InputError
from corag_search.policy_tree.problem import check_query


def add_queries(parser: ArgumentParser) -> None:
    """Options `--query`, `--queries` and `--json`."""
    parser.add_argument("--query", type=str | None, default=None, help="The question.")
    parser.add_argument("--queries", type=Path | None, default=None, help="A text file with a question on each line.")
    add_json(parser)


def queries_of(arguments: argparse.Namespace) -> list[str]:
    """The questions that were given.

    Raises:
        InputError: None or both ways were used, a question is empty, or the file cannot be read.
    """
    if (arguments.query is None) == (arguments.queries is None):
        raise InputError("give either --query TEXT or --queries FILE")
    if arguments.query is not None:
        check_query(arguments.query)
        return [arguments.query]
    try:
        lines = arguments.queries.read_text(encoding="utf-8-sig").split("\n")  # not where `splitlines` cuts besides
    except UnicodeDecodeError as error:
        raise InputError(f"{arguments.queries} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    queries = [line.strip() for line in lines if line.strip()]
    if not queries:
        raise InputError(f"{arguments.queries} has no question; write one on each line")
    return queries


def ask_each(
    arguments: argparse.Namespace,
    named: Set[str],
    method: str,
    describe: Callable[[Any], str],
    as_dict: Callable[[Any], dict[str, Any]],
    keep: Callable[[int, Any], None] | None = None,
    **options: Any,
) -> None:
    """Put each question to `Corag.search` or `Corag.answer` and print what comes back.

    Args:
        arguments: Of the command.
        named: Options that stand on the command line itself.
        method: `search` or `answer`.
        describe: The outcome for people.
        as_dict: The outcome for programs.
        keep: Stores an outcome; gets its number, from 1, and the outcome.
        **options: Of the method, for every question.
    """
    from corag_search.pipeline import Corag

    queries, config = queries_of(arguments), pipeline_of(arguments)
    if not config.search.narrows:
        warn_of_idle(named, {"prior"}, "without --search.expansion_width or --search.root_width")
    if config.store is not None:
        check_store(config.store, config, named)
    ask = getattr(Corag.from_config(config), method)
    for number, query in enumerate(queries, 1):
        outcome = ask(query, **overrides(arguments, named), **options)
        if keep is not None:
            keep(number, outcome)
        if arguments.json:
            print_json(as_dict(outcome))
        else:
            print_out(f"{query}\n{describe(outcome)}")

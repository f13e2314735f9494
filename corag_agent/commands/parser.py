"""Parsers that all subcommands share: one configuration language, YAML below the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence, Set
from typing import Any

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, DefaultHelpFormatter

from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig


class _HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the lines of the examples."""


def make_parser(program: str, summary: str, example: str, defaults: Sequence[str] = ()) -> ArgumentParser:
    """A parser whose `--help` ends with an example, and whose errors are raised rather than printed.

    Args:
        program: As it is called.
        summary: What it does.
        example: Lines that show its use.
        defaults: YAML files that stand below what the user gives.
    """
    parser = ArgumentParser(
        prog=program,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        default_config_files=list(defaults),
    )
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file of these options; may come several times.")
    return parser


def add_pipeline(parser: ArgumentParser) -> None:
    """Options of `PipelineConfig`, at the top level as in a YAML file."""
    parser.add_class_arguments(PipelineConfig, None)


def pipeline_of(arguments: argparse.Namespace) -> PipelineConfig:
    """The pipeline's part of the parsed options."""
    return PipelineConfig(**{name: getattr(arguments, name) for name in PipelineConfig.__dataclass_fields__})


def overrides(arguments: argparse.Namespace, named: Set[str]) -> dict[str, Any]:
    """Per-call options of `Corag.search`: what the agent would choose, unless the command line names it."""
    chosen = {name: getattr(arguments.search, name) for name in SETTINGS if f"search.{name}" in named}
    return chosen | ({"reranker": arguments.reranker} if "reranker" in named else {})


def add_json(parser: ArgumentParser) -> None:
    """Option `--json`."""
    parser.add_argument("--json", action="store_true", help="Print JSON, one document a line.")


def options_set(pairs: Sequence[str]) -> dict[str, Any]:
    """Options of `corag fit` by dotted key, out of KEY=VALUE; values are written as in YAML.

    Raises:
        InputError: A pair is no such pair.
    """
    options = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not key or not sign:
            raise InputError(f"--set takes KEY=VALUE, such as trainer.max_epochs=30, got {pair!r}")
        try:
            options[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"--set {pair}: the value is not YAML ({error})") from error
    return options

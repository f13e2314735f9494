"""Parsers that all subcommands share: one configuration language, YAML below the command line."""

from __future__ import annotations

import argparse

from jsonargparse import ActionConfigFile, ArgumentParser, DefaultHelpFormatter

from corag_search.pipeline_config import PipelineConfig


class _HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the lines of the examples."""


def make_parser(program: str, summary: str, example: str) -> ArgumentParser:
    """A parser whose `--help` ends with an example, and whose errors are raised rather than printed."""
    parser = ArgumentParser(
        prog=program,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
    )
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file of these options; may come several times.")
    return parser


def add_pipeline(parser: ArgumentParser) -> None:
    """Options of `PipelineConfig`, at the top level as in a YAML file."""
    parser.add_class_arguments(PipelineConfig, None)


def pipeline_of(arguments: argparse.Namespace) -> PipelineConfig:
    """The pipeline's part of the parsed options."""
    return PipelineConfig(**{name: getattr(arguments, name) for name in PipelineConfig.__dataclass_fields__})


def add_json(parser: ArgumentParser) -> None:
    """Option `--json`."""
    parser.add_argument("--json", action="store_true", help="Print JSON, one document a line.")

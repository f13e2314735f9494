"""Parsers that all subcommands share: one configuration language, YAML below the command line."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser, DefaultHelpFormatter, Namespace

from corag_agent.commands.refusals import expected, no_group, not_of_kind, refusal
from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from corag_search.pipeline_config import PipelineConfig
from corag_search.store import VectorStore


class OneLineParser(ArgumentParser):
    """Refuses in one line, which names the file that an option stands in."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raises what a user is to read (ArgumentError)."""
        raise argparse.ArgumentError(None, refusal(message, self)) from ex

    def parse_path(self, path: Any, *given: Any, **options: Any) -> Namespace:
        """As that of jsonargparse, which looks for unknown options only when all files are read."""
        try:
            parsed = super().parse_path(path, *given, **options)
            self.validate(parsed, skip_required=True)
        except (argparse.ArgumentError, TypeError, KeyError) as error:
            raise argparse.ArgumentError(None, f"{path}: {refusal(str(error), self)}") from error
        return parsed

    def _check_value_key(self, action: argparse.Action, value: Any, key: str, *given: Any, **options: Any) -> Any:
        if action.nargs == "+" and isinstance(value, str):
            raise TypeError(not_of_kind(key, expected(list), value))
        return super()._check_value_key(action, value, key, *given, **options)

    def parse_args(self, *given: Any, **options: Any) -> Namespace:  # type: ignore[override]
        """As that of jsonargparse, which takes anything from a file for a flag or a group of options."""
        parsed = super().parse_args(*given, **options)
        for action in self._actions:
            name, value = action.dest, parsed.get(action.dest)
            if isinstance(action, argparse._StoreTrueAction) and not isinstance(value, bool):
                self.error(not_of_kind(name, expected(bool), value))
            if name in (self.groups or {}) and not isinstance(value, Namespace):
                self.error(no_group(name, value))
        return parsed


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
    parser = OneLineParser(
        prog=program,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
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


def check_about(arguments: argparse.Namespace, named: Set[str], about: Mapping[str, Sequence[str]]) -> None:
    """Refuse an option on the command line that says something about others of which none was given.

    Args:
        arguments: Parsed.
        named: Options on the command line.
        about: By option, the others.

    Raises:
        InputError: There is one.
    """
    for option, others in about.items():
        if option in named and not any(getattr(arguments, other) for other in others):
            missing = " or ".join(f"--{other}" for other in others)
            raise InputError(f"--{option} says something about {missing}, which was not given; add it or leave it out")


def check_idle(named: Set[str], idle: Set[str], beside: str) -> None:
    """Refuse an option on the command line that has no effect beside others.

    Args:
        named: Options on the command line.
        idle: Those without effect; the name of a group stands for all in it.
        beside: The others, for the message.

    Raises:
        InputError: There is one.
    """
    for option in _idle(named, idle):
        raise InputError(f"--{option} has no effect {beside}; leave it out")


def warn_of_idle(named: Set[str], idle: Set[str], beside: str) -> None:
    """As `check_idle`, but warn: settings of a pipeline may be given alike to all commands."""
    for option in _idle(named, idle):
        warnings.warn(f"--{option} has no effect {beside}", stacklevel=3)


def _idle(named: Set[str], idle: Set[str]) -> list[str]:
    """Each once: a group that was given as a whole stands for what is in it."""
    groups = {option: option.partition(".")[0] for option in sorted(named)}
    whole = [option for option, group in groups.items() if option == group or group not in named]
    return [option for option in whole if not idle.isdisjoint((option, groups[option]))]


def check_store(directory: str | Path, config: PipelineConfig, named: Set[str]) -> None:
    """Refuse other chunks or another index on the command line than those of a store, which keeps its own.

    Args:
        directory: Of the store.
        config: The pipeline's part of the options.
        named: Options on the command line.

    Raises:
        InputError: They differ, or the store cannot be read.
    """
    said = {option.partition(".")[0] for option in named} & {"chunk_size", "index"}
    if not said:
        return
    store = VectorStore.load(directory, verify=False)
    for name, own in (("chunk_size", store.chunk_size), ("index", store.info.index.to_dict())):
        given = getattr(config, name)
        if name in said and given != own:
            raise InputError(
                f"the store was built with {name} {own!r}, the configured one is {given!r}; leave it out, or build "
                "the store anew with `corag index`"
            )


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

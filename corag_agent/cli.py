"""The `corag` command: which subcommands there are, and how their errors end."""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import re
import sqlite3
import sys
import warnings
from collections.abc import Collection, Sequence
from importlib import metadata
from typing import Any

from corag_search.errors import InputError
from corag_search.generators.base import GeneratorError
from corag_search.rerankers.base import RerankerError

# Each command is a module of corag_agent.commands with EXAMPLE, add_arguments(parser) and run(arguments, named), where
# `named` are the options that stand on the command line itself, not in a file.
COMMANDS = {
    "demo": "corpus → index → label → train → export → answer, on models inside packages",
    "index": "cut documents into chunks, embed them and store them",
    "label": "grid searches and answers → label table (resumable)",
    "fit": "train the configuration agent on a label table",
    "test": "evaluate a trained agent on the table's test split",
    "tune": "search for good options of fit (resumable, several processes at once)",
    "crossfit": "train an agent for each fold, so that none is asked what it was trained on (resumable)",
    "composite": "train a reranker that predicts the answer's ROUGE-L from what others say",
    "export": "write the inference checkpoint of a trained agent",
    "search": "choose the chunks for a query",
    "answer": "choose the chunks for a query and answer from them",
    "evaluate": "methods × data sets × chunk sizes × budgets → records and tables (resumable)",
    "report": "an evaluation → a page of HTML, tables as Markdown",
}
USER_ERROR = 2
READER_GONE = 141  # as a shell has it for SIGPIPE
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DATABASE_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_REQUIRED = re.compile(r"(arguments are required: )([\w., ]+)")
OF_EXTRA_TRAIN = ("lightning", "matplotlib", "optuna", "pandas", "pyarrow", "rouge_score", "torch", "torchmetrics")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Returns:
        Exit code: 0, 2 for input that cannot be used (one line on standard error says why), 130 when interrupted, 141
        when whoever read standard output has gone.
    """
    try:
        code = _main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed as Python ends
        return READER_GONE
    return code


def _main(arguments: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print_out(_overview())
        return 0 if given else USER_ERROR
    if given[0] == "--version":
        print_out(f"corag {metadata.version('corag')}")
        return 0
    command, *rest = given
    if command not in COMMANDS:
        return _fail("", f"unknown command {command!r}; there are: {', '.join(COMMANDS)}")
    os.environ.setdefault("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    warnings.showwarning = _one_line_warning
    try:
        return _run(command, rest)
    except (InputError, GeneratorError, RerankerError, argparse.ArgumentError) as error:
        return _fail(command, _REQUIRED.sub(_as_options, str(error)))
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in OF_EXTRA_TRAIN:
            raise
        return _fail(command, f"needs the package {package!r}, which is not installed: pip install 'corag[train]'")
    except UnicodeDecodeError as error:
        return _fail(command, f"a file that was given is not UTF-8 text (byte {error.start}); save it as UTF-8")
    except KeyboardInterrupt:
        return _fail(command, "interrupted; the same command goes on where it can") and 130
    except Exception as error:
        if (reason := _refused_by_disk(error)) is None:
            raise
        return _fail(command, reason)


def _run(command: str, rest: Sequence[str]) -> int:
    from corag_agent.commands.parser import make_parser

    module = importlib.import_module(f"corag_agent.commands.{command}")
    rest = [_underscored(word) for word in rest]
    if hasattr(module, "run_arguments"):  # Lightning's own command line takes over
        return module.run_arguments(rest) or 0
    parser = make_parser(f"corag {command}", COMMANDS[command], module.EXAMPLE, getattr(module, "DEFAULTS", ()))
    module.add_arguments(parser)
    try:
        parsed = parser.parse_args(rest)
    except SystemExit as end:  # after --help or --print_config
        return int(end.code or 0)
    return module.run(parser.instantiate(parsed), _named(rest, parser.groups or {})) or 0


def _named(words: Sequence[str], groups: Collection[str]) -> frozenset[str]:
    """Options on a command line, by dotted name; those of a group that is given as one value, too.

    Example:
        >>> sorted(_named(["--json", "--search", "{iterations: 5}", "--search.budget=3"], ["search"]))
        ['json', 'search', 'search.budget', 'search.iterations']
    """
    import yaml

    named = set()
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("--"):
            option, sign, value = word.removeprefix("--").partition("=")
            value = value if sign else after
            # The parser has read it already; another string is the name of a file.
            members = yaml.safe_load(value) if option in groups and value.lstrip().startswith("{") else {}
            named |= {option, *(f"{option}.{name}" for name in members)}
    return frozenset(named)


def _underscored(word: str) -> str:
    """An option as files name it: `--dry-run` is `--dry_run`. Keys below an option, as a model's name, stay."""
    end = min(word.find(sign) % (len(word) + 1) for sign in "=.")
    return "--" + word[2:end].replace("-", "_") + word[end:] if word.startswith("--") else word


def _as_options(found: re.Match[str]) -> str:
    """Keys as they are written on the command line: `data` is `--data`, `fit.data.labels` is `--data.labels`."""
    keys = (key.split(".", 1)[1] if key.partition(".")[0] in COMMANDS else key for key in found[2].split(", "))
    return found[1] + ", ".join(f"--{key}" for key in keys)


def print_out(text: str) -> None:
    """One line or more on standard output."""
    sys.stdout.write(text + "\n")


def print_json(value: Any) -> None:
    """One JSON document on one line of standard output."""
    print_out(json.dumps(value, ensure_ascii=False))


def _fail(command: str, message: str) -> int:
    sys.stderr.write(f"corag {command}".rstrip() + f": {' '.join(message.split())}\n")
    return USER_ERROR


def _refused_by_disk(error: Exception) -> str | None:
    """What a path or a full disk made impossible, and the remedy; None for an error of another kind."""
    behind: BaseException | None = error
    while behind is not None:  # libraries wrap what the system said
        if isinstance(behind, OSError) and behind.errno in _FULL:
            full = behind.filename2 or behind.filename  # of a copy the second is the new file
            where = f"{full}: " if full else ""
            return f"{where}{os.strerror(behind.errno)}; free some space or name another place, then run it again"
        if isinstance(behind, sqlite3.Error) and getattr(behind, "sqlite_errorcode", 0) & 0xFF in _DATABASE_DISK:
            return f"{behind}; free some space or name another place, then run it again"
        behind = behind.__cause__ or behind.__context__
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; check the path and its permissions"
    return None


def _one_line_warning(message: Any, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"corag: warning: {' '.join(str(message).split())}\n")


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "usage: corag COMMAND [options]",
            "",
            "Budgeted, order-aware context selection for retrieval-augmented generation (CORAG, arXiv:2411.00744).",
            "",
            *lines,
            "",
            "`corag COMMAND --help` shows options and an example.",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())

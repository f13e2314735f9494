"""`corag tune`: Optuna's search for good options of `corag fit`."""

from __future__ import annotations

import argparse
from collections.abc import Set
from dataclasses import fields
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, options_set
from corag_agent.tuning.options import TuneOptions
from corag_search.errors import InputError
from corag_search.shipped import shipped

EXAMPLE = """  corag tune --data.labels labels.parquet --output runs/tune
  corag tune --config my_space.yaml --data.labels labels.parquet --output runs/tune --trials 200 --time-limit 3600
  corag tune --data.labels labels.parquet --fit-config configs/train_gpu.yaml --set trainer.max_epochs=30
  corag tune --data.labels labels.parquet --output runs/tune --storage journal:runs/tune/study.log   # in several shells
Run it again after an interruption: finished trials are kept, and count. Then:
  corag fit --config runs/tune/best.yaml --output runs/agent"""
DEFAULTS = (str(shipped("configs") / "tune.yaml"),)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data.labels", type=str | None, default=None, help="The label table, NAME.parquet.")
    parser.add_argument("--output", type=Path, default=Path("runs/tune"), help="Directory of trials and results.")
    parser.add_argument(
        "--storage",
        type=str | None,
        default=None,
        help="sqlite:PATH or journal:PATH (which works on shared folders too); study.sqlite in --output otherwise.",
    )
    # Not `dict[str, Any]`, in which classes that are named would be built.
    parser.add_argument("--space", type=dict, default={}, help="Options of `corag fit` to vary, by key; in a file.")
    parser.add_argument("--fit", type=dict, default={}, help="Options of `corag fit` for all trials; in a file.")
    for name, text in (("fit_config", "YAML files of `corag fit`, below `fit`."), ("set", "KEY=VALUE, above `fit`.")):
        parser.add_argument(f"--{name}", type=str, nargs="+", action="extend", default=[], help=text)
    parser.add_class_arguments(TuneOptions, None)
    add_json(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.tuning.report import BEST
    from corag_agent.tuning.tune import tune

    labels = arguments.data.labels
    if labels is None:
        raise InputError("--data.labels is required: the table to train on, which `corag label` makes")
    options = TuneOptions(**{field.name: getattr(arguments, field.name) for field in fields(TuneOptions)})
    if nested := sorted(name for name in named if name.startswith(("fit.", "space."))):
        raise InputError(f"--{nested[0]} belongs in a file; on the command line, --set KEY=VALUE sets options of fit")
    fit = {**arguments.fit, **options_set(arguments.set), "data.labels": labels}
    report = tune(arguments.space, fit, arguments.output, options, arguments.storage, arguments.fit_config)
    if arguments.json:
        print_json(report.to_dict(arguments.output))
        return
    if report.ranked:
        print_out(report.table())
    print_out(report.summary())
    if report.ranked:
        print_out(f"best configuration: {arguments.output / BEST}")

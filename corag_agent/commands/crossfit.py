"""`corag crossfit`: an agent for each fold of a label table, so that none answers what it was trained on."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, options_set
from corag_search.errors import InputError

EXAMPLE = """  corag crossfit --data.labels labels.parquet --output runs/agents
  corag crossfit --data.labels labels.parquet --output runs/agents --folds 10 --set data.train_on=all
  corag crossfit --data.labels labels.parquet --output runs/agents --fit-config my_training.yaml
Run it again after an interruption: agents of the same labels and configuration are kept. Then:
  corag evaluate --config configs/evaluate.yaml --out runs/evaluation --agent runs/agents"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data.labels", type=str | None, default=None, help="The label table, NAME.parquet.")
    parser.add_argument("--output", type=Path, default=Path("runs/agents"), help="Directory of the agents.")
    parser.add_argument("--folds", type=int, default=5, help="By document: so many agents, each without one of them.")
    for name, text in (("fit_config", "YAML files of `corag fit`."), ("set", "KEY=VALUE of `corag fit`, above them.")):
        parser.add_argument(f"--{name}", type=str, nargs="+", action="extend", default=[], help=text)
    add_json(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.crossfit import crossfit

    labels = arguments.data.labels
    if labels is None:
        raise InputError("--data.labels is required: the table to train on, which `corag label` makes")
    fit = options_set(arguments.set)
    made = crossfit(labels, arguments.output, arguments.folds, arguments.fit_config, fit)
    if arguments.json:
        print_json(
            {
                "agents": str(arguments.output),
                "folds": made.index.folds,
                "trained": list(made.trained),
                "questions": made.questions,
                "rougeL": made.rougeL,
                "fixed_rougeL": made.fixed_rougeL,
            }
        )
        return
    print_out(
        f"{made.questions} questions, each by the agent that has not seen it: ROUGE-L {made.rougeL:.4f}; by the best "
        f"fixed configuration of the other folds: {made.fixed_rougeL:.4f}"
    )
    kept = made.index.folds - len(made.trained)
    print_out(f"{made.index.folds} agents, {len(made.trained)} trained now, {kept} kept → {arguments.output}")

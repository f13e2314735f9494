"""`corag demo`: the whole chain on the embedded models."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.commands.parser import add_pipeline, check_idle, pipeline_of
from corag_search.shipped import shipped

EXAMPLE = "  corag demo --out runs/demo"
DEFAULTS = (str(shipped("configs") / "demo.yaml"),)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="Directory of all that is made.")
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.demo import run_demo

    check_idle(named, {"store", "agent"}, "on the demo, which makes its own")
    run_demo(arguments.out, pipeline_of(arguments))

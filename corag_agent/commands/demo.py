"""`corag demo`: the whole chain on the embedded models."""

from __future__ import annotations

import argparse
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_search.shipped import shipped

EXAMPLE = "  corag demo --out runs/demo"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="Directory of all that is made.")
    parser.add_argument("--pipeline", type=Path, default=shipped("configs") / "demo.yaml", help="Pipeline settings.")


def run(arguments: argparse.Namespace) -> None:
    from corag_agent.demo import run_demo

    run_demo(arguments.out, arguments.pipeline)

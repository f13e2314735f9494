"""`corag export`: the inference checkpoint of a trained agent."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json

EXAMPLE = "  corag export --checkpoint runs/agent/checkpoints/best.ckpt --out runs/agent/export"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="A .ckpt file that `corag fit` wrote.")
    parser.add_argument("--out", type=Path, required=True, help="Directory to write, or an earlier export to replace.")
    add_json(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.export import export

    out = export(arguments.checkpoint, arguments.out)
    files = sorted(path.name for path in out.iterdir())
    if arguments.json:
        print_json({"agent": str(out), "files": files})
    else:
        print_out(f"{', '.join(files)} → {out}")

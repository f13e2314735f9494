"""`corag export`: the inference checkpoint of a trained agent."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, check_about

EXAMPLE = """  corag export --checkpoint runs/agent/checkpoints/best.ckpt --out runs/agent/export
  corag export --checkpoint runs/agent/checkpoints/best.ckpt --out runs/agent/export --labels runs/labels.parquet
  corag export --checkpoint runs/agent/checkpoints/best.ckpt --out runs/agent/export --onnx --push OWNER/NAME"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, required=True, help="A .ckpt file that `corag fit` wrote.")
    parser.add_argument("--out", type=Path, required=True, help="Directory to write, or an earlier export to replace.")
    parser.add_argument(
        "--labels", type=Path | None, default=None, help="Label table to compare the agent on, for the model card."
    )
    parser.add_argument("--split", type=str, default="test", help="With --labels: train, val or test.")
    parser.add_argument("--licence", type=str, default="apache-2.0", help="Of the weights, as an SPDX name.")
    parser.add_argument("--onnx", action="store_true", help="Write model.onnx too.")
    parser.add_argument(
        "--push", type=str | None, default=None, metavar="OWNER/NAME", help="Upload the export to the model hub."
    )
    parser.add_argument("--private", action="store_true", help="With --push: a repository that is made is private.")
    add_json(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.export import export

    check_about(arguments, named, {"split": ("labels",), "private": ("push",)})
    out = export(
        arguments.checkpoint,
        arguments.out,
        licence=arguments.licence,
        labels=arguments.labels,
        split=arguments.split,
        onnx=arguments.onnx,
    )
    files = sorted(path.name for path in out.iterdir())
    if not arguments.json:
        print_out(f"{', '.join(files)} → {out}")
    pushed = _pushed(out, arguments)
    if arguments.json:
        print_json({"agent": str(out), "files": files} | ({"pushed": pushed} if pushed else {}))
    elif pushed:
        print_out(f"pushed → {pushed}")


def _pushed(out: Path, arguments: argparse.Namespace) -> str | None:
    """Address of the commit."""
    if arguments.push is None:
        return None
    from corag_agent.hub import push_to_hub

    return push_to_hub(out, arguments.push, private=arguments.private)

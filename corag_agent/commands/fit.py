"""`corag fit`: Lightning training of the configuration agent; its own command line reads the options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from corag_agent.cli import print_out


def run_arguments(arguments: Sequence[str]) -> None:
    from corag_agent.training import training_cli

    try:
        cli = training_cli(["fit", *arguments])
    except SystemExit:  # after --help or --print_config
        return
    best: Any = cli.trainer.checkpoint_callback
    path, score = getattr(best, "best_model_path", ""), getattr(best, "best_model_score", None)
    if cli.trainer.is_global_zero and path and score is not None:
        print_out(f"best checkpoint ({best.monitor} {float(score):.4f}): {_named(path)}")


def _named(path: str) -> Path:
    """The path from the working directory where it lies in there."""
    whole, here = Path(path), Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole

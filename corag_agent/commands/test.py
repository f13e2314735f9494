"""`corag test`: metrics of a trained agent on the table's test split; Lightning's command line reads the options."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence


def run_arguments(arguments: Sequence[str]) -> None:
    from corag_agent.training import training_cli

    with contextlib.suppress(SystemExit):  # after --help or --print_config
        training_cli(["test", *arguments])

"""`corag test`: metrics of a trained agent on the table's test split; Lightning's command line reads the options."""

from __future__ import annotations

from collections.abc import Sequence


def run_arguments(arguments: Sequence[str]) -> None:
    from corag_agent.training import training_cli

    try:
        training_cli(["test", *arguments])
    except SystemExit as end:
        if end.code:  # Lightning's answer to Ctrl-C
            raise KeyboardInterrupt from end

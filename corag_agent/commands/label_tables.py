"""What `corag label` does with finished tables: say what training keeps of one, and join several."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import check_idle
from corag_search.errors import InputError

if TYPE_CHECKING:
    from data_prep.selection import BestLabels

# Options that say something about others, of which one must be given.
ABOUT = {
    **dict.fromkeys(("minimum_gain", "gain_mode", "noise"), ("select", "merge")),
    "probe": ("dry_run",),
}
_SELECTION = {"config", "select", "merge", "minimum_gain", "gain_mode", "noise", "json"}
# All that these heed, which label nothing.
HEEDED = {"select": _SELECTION, "merge": {*_SELECTION, "out", "without_texts"}}


def add_tables(parser: ArgumentParser) -> None:
    """Options of the selection, and those that label nothing."""
    parser.add_argument(
        "--select", type=Path | None, default=None, help="Label nothing; say what training keeps of this table."
    )
    parser.add_argument(
        "--merge", type=Path, nargs="+", default=None, help="Label nothing; join these tables into one, --out."
    )
    parser.add_argument(
        "--without_texts",
        action="store_true",
        help="With --merge, also of a single table: leave the reference answers out, so that it can be published.",
    )
    parser.add_argument(
        "--minimum_gain", type=float, default=0.1, help="With --select or --merge: lead that a question needs."
    )
    parser.add_argument(
        "--gain_mode", type=str, default="relative", help="With --select or --merge: relative or absolute."
    )
    parser.add_argument(
        "--noise",
        type=str,
        default="keep",
        help="With --select or --merge: questions whose repeated scores disagree are to keep, weight or drop.",
    )


def run_on_tables(arguments: argparse.Namespace, named: Set[str]) -> bool:
    """Do what --select or --merge ask for; False when neither was given.

    Args:
        arguments: Parsed.
        named: Options on the command line.

    Raises:
        InputError: Both were given, or an option that they do not heed, or a table is unusable.
    """
    from corag_agent.evaluation.label_noise import NOISE_HEADER, noise_of, noise_rows
    from corag_agent.evaluation.text_table import text_table
    from data_prep.label_run import check_table_name
    from data_prep.merge import merge_tables
    from data_prep.selection import choose_labels
    from data_prep.table import LabelTable

    if arguments.without_texts and arguments.merge is None:
        raise InputError("without_texts writes a new table; name the old one with --merge and the new one with --out")
    if arguments.select is None and arguments.merge is None:
        return False
    given = "select" if arguments.select is not None else "merge"
    if arguments.rescore is not None:
        raise InputError(f"{given} and rescore were both given; score the table anew first, then use the new one")
    if arguments.select is not None and arguments.merge is not None:
        raise InputError("select and merge were both given; merge first, then select from the new table")
    check_idle(named, vars(arguments).keys() - HEEDED[given], f"beside --{given}, which labels nothing")
    if arguments.select is not None:
        table = LabelTable.read(arguments.select)
    else:
        if arguments.out is None:
            raise InputError("merge needs a name for the new table; give --out ALL.parquet")
        check_table_name(arguments.out)
        table = merge_tables([LabelTable.read(path) for path in arguments.merge])
        if arguments.without_texts:
            table = table.without_texts()
        table.write(arguments.out)
    chosen = choose_labels(table, arguments.minimum_gain, arguments.gain_mode, arguments.noise)
    noise = [] if table.repeats is None else noise_of(table)
    if arguments.json:
        print_json({"labels": str(arguments.select or arguments.out), **_summary(chosen), "noise": noise})
        return True
    print_selection(chosen)
    if noise:
        print_out(text_table(NOISE_HEADER, noise_rows(noise)))
    return True


def print_selection(chosen: BestLabels) -> None:
    """What is kept, why the rest fell out, and what the best labels are; warns of rerankers with few examples."""
    from corag_agent.evaluation.text_table import text_table

    print_out(text_table(("", "", "questions"), chosen.summary()))
    rare = chosen.rare()
    if rare:
        counts = ", ".join(f"{name} ({count})" for name, count in rare.items())
        warnings.warn(
            f"fewer than ten questions that are kept have the best reranker {counts}; little can be learned of when to "
            "choose it: label more questions, or lower minimum_gain",
            stacklevel=2,
        )


def _summary(chosen: BestLabels) -> dict[str, Any]:
    kept = chosen.reranker[chosen.kept]
    return {
        "questions": len(chosen.question_ids),
        "kept": len(kept),
        "best": {name: int((kept == index).sum()) for index, name in enumerate(chosen.rerankers)},
        "agreement": None if chosen.agreement is None else float(chosen.agreement.mean()),
    }

"""`corag label`: grid searches and answers → label table."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, add_pipeline, pipeline_of
from data_prep.grid import LabelGrid

EXAMPLE = """  corag label --data demo --out runs/labels.parquet
  corag label --config configs/local.yaml --data squad:dev.json --limit 50 --out runs/labels.parquet
Run it again after an interruption: finished questions are kept."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=str, required=True, help="FORMAT:PATH with questions and gold passages.")
    parser.add_argument("--out", type=Path, required=True, help="The table, ending in .parquet.")
    parser.add_argument("--limit", type=int | None, default=None, help="Label a sample of this many questions.")
    parser.add_argument("--seed", type=int, default=0, help="Of the sample and of the splits by document.")
    parser.add_argument("--workers", type=int, default=1, help="Questions labelled at a time.")
    parser.add_class_arguments(LabelGrid, "grid")
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.evaluation.text_table import text_table
    from data_prep.label_job import run_label_job
    from data_prep.readers import read_dataset
    from data_prep.selection import choose_labels

    dataset = read_dataset(arguments.data)
    chosen = dataset if arguments.limit is None else dataset.select(arguments.limit, arguments.seed)
    table, counts = run_label_job(
        dataset,
        chosen.questions,
        pipeline_of(arguments),
        arguments.grid,
        arguments.out,
        seed=arguments.seed,
        workers=arguments.workers,
    )
    if arguments.json:
        print_json({"labels": str(arguments.out), "questions": len(table), **counts})
        return
    print_out(text_table(("", "", "questions"), choose_labels(table).summary()))
    work = ", ".join(f"{count:,} {what}" for what, count in counts.items())
    print_out(f"{len(table)} questions, {work} → {arguments.out}")

"""`corag index`: documents → chunks → embeddings → store."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, add_pipeline, pipeline_of

EXAMPLE = """  corag index --data jsonl:my_corpus --out runs/store
  corag index --config configs/local.yaml --data squad:dev.json --chunk_size 128 --out runs/store"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=str, required=True, help="FORMAT:PATH, such as jsonl:my_corpus or squad:dev.json."
    )
    parser.add_argument("--out", type=Path, required=True, help="Directory of the store.")
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_search.files import check_replaceable
    from corag_search.store import STORE
    from data_prep.corpus import build_store
    from data_prep.readers import read_dataset

    check_replaceable(arguments.out, STORE)
    store = build_store(read_dataset(arguments.data), pipeline_of(arguments))
    store.save(arguments.out)
    tokens = sum(chunk.cost for chunk in store.chunks)
    documents = len({chunk.metadata["document"] for chunk in store.chunks})
    if arguments.json:
        print_json({"store": str(arguments.out), "documents": documents, "chunks": len(store), "tokens": tokens})
    else:
        print_out(f"{documents} documents, {len(store)} chunks, {tokens:,} tokens → {arguments.out}")

"""`corag index`: documents → chunks → embeddings → store."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, add_pipeline, check_idle, check_store, pipeline_of
from corag_search.errors import InputError
from corag_search.store import VectorStore

EXAMPLE = """  corag index --data jsonl:my_corpus --out runs/store
  corag index --config configs/local.yaml --data squad:dev.json --chunk_size 128 --out runs/store
  corag index --data jsonl:my_corpus --index.kind hnsw --retrieval hybrid --out runs/store
  corag index --data jsonl:my_corpus --token_vectors int8 --out runs/store
  corag index --data jsonl:more --add --out runs/store
  corag index --remove handbook notes --out runs/store"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=str, help="FORMAT:PATH, such as jsonl:my_corpus or squad:dev.json.")
    parser.add_argument("--out", type=Path, required=True, help="Directory of the store.")
    parser.add_argument("--add", action="store_true", help="Add the documents to the store that is there.")
    parser.add_argument(
        "--remove",
        type=str,
        nargs="+",
        metavar="DOC",
        help="Documents to remove from the store that is there, by id; with --add, before the new ones are added.",
    )
    parser.add_argument(
        "--token_vectors",
        type=Literal["int8", "float16"],
        default=None,
        help="Also write the chunks' token vectors, to OUT.tokens, so that maxsim does not encode candidates again. "
        "Those that are there follow --add and --remove.",
    )
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_search.files import changing_alone, check_replaceable
    from corag_search.store import STORE
    from corag_search.token_vectors import TOKEN_VECTORS, beside

    _check_task(arguments, named)
    check_replaceable(arguments.out, STORE)
    check_replaceable(beside(arguments.out), TOKEN_VECTORS)
    with changing_alone(arguments.out):
        store = _changed(arguments, named) if arguments.add or arguments.remove else _built(arguments)
        store.save(arguments.out)
        _write_token_vectors(arguments, store)
    documents, tokens = set(), 0
    for chunk in store.chunks:
        documents.add(chunk.metadata.get("document"))
        tokens += chunk.cost
    if arguments.json:
        print_json({"store": str(arguments.out), "documents": len(documents), "chunks": len(store), "tokens": tokens})
    else:
        print_out(f"{len(documents)} documents, {len(store)} chunks, {tokens:,} tokens → {arguments.out}")


def _check_task(arguments: argparse.Namespace, named: Set[str]) -> None:
    if arguments.data is None and not arguments.remove:
        raise InputError("--data is required; name the documents to index, such as --data jsonl:my_corpus")
    if arguments.data is not None and arguments.remove and not arguments.add:
        raise InputError("--remove with --data needs --add, to put the new documents into the store that is there")
    if arguments.data is None and arguments.add:
        raise InputError("--add needs --data; name the documents to add, such as --data jsonl:more")
    check_idle(named, {"store"}, "beside --out, which names the store")
    if arguments.data is None:
        check_idle(named, {"embedder", "tokenizer", "retrieval"}, "beside --remove alone, which embeds nothing")


def _write_token_vectors(arguments: argparse.Namespace, store: VectorStore) -> None:
    """Write those that are asked for, and bring those that are there up to date."""
    from corag_search.rerankers import load_reranker
    from corag_search.token_vectors import TokenVectors, beside

    place = beside(arguments.out)
    if arguments.token_vectors is None and not place.is_dir():
        return
    options = pipeline_of(arguments).rerankers.get("maxsim", {})
    maxsim: Any = load_reranker("maxsim", **options | {"token_vectors": None})
    if arguments.token_vectors is None:
        TokenVectors.load(place).update(store.chunks, maxsim.encoder)
    else:
        TokenVectors.build(place, store.chunks, maxsim.encoder, arguments.token_vectors)


def _built(arguments: argparse.Namespace) -> VectorStore:
    from data_prep.corpus import store_of_documents
    from data_prep.readers import iterate_documents

    return store_of_documents(iterate_documents(arguments.data), pipeline_of(arguments))


def _changed(arguments: argparse.Namespace, named: Set[str]) -> VectorStore:
    from data_prep.corpus import extended_store
    from data_prep.readers import iterate_documents

    config = pipeline_of(arguments)
    check_store(arguments.out, config, named)
    store, remove = VectorStore.load(arguments.out), arguments.remove or ()
    if not arguments.add:
        return store.remove(remove)
    return extended_store(store, iterate_documents(arguments.data), config, remove=remove)

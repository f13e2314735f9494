"""`corag composite`: label tables → a reranker that predicts the answer's ROUGE-L."""

from __future__ import annotations

import argparse
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.cli import print_json, print_out
from corag_agent.commands.parser import add_json, add_pipeline, check_idle, pipeline_of
from corag_agent.composite.fitting import STRENGTH
from corag_agent.composite.training import FOLDS, TrainedComposite
from corag_search.errors import InputError
from data_prep.readers import ReaderOptions
from data_prep.table_files import SPLITS

EXAMPLE = """  corag composite --config labels.yaml --labels runs/a.parquet --data squad:a.json --store runs/a.store \\
      --out runs/composite
  corag composite --config labels.yaml --labels runs/a.parquet runs/b.parquet --data squad:a.json squad:b.json \\
      --stores runs/a.store runs/b.store --out runs/composite
  corag composite --config labels.yaml --labels runs/merged.parquet --data squad:a.json squad:b.json \\
      --stores runs/a.store runs/b.store --out runs/composite
Then, in a configuration: rerankers: {composite: {path: runs/composite}}. The parts are the configured rerankers."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--labels", type=Path, nargs="+", required=True, help="Tables of `corag label`.")
    parser.add_argument(
        "--data",
        type=str,
        nargs="+",
        required=True,
        help="FORMAT:PATH that was labelled; one for all, or each table's, or each that a merged table is of.",
    )
    parser.add_argument(
        "--stores", type=Path, nargs="+", default=None, help="A store for each --data, in place of --store."
    )
    parser.add_argument("--out", type=Path, required=True, help="Directory to write, or an earlier composite.")
    parser.add_argument(
        "--splits",
        type=str,
        nargs="+",
        default=list(SPLITS),
        help="Labelled questions to train on; the rest stays unseen.",
    )
    parser.add_argument("--compose", type=int | None, default=None, help="As in labelling, for compound questions.")
    parser.add_argument("--folds", type=int, default=FOLDS, help="Of the cross-validation, by document.")
    parser.add_argument("--strength", type=float, default=STRENGTH, help="Of the penalty on the weights.")
    parser.add_argument("--seed", type=int, default=0, help="Of folds, and of composing as in labelling.")
    parser.add_class_arguments(ReaderOptions, "reader")
    add_json(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    from corag_agent.composite.merged import is_merged, sources_of
    from corag_agent.composite.seen import of_splits, seen_of
    from corag_agent.composite.sources import Source, known_questions, load_parts, one_each
    from corag_agent.composite.training import train_composite, write_composite
    from corag_agent.seen import table_digest
    from corag_search.files import check_replaceable
    from corag_search.rerankers.composite_model import COMPOSITE
    from corag_search.store import VectorStore
    from data_prep.progress import progress_bar
    from data_prep.readers import read_dataset
    from data_prep.table import LabelTable

    config = pipeline_of(arguments)
    if arguments.stores is not None:
        check_idle(named, {"store"}, "beside --stores")
    check_replaceable(arguments.out, COMPOSITE.directory)  # before the work, not only at its end
    if arguments.stores is None and config.store is None:
        raise InputError("store is not set; name the directory that was labelled with, or --stores with one for each")
    paths = arguments.labels
    tables = {path: LabelTable.read(path) for path in paths}
    merged = next((path for path, table in tables.items() if is_merged(table)), None)
    if merged is not None and len(paths) > 1:
        raise InputError(f"{merged} is merged of several data sets; give it alone, with --data and --stores in pairs")
    stores = arguments.stores or [config.store]
    count = len(paths) if merged is None else max(len(arguments.data), len(stores))
    of = "label tables" if merged is None else "data sets of the merged table"
    data, stores = one_each("data", arguments.data, count, of), one_each("stores", stores, count, of)
    if len({path.name for path in paths}) < len(paths):
        raise InputError(f"labels must be tables of different names, got {', '.join(path.name for path in paths)}")
    parts, identities = load_parts(config.rerankers, tables)
    datasets = {name: read_dataset(name, arguments.reader, seed=arguments.seed) for name in dict.fromkeys(data)}
    known = {name: known_questions(own, arguments.compose, arguments.seed) for name, own in datasets.items()}
    given = [(datasets[name], VectorStore.load(store), known[name]) for name, store in zip(data, stores, strict=True)]
    if merged is not None:
        sources = sources_of(merged, tables[merged], given)
    else:
        sources = [Source.of(path, table, *own) for (path, table), own in zip(tables.items(), given, strict=True)]
    sources = of_splits(sources, arguments.splits)
    settings = {name: getattr(arguments, name) for name in ("folds", "strength", "seed")}
    with progress_bar("score the labelled orders", sum(len(source.table) for source in sources)) as advance:
        trained = train_composite(sources, parts, identities, **settings, progress=advance)
    fingerprints = {source.name: source.table.fingerprint for source in sources}
    digests = {path.name.removesuffix(".parquet"): table_digest(table) for path, table in tables.items()}
    seen = seen_of(sources, arguments.splits, digests)
    write_composite(trained, arguments.out, fingerprints, settings, seen)
    _print(trained, arguments)


def _print(trained: TrainedComposite, arguments: argparse.Namespace) -> None:
    from corag_agent.composite.card import HEADER, rows_of, weight_rows
    from corag_agent.evaluation.text_table import text_table

    if arguments.json:
        print_json(
            {
                "composite": str(arguments.out),
                "questions": trained.questions,
                "orders": trained.orders,
                "weights": dict(weight_rows(trained)),
                "held_out": [dict(zip(HEADER, row, strict=True)) for row in rows_of(trained.choosers)],
            }
        )
        return
    for name, choosers in {"held out by document": trained.choosers, **trained.by_source}.items():
        title = f"{name}: {len(choosers[0].rouge)} questions, choosing among the orders that have an outcome"
        print_out(text_table(HEADER, rows_of(choosers), title))
    print_out(text_table(("feature", "ROUGE-L by standard deviation"), weight_rows(trained)))
    print_out(f"{trained.questions} questions, {trained.orders:,} orders → {arguments.out}")

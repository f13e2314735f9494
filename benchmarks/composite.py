"""What the composite reranker is worth inside the search, on questions that it has not seen.

    corag composite … --splits train val --out runs/composite.heldout
    corag evaluate --config configs/evaluate.yaml --config configs/evaluate_composite.yaml --out runs/composite
    python benchmarks/composite.py runs/composite

Only questions of the test split are shown. Its rivals are the tree search with each of its parts at the same λ, and
what is best without it on the train and validation questions of the run: a part with its λ, NaiveRAG's and the best
single chunk's reranker.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from corag_agent.card import markdown_table
from corag_agent.evaluation.intervals import paired_bootstrap
from corag_agent.evaluation.records import EvaluationRun

COMPOSITE, PRICE, TREE = "composite", "cost_coefficient", "tree"
RIVALS = ("naive_rag", "best_single")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = EvaluationRun.read(parser.parse_args().run)
    key = ["dataset", "question_id"]
    records = run.succeeded.merge(run.questions[[*key, "split"]], on=key)
    prices = [json.loads(settings).get(PRICE) for settings in records["settings"]]
    records = records.assign(price=prices, question=records["dataset"] + "/" + records["question_id"])
    parts = sorted(set(records["reranker"]) - {COMPOSITE})
    same = (f"less {part}'s, same λ" for part in parts)
    rows = [row for name, own in _by_data(records) for row in _compared(name, own, parts)]
    others = ("less the best without it", *(f"less {rival}'s" for rival in RIVALS))
    print(markdown_table(("data (questions)", "λ", COMPOSITE, *same, *others), rows))


def _by_data(records: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from ((str(name), own) for name, own in records.groupby("dataset", sort=False))
    yield "all", records


def _compared(name: str, records: pd.DataFrame, parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
    means = records[(records["split"] != "test") & records["reranker"].isin(parts)]
    best = means.groupby(["method", "reranker", "price"])["rougeL"].mean()
    unseen = records[records["split"] == "test"].set_index("question")
    ways = dict(iter(unseen.groupby(["method", "reranker", "price"])))
    for price in sorted(set(records["price"])):
        own = ways[TREE, COMPOSITE, price]
        same = [_less(own, ways[TREE, part, price]) for part in parts]
        chosen = [best.xs(method, drop_level=False).idxmax() for method in (TREE, *RIVALS)]
        others = [f"{_less(own, ways[way])} {way[1]}" for way in chosen]
        others[0] += f", λ {chosen[0][2]:g}"
        yield f"{name} ({len(own)})", f"{price:g}", _shown(own), *same, *others


def _shown(way: pd.DataFrame) -> str:
    return f"{way['rougeL'].mean():.3f} ({way['prompt_tokens'].mean():.0f})"


def _less(own: pd.DataFrame, other: pd.DataFrame) -> str:
    found = paired_bootstrap(own["rougeL"].to_numpy(), other.loc[own.index, "rougeL"].to_numpy())
    return f"{other['rougeL'].mean():.3f}: {found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


if __name__ == "__main__":
    main()

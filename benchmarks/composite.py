"""What the composite reranker is worth inside the search, on questions that it has not seen.

    corag composite … --splits train val --out runs/composite.heldout
    corag evaluate --config configs/evaluate.yaml --config configs/evaluate_composite.yaml --out runs/composite
    python benchmarks/composite.py runs/composite

Only questions of the test split are shown. Its rivals are the tree search with each of its parts at the same λ, and
what is best without it: the part and λ that are best on the train and validation questions of the run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from corag_agent.card import markdown_table
from corag_agent.evaluation.intervals import paired_bootstrap
from corag_agent.evaluation.records import EvaluationRun

COMPOSITE, PRICE = "composite", "cost_coefficient"
HEAD = ("data", "questions", "λ", "composite", "rival", "rival's ROUGE-L", "composite above it by")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    run = EvaluationRun.read(parser.parse_args().run)
    key = ["dataset", "question_id"]
    records = run.succeeded.merge(run.questions[[*key, "split"]], on=key)
    prices = [json.loads(settings).get(PRICE) for settings in records["settings"]]
    records = records.assign(price=prices, question=records["dataset"] + "/" + records["question_id"])
    tree = records[records["method"] == "tree"]
    rows = [row for name, own in _parts(tree) for row in _compared(name, own)]
    print(markdown_table(HEAD, rows))


def _parts(tree: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from ((str(name), own) for name, own in tree.groupby("dataset", sort=False))
    yield "all", tree


def _compared(name: str, tree: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    seen = tree[(tree["split"] != "test") & (tree["reranker"] != COMPOSITE)]
    best = seen.groupby(["reranker", "price"])["rougeL"].mean().idxmax()
    unseen = tree[tree["split"] == "test"].set_index("question")
    ways = dict(iter(unseen.groupby(["reranker", "price"])))
    for (reranker, price), own in ways.items():
        if reranker != COMPOSITE:
            continue
        rivals = [(f"{part}, same λ", way) for (part, at), way in ways.items() if at == price and part != COMPOSITE]
        for rival, other in [*rivals, (f"best on the others: {best[0]}, λ {best[1]:g}", ways[best])]:
            yield name, str(len(own)), f"{price:g}", _shown(own), rival, _shown(other), _difference(own, other)


def _shown(way: pd.DataFrame) -> str:
    return f"{way['rougeL'].mean():.3f} ({way['prompt_tokens'].mean():.0f})"


def _difference(own: pd.DataFrame, other: pd.DataFrame) -> str:
    difference = paired_bootstrap(own["rougeL"].to_numpy(), other.loc[own.index, "rougeL"].to_numpy())
    return f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"


if __name__ == "__main__":
    main()

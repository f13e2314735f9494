"""`corag search`: the chunks for one query or a file of them."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Set
from pathlib import Path

from jsonargparse import ArgumentParser

from corag_agent.commands.parser import add_pipeline
from corag_agent.commands.queries import add_queries, ask_each
from corag_search.errors import InputError
from corag_search.files import replacing_file
from corag_search.pipeline import Selected
from corag_search.tree_page import tree_page

EXAMPLE = """  corag search --store runs/store --query "How tall is the Eiffel Tower and who built it?"
  corag search --config configs/local.yaml --store runs/store --queries questions.txt --json
  corag search --store runs/store --query "Who built it?" --tree tree.html"""

TREE_FORMATS = (".html", ".json")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # not tab and line feed


def add_arguments(parser: ArgumentParser) -> None:
    add_queries(parser)
    parser.add_argument(
        "--tree",
        type=Path | None,
        default=None,
        help="Write the search tree: a picture (.html) or data (.json). With --queries one file each: NAME-1.html, …",
    )
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    tree: Path | None = arguments.tree
    if tree is None:
        ask_each(arguments, named, "search", describe, selected_as_dict)
        return
    if tree.suffix not in TREE_FORMATS:
        raise InputError(f"tree must end in {' or '.join(TREE_FORMATS)}, got {str(tree)!r}")

    def keep(number: int, selected: Selected) -> None:
        write_tree(selected, tree if arguments.queries is None else tree.with_stem(f"{tree.stem}-{number}"))

    ask_each(arguments, named, "search", describe, selected_as_dict, keep, trace=True)


def write_tree(selected: Selected, path: Path) -> None:
    """The tree of a search made with `trace=True`, as the file's ending says."""
    assert selected.trace is not None, "it was asked for"
    if path.suffix == ".html":
        text = tree_page(selected.trace)
    else:
        text = json.dumps(selected.trace.to_dict(), ensure_ascii=False) + "\n"
    with replacing_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def describe(selected: Selected) -> str:
    """What was chosen, for people."""
    config = selected.config
    chosen = selected.prediction
    source = "configured"
    if chosen is not None:
        source = f"agent{', fallback' if chosen.fallback else ''}, confidence {chosen.confidence:.2f}"
    lines = [
        f"  reranker {selected.reranker}, iterations {config.iterations}, exploration {config.exploration:g} "
        f"({config.selection}), cost_coefficient {config.cost_coefficient:g} ({source})",
        f"  {selected.cost} of {config.budget} tokens, value {selected.value:.3f}, objective {selected.objective:.3f}, "
        f"{selected.evaluations} evaluations",
    ]
    if selected.value == 0:
        lines.append(
            f"  {selected.reranker} gives no combination more than 0: the fewest tokens won, whatever they say"
        )
    for number, chunk in enumerate(selected.chunks, 1):
        text = " ".join(chunk.text.split())
        lines.append(f"  [{number}] {chunk.id} ({chunk.cost} tokens): {text[:150]}{'…' if len(text) > 150 else ''}")
    return printable("\n".join(lines))


def printable(text: str) -> str:
    """A text without control characters, which a terminal takes for commands and a corpus may hold."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def selected_as_dict(selected: Selected) -> dict:
    """What was chosen, for programs."""
    config = selected.config
    return {
        "query": selected.query,
        "reranker": selected.reranker,
        "iterations": config.iterations,
        "exploration": config.exploration,
        "cost_coefficient": config.cost_coefficient,
        "budget": config.budget,
        "confidence": None if selected.prediction is None else selected.prediction.confidence,
        "fallback": None if selected.prediction is None else selected.prediction.fallback,
        "order": list(selected.order),
        "value": selected.value,
        "objective": selected.objective,
        "cost": selected.cost,
        "evaluations": selected.evaluations,
        "chunks": [
            {"id": chunk.id, "text": chunk.text, "cost": chunk.cost, "metadata": dict(chunk.metadata)}
            for chunk in selected.chunks
        ],
        "timings": selected.timings,
    }

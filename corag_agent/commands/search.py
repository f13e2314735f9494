"""`corag search`: the chunks for one query or a file of them."""

from __future__ import annotations

import argparse
from collections.abc import Set

from jsonargparse import ArgumentParser

from corag_agent.commands.parser import add_pipeline
from corag_agent.commands.queries import add_queries, ask_each
from corag_search.pipeline import Selected

EXAMPLE = """  corag search --store runs/store --query "How tall is the Eiffel Tower and who built it?"
  corag search --config configs/local.yaml --store runs/store --queries questions.txt --json"""


def add_arguments(parser: ArgumentParser) -> None:
    add_queries(parser)
    add_pipeline(parser)


def run(arguments: argparse.Namespace, named: Set[str]) -> None:
    ask_each(arguments, named, "search", describe, selected_as_dict)


def describe(selected: Selected) -> str:
    """What was chosen, for people."""
    config = selected.config
    source = "configured" if selected.prediction is None else f"agent, confidence {selected.prediction.confidence:.2f}"
    lines = [
        f"  reranker {selected.reranker}, iterations {config.iterations}, exploration {config.exploration:g}, "
        f"cost_coefficient {config.cost_coefficient:g} ({source})",
        f"  {selected.cost} of {config.budget} tokens, value {selected.value:.3f}, objective {selected.objective:.3f}, "
        f"{selected.evaluations} evaluations",
    ]
    for number, chunk in enumerate(selected.chunks, 1):
        text = " ".join(chunk.text.split())
        lines.append(f"  [{number}] {chunk.id} ({chunk.cost} tokens): {text[:150]}{'…' if len(text) > 150 else ''}")
    return "\n".join(lines)


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

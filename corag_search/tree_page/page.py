"""The page around the picture."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from string import Template
from typing import Any

from corag_search.policy_tree.trace import SearchTrace
from corag_search.tree_page.curve import best_by_iteration, curve_svg
from corag_search.tree_page.drawing import SHADES, shade_range, tree_svg
from corag_search.tree_page.layout import CARD, ROOT, Layout, lay_out
from corag_search.tree_page.wording import chunk_name, number, order_name

_DIGITS = 6  # after the decimal point, in the page's data


def tree_page(trace: SearchTrace) -> str:
    """A search as one HTML page that opens from disk and loads nothing.

    Args:
        trace: Of a search with `trace=True`.

    Returns:
        The page, to be saved as UTF-8.
    """
    layout = lay_out(trace)
    low, high = shade_range(trace)
    chosen = trace.nodes[trace.chosen]
    iterations = len(best_by_iteration(trace))
    return Template(_part("page.html")).substitute(
        style=_part("page.css"),
        script=_part("page.js"),
        query=escape(trace.query),
        facts=_pairs(
            {
                "reranker": trace.reranker,
                "candidates": len(trace.candidates),
                "combinations scored": f"{len(trace.nodes):,}",
                "iterations": iterations,
            }
        ),
        settings=_pairs({name: v for name, v in dataclasses.asdict(trace.config).items() if v is not None}),
        chosen=order_name(trace.order),
        outcome=f"objective {number(chosen.objective)} · R {number(chosen.score)} · "
        f"{chosen.cost} of {trace.config.budget} tokens · found in iteration {chosen.iteration}",
        chunks="".join(_chunk(trace, index) for index in trace.order),
        curve=curve_svg(trace),
        low=number(low),
        high=number(high),
        shades="".join(f'<i class="s{step}"></i>' for step in range(SHADES)),
        iterations=iterations,
        tree=tree_svg(trace, layout),
        data=_data(trace, layout),
    )


def _part(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _pairs(values: Mapping[str, Any]) -> str:
    return "".join(f"<div><dt>{name}</dt><dd>{escape(str(value))}</dd></div>" for name, value in values.items())


def _chunk(trace: SearchTrace, index: int) -> str:
    chunk = trace.candidates[index]
    return (
        f'<li><p class="source"><b>{chunk_name(index)}</b> <bdi>{escape(chunk.id)}</bdi> · {chunk.cost} tokens</p>'
        f'<p class="text" dir="auto">{escape(chunk.text)}</p></li>'
    )


def _data(trace: SearchTrace, layout: Layout) -> str:
    """What the page's script reads: the nodes column by column; without `<`, so that no text can end the script."""
    nodes = {
        field.name: [_rounded(getattr(node, field.name)) for node in trace.nodes]
        for field in dataclasses.fields(trace.nodes[0])
    }
    values = {
        "budget": trace.config.budget,
        "chosen": trace.chosen,
        "card": CARD,
        "cards": {node: place for node, place in layout.cards.items() if node != ROOT},
        "dots": layout.dots,
        "candidates": [{"id": chunk.id, "text": chunk.text, "cost": chunk.cost} for chunk in trace.candidates],
        "nodes": nodes,
    }
    return json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value

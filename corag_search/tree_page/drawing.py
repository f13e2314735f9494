"""A search tree as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator

from corag_search.policy_tree.trace import SearchTrace, TraceNode
from corag_search.tree_page.layout import CARD, COLUMN, DOT_PITCH, NAMED, ROOT, Layout, Place
from corag_search.tree_page.wording import chunk_name, number, order_name

SHADES = 9
DOT = 5.0  # radius, in pixels


def shade_range(trace: SearchTrace) -> tuple[float, float]:
    """Ends of the colour scale: lower quartile and greatest of the objectives.

    The scale shows differences among the good ones; from the least on, poor single chunks would take up most of it.
    """
    objectives = sorted(node.objective for node in trace.nodes)
    return objectives[(len(objectives) - 1) // 4], objectives[-1]


def shade(value: float, low: float, high: float) -> int:
    """Step of the colour scale, 0 … SHADES−1, in equal intervals; what is below `low` has the lowest."""
    if value >= high:
        return SHADES - 1
    if value <= low:  # which may be as high as `high`
        return 0
    return min(SHADES - 1, int(SHADES * (value - low) / (high - low)))


def tree_svg(trace: SearchTrace, layout: Layout) -> str:
    """The tree. Node i is the element `n{i}`, the line to it `e{i}`, that to the dots of node i `p{i}`.

    Only names and numbers are drawn, no text of a chunk.
    """
    return "\n".join(
        [
            f'<svg id="tree" role="tree" aria-label="policy tree" width="{layout.width:g}" '
            f'height="{layout.height:g}" viewBox="0 0 {layout.width:g} {layout.height:g}">',
            '<g id="lines">',
            *_lines(trace, layout),
            "</g>",
            '<g id="further"></g>',
            *_nodes(trace, layout),
            "</svg>",
        ]
    )


def _lines(trace: SearchTrace, layout: Layout) -> Iterator[str]:
    """From parents to children; the chosen path last, so that nothing covers it."""
    for parent, pack in layout.packs.items():
        x, y = layout.dots[pack[0]]
        yield _line(f"p{parent}", "line", 1.0, layout.cards[parent], (x - DOT_PITCH / 2, y))
    on_path = set(layout.path)
    for node in sorted(layout.cards, key=lambda node: (node in on_path, node)):
        if node != ROOT:
            left, top = layout.cards[node]
            kind = "line chosen" if node in on_path else "line"
            width = 1 + math.log2(trace.nodes[node].visits)
            end = (left, top + CARD[1] / 2)
            yield _line(f"e{node}", kind, width, layout.cards[trace.nodes[node].parents[0]], end)


def _line(name: str, kind: str, width: float, parent: Place, end: Place) -> str:
    start, middle = parent[0] + CARD[0], parent[1] + CARD[1] / 2
    trunk = parent[0] + (CARD[0] + COLUMN) / 2
    path = f"M{start:g} {middle:g}H{trunk:g}V{end[1]:g}H{end[0]:g}"
    return f'<path id="{name}" class="{kind}" style="--width:{width:.1f}px" d="{path}"/>'


def _nodes(trace: SearchTrace, layout: Layout) -> Iterator[str]:
    """From top to bottom, as screen readers and arrow keys go through them."""
    left, top = layout.cards[ROOT]
    width, height = CARD
    yield (
        f'<g class="root" transform="translate({left:g} {top:g})"><rect width="{width:g}" height="{height:g}" rx="6"/>'
        f'<text x="{width / 2:g}" y="21" text-anchor="middle">question</text></g>'
    )
    low, high = shade_range(trace)
    on_path = set(layout.path)
    named = {node for pack in layout.packs.values() for node in pack[:NAMED]}
    places = {**layout.dots, **layout.cards}
    for i in sorted(range(len(trace.nodes)), key=lambda i: (places[i][1], places[i][0])):
        node = trace.nodes[i]
        kind = f"node s{shade(node.objective, low, high)}" + (" chosen" if i in on_path else "")
        x, y = places[i]
        body = _card(node, i == trace.chosen) if i in layout.cards else _dot(node, i in named)
        spoken = f"{order_name(node.order)}, objective {number(node.objective)}, visits {node.visits}"
        if i == trace.chosen:
            spoken += ", chosen"
        yield (
            f'<g id="n{i}" class="{kind}" transform="translate({x:g} {y:g})" role="treeitem" tabindex="-1" '
            f'aria-level="{len(node.order)}" aria-selected="false" aria-label="{spoken}">{body}</g>'
        )


def _card(node: TraceNode, is_chosen: bool) -> str:
    width, height = CARD
    expanded = "" if node.expanded is None else f" · it. {node.expanded}"
    star = f'<text class="star" x="{width:g}" y="2" text-anchor="middle">★</text>' if is_chosen else ""
    return (
        f'<rect width="{width:g}" height="{height:g}" rx="6"/>'
        f'<text class="name" x="8" y="15">{chunk_name(node.order[-1])}</text>'
        f'<text x="{width - 8:g}" y="15" text-anchor="end">{number(node.objective)}</text>'
        f'<text class="small" x="8" y="28">N {node.visits}{expanded}</text>{star}'
    )


def _dot(node: TraceNode, is_named: bool) -> str:
    """The larger circle takes the pointer."""
    circles = f'<circle class="hit" r="{DOT_PITCH / 2:g}"/><circle r="{DOT:g}"/>'
    if not is_named:
        return circles
    label = f'<tspan class="name">{chunk_name(node.order[-1])}</tspan> {number(node.objective)}'
    return f'{circles}<text x="9" y="4">{label}</text>'

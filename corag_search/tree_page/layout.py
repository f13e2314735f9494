"""Where each node of a search tree stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corag_search.policy_tree.trace import SearchTrace

ROOT = -1  # its position among the parents of a trace

CARD = (88.0, 34.0)  # width and height, in pixels like all lengths here
COLUMN = 116.0
GAP = 10.0
MARGIN = 10.0
NAMED = 3  # leaves of a node that carry a label: its best ones
NAMED_PITCH = 84.0
NAMED_ROW = 20.0
DOT_PITCH = 14.0
DOTS_PER_ROW = 18

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of all nodes: the root at the top left, a column for each length of combination.

    Expanded nodes and the chosen one are cards, the others are dots, packed below their parent's cards, best first.
    A card stands level with its first child, and the chosen path comes first: it is a straight line along the top.

    Attributes:
        width: Pixels.
        height: Pixels.
        cards: Top left corner of each card by position in `SearchTrace.nodes`; -1 is the root.
        dots: Centre of each dot.
        packs: Dots of each node that has some, greatest objective first; the first `NAMED` carry a label.
        path: Positions from the root to the chosen node, through first parents.
    """

    width: float
    height: float
    cards: dict[int, Place]
    dots: dict[int, Place]
    packs: dict[int, list[int]]
    path: tuple[int, ...]


def lay_out(trace: SearchTrace) -> Layout:
    """Place every node once, beside its first parent."""
    path = path_to(trace, trace.chosen)
    inner, packs = _children(trace, path)
    cards: dict[int, Place] = {ROOT: (MARGIN, MARGIN)}
    dots: dict[int, Place] = {}
    right = bottom = MARGIN
    below = [(ROOT, iter(inner.get(ROOT, ())))]  # the way down to what is placed; no recursion, trees may be deep
    while below:
        node, children = below[-1]
        left, top = cards[node]
        child = next(children, None)
        if child is not None:
            cards[child] = (left + COLUMN, bottom)
            below.append((child, iter(inner.get(child, ()))))
            continue
        below.pop()
        right = max(right, left + CARD[0])
        if node in packs:
            pack = packs[node]
            dots.update(zip(pack, _pack(len(pack), left + COLUMN, bottom), strict=True))
            right = max(right, left + COLUMN + min(len(pack), NAMED) * NAMED_PITCH)
            bottom = dots[pack[-1]][1] + DOT_PITCH / 2 + GAP
        bottom = max(top + CARD[1] + GAP, bottom)
    return Layout(right + MARGIN, bottom - GAP + MARGIN, cards, dots, packs, path)


def path_to(trace: SearchTrace, node: int) -> tuple[int, ...]:
    """Positions from the root to a node, through first parents."""
    path = [node]
    while path[-1] != ROOT:
        path.append(trace.nodes[path[-1]].parents[0])
    return tuple(reversed(path))


def _children(trace: SearchTrace, path: Sequence[int]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Cards and dots of each node, greatest objective first; before them the one on the chosen path."""
    on_path = set(path)
    inner: dict[int, list[int]] = {}
    packs: dict[int, list[int]] = {}
    for i in sorted(range(len(trace.nodes)), key=lambda i: (i not in on_path, -trace.nodes[i].objective, i)):
        node = trace.nodes[i]
        kind = inner if node.expanded is not None or i == trace.chosen else packs
        kind.setdefault(node.parents[0], []).append(i)
    return inner, packs


def _pack(count: int, left: float, top: float) -> list[Place]:
    """Centres of the dots of one node, `[count]`: a row of labelled ones, then a grid."""
    half = DOT_PITCH / 2
    centre = top + (NAMED_ROW if count > NAMED else CARD[1]) / 2
    named = [(left + half + i * NAMED_PITCH, centre) for i in range(min(count, NAMED))]
    first = top + NAMED_ROW + half
    return named + [
        (left + half + i % DOTS_PER_ROW * DOT_PITCH, first + i // DOTS_PER_ROW * DOT_PITCH)
        for i in range(count - NAMED)
    ]

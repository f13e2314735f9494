"""How the search came forward: the greatest objective after each iteration."""

from __future__ import annotations

import math
from itertools import accumulate

from corag_search.policy_tree.trace import SearchTrace
from corag_search.tree_page.wording import number

WIDTH, HEIGHT = 320.0, 120.0  # pixels
LEFT, RIGHT, TOP, BOTTOM = 46.0, 308.0, 12.0, 96.0  # of the plotted area


def best_by_iteration(trace: SearchTrace) -> list[float]:
    """Greatest objective found up to each iteration, `[iterations]`."""
    # An iteration may find nothing new, so the last one shows only in what it expanded.
    last = max(max(node.iteration, node.expanded or 0) for node in trace.nodes)
    best = [-math.inf] * last
    for node in trace.nodes:
        best[node.iteration - 1] = max(best[node.iteration - 1], node.objective)
    return list(accumulate(best, max))


def curve_svg(trace: SearchTrace) -> str:
    """A stair; the ring is the chosen node, and the line `cursor` stands at the replayed iteration."""
    best = best_by_iteration(trace)
    chosen = trace.nodes[trace.chosen]
    least, greatest = min(best[0], chosen.objective), best[-1]

    def x(iteration: int) -> float:
        return LEFT + (RIGHT - LEFT) * (iteration - 1) / max(1, len(best) - 1)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * ((value - least) / (greatest - least) if greatest > least else 0.5)

    stair = f"M{x(1):.1f} {y(best[0]):.1f}" + "".join(f"H{x(i):.1f}V{y(v):.1f}" for i, v in enumerate(best[1:], 2))
    values = {number(value): y(value) for value in (least, greatest)}
    ticks = "".join(f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{v}</text>' for v, y in values.items())
    ends = "".join(
        f'<text x="{x(i):.1f}" y="{BOTTOM + 16:g}" text-anchor="middle">{i}</text>' for i in sorted({1, len(best)})
    )
    return (
        f'<svg id="curve" role="img" aria-label="greatest objective after each iteration: {number(best[0])} at first, '
        f'{number(best[-1])} in the end" viewBox="0 0 {WIDTH:g} {HEIGHT:g}">'
        f'<path class="axis" d="M{LEFT:g} {TOP:g}V{BOTTOM:g}H{RIGHT:g}"/>{ticks}{ends}'
        f'<text x="{(LEFT + RIGHT) / 2:g}" y="{BOTTOM + 16:g}" text-anchor="middle">iteration</text>'
        f'<path id="cursor" data-from="{x(1):g}" data-to="{x(len(best)):g}" d="M0 {TOP:g}V{BOTTOM:g}" '
        f'transform="translate({x(len(best)):g})"/><path class="stair" d="{stair}"/>'
        f'<circle class="ring" r="4.5" cx="{x(chosen.iteration):.1f}" cy="{y(chosen.objective):.1f}"/></svg>'
    )

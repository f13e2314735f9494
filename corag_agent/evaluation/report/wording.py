"""How the report names methods and stages, and writes numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from corag_agent.evaluation.best_of_half import BEST

TREE, AGENT, NAIVE, UPPER = "tree", "agent", "naive_rag", "upper"
MISSING = "–"
ORDER = "order_"  # methods whose name begins so have the tree search's chunks in another order
# Name for people, and what it is.
METHODS: Mapping[str, tuple[str, str]] = {
    AGENT: ("tree search with agent", "tree search whose reranker and settings the agent predicts from the query"),
    TREE: ("tree search", "policy-tree search with one reranker and fixed settings"),
    NAIVE: ("NaiveRAG", "vector search, one reranker, then greedy filling until the budget is spent"),
    "naive_matched": ("NaiveRAG, same tokens", "NaiveRAG stopped at the tokens that the tree search used"),
    "agent_matched": ("NaiveRAG, agent's tokens", "NaiveRAG by the agent's reranker, stopped at the agent's tokens"),
    "best_single": ("best single chunk", "the one chunk of the greatest objective"),
    "greedy_climb": ("greedy climb", "append the best chunk as long as the tree search's objective rises"),
    "agent_climb": ("climb, agent's settings", "greedy climb by the agent's reranker and settings"),
    "beam": ("beam search", "beam search on the tree search's objective"),
    "mmr": ("MMR", "maximal marginal relevance until the budget is spent"),
    "adagres": ("AdaGReS", "relevance less redundancy, with an adaptive trade-off"),
    "raptor": ("RAPTOR", "clustered summaries and chunks, by similarity until the budget is spent"),
    "hyde": ("HyDE", "NaiveRAG whose retrieval embeds a passage that the LLM makes up"),
    UPPER: ("Upper", "the best of all orders, of fewer candidates so that all can be scored"),
    "order_reversed": ("order: reversed", "the tree search's chunks, last first"),
    "order_random": ("order: random", "the tree search's chunks, shuffled"),
    "order_document": ("order: document", "the tree search's chunks as they stand in their documents"),
}
STAGE_NAMES: Mapping[str, str] = {
    "embed": "embed the query",
    "retrieve": "retrieve",
    "agent": "agent",
    "search": "choose chunks",
    "prompt": "prompt",
    "generate": "LLM's answer",
}
SETTINGS: Mapping[str, str] = {"exploration": "c (exploration)", "cost_coefficient": "λ (cost coefficient)"}


def method_name(method: str) -> str:
    """A method, for people; an unknown one as it is registered."""
    return METHODS[method][0] if method in METHODS else method


def way_name(method: str, reranker: str = "", variant: str = "") -> str:
    """A method with its reranker and what a sweep varies.

    Example:
        >>> way_name("naive_rag", "bm25"), way_name("tree", "bm25", "exploration=0.5")
        ('NaiveRAG · bm25', 'tree search · bm25 · exploration=0.5')
    """
    name = f"{method_name(method)}, best reranker" if reranker == BEST else method_name(method)
    return " · ".join(part for part in (name, "" if reranker == BEST else reranker, variant) if part)


def number(value: float, decimals: int = 3) -> str:
    """A number with a true minus sign; a dash where there is none.

    Example:
        >>> number(-0.25), number(float("nan")), number(1234.4, 0)
        ('−0.250', '–', '1,234')
    """
    if not math.isfinite(value):
        return MISSING
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text.replace("-", "−")


def signed(value: float, decimals: int = 3) -> str:
    """A difference, with its sign.

    Example:
        >>> signed(0.0401), signed(-0.0004)
        ('+0.040', '0.000')
    """
    text = number(value, decimals)
    return f"+{text}" if value > 0 and float(text.replace(",", "")) != 0 else text


def percent(value: float) -> str:
    """A share in percent, with one decimal."""
    return f"{number(100 * value, 1)} %" if math.isfinite(value) else MISSING


def signed_percent(value: float) -> str:
    """A relative difference in percent, with one decimal."""
    return f"{signed(100 * value, 1)} %" if math.isfinite(value) else MISSING


def interval_text(low: float, high: float, shown: Callable[[float], str] = number) -> str:
    """Both ends of an interval; a dash where there is none, as of a single question.

    Example:
        >>> interval_text(0.25, 0.5), interval_text(0.25, 0.5, percent), interval_text(float("nan"), float("nan"))
        ('0.250 to 0.500', '25.0 to 50.0 %', '–')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return MISSING
    return f"{shown(low).removesuffix(' %')} to {shown(high)}"


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds, with three digits that count at most."""
    value = 1000 * seconds
    return number(value, 0 if not abs(value) < 99.5 else 1 if abs(value) >= 9.95 else 2)


def counted(count: int, noun: str) -> str:
    """A count and its noun, in the plural where it must be.

    Example:
        >>> counted(1, "question"), counted(1200, "method")
        ('1 question', '1,200 methods')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

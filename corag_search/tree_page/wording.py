"""How the picture writes chunks, combinations and numbers."""

from __future__ import annotations

from collections.abc import Sequence


def chunk_name(index: int) -> str:
    """A candidate: χ and its rank in the retrieval, from 1."""
    return f"χ{index + 1}"


def order_name(order: Sequence[int]) -> str:
    """A combination, in its order."""
    return " ".join(map(chunk_name, order))


def number(value: float) -> str:
    """Three decimals, with a true minus sign."""
    return f"{value:.3f}".replace("-", "−")

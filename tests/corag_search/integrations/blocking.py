"""A reranker that waits for the event loop: were it to run on the loop's thread, neither could go on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from corag_search import Chunk

T = TypeVar("T")


class WaitsForLoop:
    """Scores only after the event loop has answered; more chunks are better."""

    name = "waits"
    order_sensitive = False
    max_tokens = None

    def __init__(self) -> None:
        self._started = threading.Event()
        self._answered = threading.Event()

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> list[float]:
        self._started.set()
        assert self._answered.wait(20), "the event loop did not go on"
        return [len(combination) / 10 for combination in combinations]

    async def beside(self, choice: Awaitable[T]) -> T:
        """What the choice gives, while the loop answers the reranker."""
        task = asyncio.ensure_future(choice)
        assert await asyncio.to_thread(self._started.wait, 20), "the reranker was never asked"
        self._answered.set()
        return await task

"""What the integrations have in common: the choice among items that a framework retrieved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from corag_search.agent import ConfigurationAgent
from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.packaged import require
from corag_search.pipeline import Corag
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.problem import check_query
from corag_search.rerankers.base import Reranker, as_reranker
from corag_search.shipped import find_checkpoint
from corag_search.texts import check_text, shown
from corag_search.tokenizers import Tokenizer

DEFAULT_BUDGET = 1024
AnyReranker = str | Reranker | Callable[..., Any]


@contextmanager
def framework(module: str, extra: str) -> Iterator[None]:
    """Around the imports of a framework: says in one line which extra is missing.

    Raises:
        InputError: The framework is not installed.
    """
    require(module, extra, f"corag_search.integrations.{extra}")
    yield


@dataclass(frozen=True, slots=True)
class Item:
    """What a framework retrieved.

    Attributes:
        id: As the framework knows it; None where it has none.
        text: What the LLM will read, and what the reranker judges.
        metadata: For rerankers that look at it.
    """

    id: str | None
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


class ItemSelector:
    """Chooses items and their order as `Corag.search` chooses chunks. Safe to share between threads.

    Args:
        budget: Tokens that the chosen items may cost together.
        reranker: Name or object; the agent's choice when None, or "bm25" without an agent.
        rerankers: Options of `load_reranker`, by the reranker's name.
        agent: Directory of an exported checkpoint, or the name of a shipped one; None for fixed settings.
        embedder: Name, or name and options, of the agent's embedder; loaded only for an agent.
        tokenizer: Counts the tokens; see `load_tokenizer`. Take the LLM's where it can be had.
        search: Other fields of `SearchConfig`; they take precedence over the agent.

    Raises:
        InputError: A bad value.
    """

    def __init__(
        self,
        budget: int = DEFAULT_BUDGET,
        reranker: AnyReranker | None = None,
        rerankers: Mapping[str, Mapping[str, Any]] | None = None,
        agent: str | None = None,
        embedder: str | Mapping[str, Any] = "minilm",
        tokenizer: str = "smollm2",
        search: Mapping[str, Any] | None = None,
    ) -> None:
        if search is not None and not isinstance(search, Mapping):
            raise InputError(f"search must be a mapping of settings, such as {{iterations: 10}}, got {shown(search)}")
        self._search = dict(search or {})
        if "budget" in self._search:
            raise InputError("search: budget is an argument of its own; take it out of search and give budget=...")
        self._reranker = reranker if reranker is None or isinstance(reranker, str) else as_reranker(reranker)
        config = PipelineConfig.from_dict(
            {
                "rerankers": rerankers or {},
                "agent": agent,
                "embedder": embedder,
                "tokenizer": tokenizer,
                "search": {**self._search, "budget": budget},
            },
            "settings",
        )
        loaded = None if config.agent is None else ConfigurationAgent.load(find_checkpoint(config.agent))
        self._corag = Corag(None, None, config, agent=loaded)

    def __deepcopy__(self, memo: dict[int, Any]) -> ItemSelector:
        """Itself: it never changes, and frameworks copy what they hold."""
        return self

    @property
    def model_name(self) -> str:
        """Who judges, for logs: the reranker, or the agent that will choose it."""
        config = self._corag.config
        if self._reranker is None:
            return config.reranker if config.agent is None else f"agent {config.agent}"
        return self._reranker if isinstance(self._reranker, str) else self._reranker.name

    def most(self, count: int) -> int:
        """How many of `count` items can be chosen at most."""
        return min(count, self._corag.config.search.max_chunks or count)

    def warm_up(self) -> None:
        """Make tokenizer, rerankers and the agent's embedder now rather than for the first query.

        Cross-encoders load their weights with it; the embedded models still do so for their first query, in seconds.

        Raises:
            InputError: A component cannot be loaded, or the embedder is not the agent's.
        """
        corag = self._corag
        _ = corag.tokenizer
        if corag.agent is not None:
            _ = corag.embedder
        if self._reranker is None:
            names: Iterable[str] = [corag.config.reranker] if corag.agent is None else corag.agent.rerankers
        else:
            names = [self._reranker] if isinstance(self._reranker, str) else []
        for name in names:
            corag.reranker(name)

    def select(self, query: str, items: Sequence[Item], budget: int | None = None) -> list[int]:
        """Choose among retrieved items.

        An item with no text is never chosen; one that repeats id and text of an earlier one is the same item.

        Args:
            query: The question.
            items: Best first.
            budget: Tokens, for this call; the configured one when None.

        Returns:
            Indices into `items`, in the found order; empty when no item has text.

        Raises:
            InputError: Empty query, a bad budget, a text that cannot be encoded as UTF-8, or every item costs more than
                the budget.
            RerankerError: The reranker or its server failed.
        """
        check_query(query)
        rows, chunks = chunks_of_items(items, self._corag.tokenizer)
        if not chunks:
            return []
        selected = self._corag.search(query, budget=budget, reranker=self._reranker, candidates=chunks, **self._search)
        return [rows[index] for index in selected.order]

    def settings(self) -> dict[str, Any]:
        """Plain values that make this selector again. Keys are not among them: rerankers know only their variables.

        Raises:
            InputError: The reranker is an object.
        """
        if not (self._reranker is None or isinstance(self._reranker, str)):
            raise InputError(
                f"reranker {self._reranker.name!r} is an object and cannot be written down; "
                "give a name that load_reranker knows, with its options in rerankers"
            )
        plain = self._corag.config.to_dict()
        return {
            "budget": plain["search"]["budget"],
            "reranker": self._reranker,
            **{name: plain[name] for name in ("rerankers", "agent", "embedder", "tokenizer")},
            "search": {name: plain["search"][name] for name in self._search},
        }


def chunks_of_items(items: Sequence[Item], tokenizer: Tokenizer) -> tuple[list[int], list[Chunk]]:
    """The items that can be chosen, as chunks whose ids are unique.

    Returns:
        Index of each chunk's item, and the chunks, both in the items' order.

    Raises:
        InputError: A text that cannot be encoded as UTF-8.
    """
    for item in items:
        check_text(f"the text of {item.id!r}", item.text)
    first = {(item.id, item.text): row for row, item in reversed(list(enumerate(items)))}
    costs = tokenizer.count([item.text for item in items])
    rows = [row for row in sorted(first.values()) if costs[row] > 0 and items[row].text.strip()]
    names = _unique([_name(items[row].id) for row in rows])
    return rows, [
        Chunk(name, items[row].text, costs[row], items[row].metadata or {})  # some frameworks let None through
        for name, row in zip(names, rows, strict=True)
    ]


def _name(id: object) -> str:
    """An id as a chunk may have it; frameworks let through numbers, and texts that no file can hold."""
    return "" if id is None else str(id).encode("utf-8", "backslashreplace").decode()


def _unique(ids: Sequence[str]) -> list[str]:
    """The ids, with a number added to each that is empty or was there before.

    Example:
        >>> _unique(["a", "", "a", "a#2"])
        ['a', '#1', 'a#2', 'a#2#3']
    """
    seen: dict[str, None] = {}
    for number, name in enumerate(ids):
        while not name or name in seen:
            name = f"{name}#{number}"
        seen[name] = None
    return list(seen)

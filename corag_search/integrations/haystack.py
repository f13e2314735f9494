"""Haystack: a ranker component. Needs the extra `haystack`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corag_search.integrations.items import DEFAULT_BUDGET, AnyReranker, Item, ItemSelector, framework

with framework("haystack", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict


@component
class CoragRanker:
    """Of the documents that a retriever returned, gives back the best combination within a budget, in the found order.

    Safe to share between threads.

    Args:
        budget: Tokens that the chosen documents may cost together; `run` can be given another.
        reranker: Name or object; the agent's choice when None, or "bm25" without an agent.
        rerankers: Options of `load_reranker`, by the reranker's name.
        agent: Directory of an exported checkpoint, or the name of a shipped one; None for fixed settings.
        embedder: Name, or name and options, of the agent's embedder; used with an agent only.
        tokenizer: Counts the tokens; see `load_tokenizer`.
        search: Other fields of `SearchConfig`; they take precedence over the agent.

    Raises:
        InputError: A bad value.

    Example:
        >>> documents = [Document(content="The tower is 330 m tall."), Document(content="Cats sleep.")]
        >>> ranker = CoragRanker(budget=50, reranker="bm25")
        >>> [document.content for document in ranker.run("How tall is the tower?", documents)["documents"]]
        ['The tower is 330 m tall.']
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
        self._selector = ItemSelector(budget, reranker, rerankers, agent, embedder, tokenizer, search)

    def warm_up(self) -> None:
        """Make tokenizer, rerankers and the agent's embedder now rather than in the first run.

        Raises:
            InputError: One of them cannot be loaded, or the embedder is not the agent's.
        """
        self._selector.warm_up()

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], budget: int | None = None) -> dict[str, list[Document]]:
        """Choose documents; the given objects come back, unchanged. A document without text is never chosen.

        Args:
            query: The question.
            documents: Best first.
            budget: Tokens, for this run; that of the component when None.

        Returns:
            `documents`: the chosen ones, in the order of the prompt.

        Raises:
            InputError: Empty query, a bad budget, or every document costs more than the budget.
            RerankerError: The reranker or its server failed.
        """
        documents = list(documents)
        items = [Item(document.id, document.content or "", document.meta) for document in documents]
        return {"documents": [documents[row] for row in self._selector.select(query, items, budget)]}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a saved pipeline; no key is among them.

        Raises:
            InputError: The reranker is an object.
        """
        return default_to_dict(self, **self._selector.settings())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CoragRanker:
        """The component that `to_dict` wrote down.

        Raises:
            InputError: A bad value.
        """
        return default_from_dict(cls, data)

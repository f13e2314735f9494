"""LangChain: a document compressor. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Sequence

from corag_search.integrations.items import Item, framework

with framework("langchain_core", "langchain"):
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document

    from corag_search.integrations.fields import SelectorFields


class CoragDocumentCompressor(SelectorFields, BaseDocumentCompressor):
    """Of the documents that a retriever returned, gives back the best combination within a budget, in the found order.

    Its fields are the arguments of `corag_search.integrations.items.ItemSelector`. Safe to share between threads.

    Raises:
        InputError: A bad value, or a model that cannot be loaded.

    Example:
        >>> documents = [Document("The tower is 330 m tall.", id="a"), Document("Cats sleep.", id="b")]
        >>> compressor = CoragDocumentCompressor(budget=50, reranker="bm25")
        >>> [document.id for document in compressor.compress_documents(documents, "How tall is the tower?")]
        ['a']
    """

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """Choose documents; the given objects come back, unchanged.

        Args:
            documents: Best first.
            query: The question.
            callbacks: Not used: no chain and no model of LangChain runs in here.

        Raises:
            InputError: Empty query, or every document costs more than the budget.
            RerankerError: The reranker or its server failed.
        """
        documents = list(documents)
        items = [Item(document.id, document.page_content, document.metadata) for document in documents]
        return [documents[row] for row in self._selector.select(query, items, self.budget)]

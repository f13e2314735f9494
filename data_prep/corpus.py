"""From documents to a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.chunking import DocumentLike, chunk_documents
from corag_search.embedders import load_embedder
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.files import check_replaceable
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.problem import check_affordable
from corag_search.store import STORE, EmbedderIdentity, VectorStore, index_kind
from corag_search.store.layout import StoreInfo
from corag_search.tokenizers import Tokenizer, load_tokenizer
from data_prep.dataset import Dataset
from data_prep.progress import progress_bar

_BATCH = 128


def build_store(
    dataset: Dataset, config: PipelineConfig, embedder: Embedder | None = None, tokenizer: Tokenizer | None = None
) -> VectorStore:
    """A store of a data set's documents; as `store_of_documents`."""
    return store_of_documents(dataset.documents, config, embedder, tokenizer)


def store_of_documents(
    documents: Iterable[DocumentLike],
    config: PipelineConfig,
    embedder: Embedder | None = None,
    tokenizer: Tokenizer | None = None,
) -> VectorStore:
    """Cut documents, embed the chunks with a progress bar, and index them.

    Args:
        documents: The corpus. Each is asked for once and not kept, so they may come from a file of any size.
        config: Names embedder, tokenizer, chunk size and index; the lexical index is made where `retrieval` needs it.
        embedder: The configured one, when it is loaded already.
        tokenizer: The configured one, when it is loaded already.

    Raises:
        InputError: An empty corpus, too few chunks for the index, or a component that cannot be loaded.
    """
    chunks = chunk_documents(documents, tokenizer or load_tokenizer(config.tokenizer), config.chunk_size)
    return _store_of(chunks, config, embedder or load_embedder(**config.embedder))


def kept_store(
    dataset: Dataset, config: PipelineConfig, folder: Path, embedder: Embedder, tokenizer: Tokenizer
) -> VectorStore:
    """The store in a folder, where it is what `build_store` would make; otherwise that is made, and takes its place.

    Args:
        dataset: The corpus.
        config: As of `store_of_documents`; the search's budget is checked before anything is embedded.
        folder: Where it is kept.
        embedder: The configured one.
        tokenizer: The configured one.

    Raises:
        InputError: As `store_of_documents`, no chunk is within the budget, or something else lies in the folder.
    """
    check_replaceable(folder, STORE)
    chunks = chunk_documents(dataset.documents, tokenizer, config.chunk_size)
    check_affordable(chunks, config.search.budget, what="chunk")
    if folder.exists():
        with suppress(InputError):  # a damaged one
            store = VectorStore.load(folder)
            if store.info == planned_store(config, embedder) and list(store.chunks) == list(chunks):
                return store
    store = _store_of(chunks, config, embedder)
    store.save(folder)
    return store


def planned_store(config: PipelineConfig, embedder: Embedder) -> StoreInfo:
    """What a store made as configured would be made of."""
    return StoreInfo(EmbedderIdentity.of(embedder), config.tokenizer, config.chunk_size, index_kind(config.index))


def _store_of(chunks: Sequence[Chunk], config: PipelineConfig, embedder: Embedder) -> VectorStore:
    info = planned_store(config, embedder)
    info.index.check(len(chunks), embedder.dimension)
    store = VectorStore.from_embeddings(
        chunks,
        _embedded(chunks, embedder),
        info.embedder,
        tokenizer=info.tokenizer,
        chunk_size=info.chunk_size,
        index=info.index,
    )
    return _with_lexical(store, config)


def extended_store(
    store: VectorStore,
    documents: Iterable[DocumentLike],
    config: PipelineConfig,
    embedder: Embedder | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    remove: Sequence[str] = (),
) -> VectorStore:
    """A store with documents added; only those are embedded, with a progress bar.

    Args:
        store: What is there.
        documents: To be added; as of `store_of_documents`.
        config: Must name the store's embedder, tokenizer and chunk size.
        embedder: The configured one, when it is loaded already.
        tokenizer: The configured one, when it is loaded already.
        remove: Ids of documents to remove first, such as those whose new versions are added.

    Raises:
        InputError: The store was made otherwise, holds one of the documents already, or lacks one to be removed.
    """
    for name, own in (("tokenizer", store.tokenizer), ("chunk_size", store.chunk_size)):
        if getattr(config, name) != own:
            raise InputError(
                f"the store was built with {name} {own!r}, the configured one is {getattr(config, name)!r}; "
                "configure the store's or build it anew with `corag index`"
            )
    embedder = embedder or load_embedder(**config.embedder)
    store.check_embedder(embedder)
    chunks = chunk_documents(documents, tokenizer or load_tokenizer(config.tokenizer), config.chunk_size)
    if remove:
        store = store.remove(remove)
    store.check_new(chunks)
    return _with_lexical(store.add_embeddings(chunks, _embedded(chunks, embedder)), config)


def _embedded(chunks: Sequence[Chunk], embedder: Embedder) -> NDArray[np.float32]:
    parts = []
    with progress_bar("embed chunks", len(chunks)) as advance:
        for start in range(0, len(chunks), _BATCH):
            batch = chunks[start : start + _BATCH]
            parts.append(embedder.encode([chunk.text for chunk in batch]))
            advance(len(batch))
    return np.concatenate(parts)


def _with_lexical(store: VectorStore, config: PipelineConfig) -> VectorStore:
    if config.retrieval != "dense":
        _ = store.lexical  # made now, it is saved with the store
    return store

"""From a data set's documents to a store."""

from __future__ import annotations

import numpy as np

from corag_search.chunking import chunk_documents
from corag_search.embedders import load_embedder
from corag_search.embedders.base import Embedder
from corag_search.pipeline_config import PipelineConfig
from corag_search.store import EmbedderIdentity, VectorStore
from corag_search.tokenizers import Tokenizer, load_tokenizer
from data_prep.dataset import Dataset
from data_prep.progress import progress_bar

_BATCH = 128


def build_store(
    dataset: Dataset, config: PipelineConfig, embedder: Embedder | None = None, tokenizer: Tokenizer | None = None
) -> VectorStore:
    """Cut a data set's documents, embed the chunks with a progress bar, and index them.

    Args:
        dataset: Its documents are the corpus.
        config: Names embedder, tokenizer and chunk size.
        embedder: The configured one, when it is loaded already.
        tokenizer: The configured one, when it is loaded already.

    Raises:
        InputError: An empty corpus, or a component that cannot be loaded.
    """
    tokenizer = tokenizer or load_tokenizer(config.tokenizer)
    chunks = chunk_documents(dataset.documents, tokenizer, config.chunk_size)
    embedder = embedder or load_embedder(**config.embedder)
    parts = []
    with progress_bar("embed chunks", len(chunks)) as advance:
        for start in range(0, len(chunks), _BATCH):
            batch = chunks[start : start + _BATCH]
            parts.append(embedder.encode([chunk.text for chunk in batch]))
            advance(len(batch))
    return VectorStore.from_embeddings(
        chunks,
        np.concatenate(parts),
        EmbedderIdentity.of(embedder),
        tokenizer=config.tokenizer,
        chunk_size=config.chunk_size,
    )

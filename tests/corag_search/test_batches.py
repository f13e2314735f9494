"""Batches hold every row once, and few shapes change no vector."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corag_search.embedders.batches import batches


@given(st.lists(st.integers(1, 70), max_size=40), st.integers(1, 12), st.booleans())
def test_every_row_once_as_it_was(lengths: list[int], size: int, few_shapes: bool) -> None:
    ids = [np.arange(1, length + 1, dtype=np.int32) for length in lengths]
    seen: list[int] = []
    before = 10**9
    for rows, padded, mask in batches(ids, size, 99, few_shapes=few_shapes):
        assert padded.shape == mask.shape and 1 <= len(rows) == len(padded) <= size
        seen += rows.tolist()
        for row, tokens, kept in zip(rows, padded, mask, strict=True):
            assert tokens[kept == 1].tolist() == ids[row].tolist() and (tokens[kept == 0] == 99).all()
            assert kept.tolist() == sorted(kept, reverse=True)
        longest = max(len(ids[row]) for row in rows)
        assert longest <= before
        before = min(len(ids[row]) for row in rows)
        if few_shapes:
            assert padded.shape[1] == 16 * (longest // 16 + (longest % 16 > 0))
            assert len(rows) == size or len(rows).bit_count() == 1
        else:
            assert padded.shape[1] == longest
    assert sorted(seen) == list(range(len(ids)))


@pytest.mark.parametrize(("rows", "expected"), [(27, [16, 8, 2, 1]), (32, [32]), (37, [32, 4, 1]), (0, [])])
def test_rows_of_few_shapes(rows: int, expected: list[int]) -> None:
    ids = [np.ones(5, np.int32)] * rows
    assert [len(own) for own, _, _ in batches(ids, 32, 0, few_shapes=True)] == expected


@pytest.mark.models
def test_padding_changes_no_vector() -> None:
    """Each row alone and unpadded through the very model, against mixed lengths in batches of few shapes."""
    import torch

    from corag_search.embedders.minilm import MiniLMEmbedder, _model

    embedder = MiniLMEmbedder(device="cpu", batch_size=4)
    random = np.random.default_rng(0)
    ids = [random.integers(1000, 20_000, length).astype(np.int32) for length in (1, 3, 14, 15, 40, 60, 75)]
    model = _model(str(embedder._folder), "cpu", "float32")
    expected = []
    for row in ids:
        with torch.inference_mode():
            hidden = model(torch.tensor([[101, *row.tolist(), 102]])).last_hidden_state[0]
        expected.append(torch.nn.functional.normalize(hidden.mean(dim=0), dim=0).numpy())
    np.testing.assert_allclose(embedder.encode_ids(ids), np.stack(expected), atol=1e-6)

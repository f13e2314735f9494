"""Composites with chosen weights on disk, as `corag composite` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from corag_search.rerankers import load_reranker
from corag_search.rerankers.composite_features import feature_names
from corag_search.rerankers.composite_model import COMPOSITE, CompositeModel, PartIdentity, read_composite
from corag_search.weights_directory import write_weights


def some_model(parts: int, seed: int = 0) -> CompositeModel:
    """Weights that leave most predictions inside [0, 1]."""
    generator = np.random.default_rng(seed)
    size = 3 * parts + 2
    return CompositeModel(
        generator.normal(0, 0.5, size), generator.uniform(0.5, 2, size), generator.normal(0, 0.05, size), 0.5
    )


def write_model(
    directory: Path, model: CompositeModel, parts: Mapping[str, Mapping[str, Any]], names: Sequence[str] = ()
) -> Path:
    """A composite directory of loaded parts; `names` of the features in place of the right ones."""
    identities = [PartIdentity.of(load_reranker(name, **options), options) for name, options in parts.items()]
    config = {
        "parts": [asdict(identity) for identity in identities],
        "features": list(names or feature_names(list(parts))),
    }
    check = (lambda path: None) if names else read_composite
    write_weights(directory, COMPOSITE, save(dict(model.tensors())), config, "card", check=check)
    return directory

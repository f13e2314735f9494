"""Generators, by name. Importing this brings no model library into memory."""

from __future__ import annotations

from typing import Any

from corag_search.generators.base import Generation, Generator, GeneratorError
from corag_search.registry import Entry, create

_GENERATORS = {
    "smollm2": Entry("corag_search.generators.smollm2", "SmolLM2Generator"),
    "openai": Entry("corag_search.generators.openai_compatible", "OpenAICompatibleGenerator"),
}


def list_generators() -> list[str]:
    """Names that `load_generator` knows."""
    return list(_GENERATORS)


def load_generator(name: str, **options: Any) -> Generator:
    """Load a generator.

    Args:
        name: One of `list_generators()`: "smollm2" lies inside a package, "openai" is any OpenAI-compatible endpoint.
        **options: Parameters of its class; "openai" needs `base_url` and `model`.

    Raises:
        InputError: Unknown name or option, an unusable value, or a package that is not installed.
    """
    return create("generator", _GENERATORS, name, options)


__all__ = ["Generation", "Generator", "GeneratorError", "list_generators", "load_generator"]

"""The configuration of a pipeline, as it stands in a YAML file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.prompt import PromptTemplate


def _local_search() -> SearchConfig:
    return SearchConfig(budget=300)


def _embedded_rerankers() -> dict[str, dict[str, Any]]:
    return {name: {} for name in ("bm25", "cosine", "maxsim", "wordllama")}


@dataclass(frozen=True)
class PipelineConfig:
    """What `Corag.from_config` reads. Paths are relative to the working directory.

    Attributes:
        embedder: `name` and options of `load_embedder`.
        tokenizer: Cuts chunks and counts every token of the run; see `load_tokenizer`.
        chunk_size: Tokens of a chunk.
        store: Directory of the vector store.
        candidates: Chunks retrieved for a query.
        reranker: Used when no agent is configured and a call names none.
        rerankers: Those that labelling compares, by name, each with its options of `load_reranker` (such as `path`).
        agent: Directory of an exported checkpoint, or the name of a shipped one; None for fixed settings.
        generator: `name` and options of `load_generator`.
        max_answer_tokens: Longest answer, in the generator's tokens.
        search: Settings of the search; the agent replaces reranker, iterations, exploration and cost_coefficient.
        prompt: Wording of the prompt.
    """

    embedder: dict[str, Any] = field(default_factory=lambda: {"name": "minilm"})
    tokenizer: str = "smollm2"
    chunk_size: int = 96
    store: str | None = None
    candidates: int = 20
    reranker: str = "bm25"
    rerankers: dict[str, dict[str, Any]] = field(default_factory=_embedded_rerankers)
    agent: str | None = None
    generator: dict[str, Any] = field(default_factory=lambda: {"name": "smollm2"})
    max_answer_tokens: int = 64
    search: SearchConfig = field(default_factory=_local_search)
    prompt: PromptTemplate = field(default_factory=PromptTemplate)

    def __post_init__(self) -> None:
        for name in ("candidates", "max_answer_tokens"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number, at least 1, got {value!r}")
        for name in ("embedder", "generator"):
            if "name" not in getattr(self, name):
                raise InputError(f"{name} must have a name, such as {{name: minilm}}, got {getattr(self, name)!r}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "configuration") -> PipelineConfig:
        """Make a configuration of plain values.

        Raises:
            InputError: An unknown key, or a value that is not allowed.
        """
        values = dict(values)
        _check_keys(values, cls, source)
        for name, kind in (("search", SearchConfig), ("prompt", PromptTemplate)):
            if name in values:
                part = values[name] or {}
                _check_keys(part, kind, f"{source}: {name}")
                default = _local_search() if kind is SearchConfig else PromptTemplate()
                values[name] = dataclasses.replace(default, **part)
        for name in ("embedder", "generator"):
            if isinstance(values.get(name), str):
                values[name] = {"name": values[name]}
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PipelineConfig:
        """Read a YAML file.

        Raises:
            InputError: It is not there, not YAML, or as `from_dict`.
        """
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                f"cannot read the configuration {path}: {error.strerror}; give the path of a YAML file"
            ) from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(values, Mapping):
            raise InputError(f"{path} must hold a mapping of settings, got {type(values).__name__}")
        return cls.from_dict(values, str(path))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a YAML file holds them."""
        values = dataclasses.asdict(self)
        values["search"].update(final_rule=str(self.search.final_rule), selection=str(self.search.selection))
        return values


def _check_keys(values: Any, kind: type, source: str) -> None:
    allowed = [f.name for f in dataclasses.fields(kind)]
    if not isinstance(values, Mapping):
        raise InputError(f"{source} must be a mapping with keys out of {', '.join(allowed)}, got {values!r}")
    for key in values:
        if key not in allowed:
            raise InputError(f"{source}: unknown key {key!r}; allowed are {', '.join(allowed)}")

"""The configuration of a pipeline, as it stands in a YAML file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from corag_search.chunking import SMALLEST_CHUNK
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.prompt import PromptTemplate
from corag_search.registry import whole
from corag_search.retrieval import RETRIEVALS
from corag_search.store import index_kind
from corag_search.texts import shown


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
        index: Kind and settings of the index that `corag index` makes, such as `{kind: hnsw, M: 32}`; a store that is
            there keeps its own. Kinds: flat, hnsw (M, efConstruction, efSearch), ivfpq (nlist, nprobe, m, nbits,
            refine, k_factor).
        candidates: Chunks retrieved for a query.
        retrieval: Where they come from: "dense" (embeddings), "lexical" (BM25 over the whole store) or "hybrid" (both,
            by reciprocal rank fusion).
        reranker: Used when no agent is configured and a call names none.
        prior: Reranker that ranks the children where `search.expansion_width` or `search.root_width` is set.
        rerankers: Those that labelling compares, by name, each with its options of `load_reranker` (such as `path`).
        agent: Directory of an exported checkpoint, name of a shipped one or hub:OWNER/NAME; None for fixed settings.
        generator: `name` and options of `load_generator`.
        max_answer_tokens: Longest answer, in the generator's tokens.
        search: Settings of the search; the agent replaces reranker, iterations, exploration and cost_coefficient.
        prompt: Wording of the prompt.

    Raises:
        InputError: A value of another type or outside its range.
    """

    embedder: dict[str, Any] = field(default_factory=lambda: {"name": "minilm"})
    tokenizer: str = "smollm2"
    chunk_size: int = 96
    store: str | None = None
    index: dict[str, Any] = field(default_factory=lambda: {"kind": "flat"})
    candidates: int = 20
    retrieval: str = "dense"
    reranker: str = "bm25"
    prior: str | None = None
    rerankers: dict[str, dict[str, Any]] = field(default_factory=_embedded_rerankers)
    agent: str | None = None
    generator: dict[str, Any] = field(default_factory=lambda: {"name": "smollm2"})
    max_answer_tokens: int = 64
    search: SearchConfig = field(default_factory=_local_search)
    prompt: PromptTemplate = field(default_factory=PromptTemplate)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "chunk_size": whole("chunk_size", self.chunk_size, least=SMALLEST_CHUNK, unit="tokens"),
            "candidates": whole("candidates", self.candidates),
            "max_answer_tokens": whole("max_answer_tokens", self.max_answer_tokens),
            "embedder": _component("embedder", self.embedder, "minilm"),
            "generator": _component("generator", self.generator, "smollm2"),
            "index": index_kind(self.index).to_dict(),
            "tokenizer": _string("tokenizer", self.tokenizer, "a name or a path"),
            "reranker": _string("reranker", self.reranker, "a name"),
            "prior": None if self.prior is None else _string("prior", self.prior, "a name, or null"),
            "rerankers": _options_by_name("rerankers", self.rerankers),
            "store": None if self.store is None else _string("store", self.store, "a directory, or null"),
            "agent": None if self.agent is None else _string("agent", self.agent, "a directory or a name, or null"),
        }
        if self.retrieval not in RETRIEVALS:
            raise InputError(f"retrieval must be one of {', '.join(RETRIEVALS)}, got {shown(self.retrieval)}")
        for name, kind in (("search", SearchConfig), ("prompt", PromptTemplate)):
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"{name} must be a {kind.__name__}, got {shown(getattr(self, name))}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, config: str | os.PathLike[str] | Mapping[str, Any] | PipelineConfig) -> PipelineConfig:
        """A configuration as it is, or made of a YAML file or of plain values.

        Raises:
            InputError: It is none of these, or as `from_file` and `from_dict`.
        """
        if isinstance(config, PipelineConfig):
            return config
        if isinstance(config, Mapping):
            return cls.from_dict(config)
        if isinstance(config, str | os.PathLike):
            return cls.from_file(config)
        raise InputError(
            f"a configuration must be the path of a YAML file or a mapping of settings, got {shown(config)}"
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str = "configuration") -> PipelineConfig:
        """Make a configuration of plain values.

        Raises:
            InputError: An unknown key, or a value that is not allowed.
        """
        _check_keys(values, cls, source)
        try:
            parts = {name: _part(name, values[name]) for name in ("search", "prompt") if name in values}
            return cls(**{**values, **parts})
        except InputError as error:
            raise InputError(f"{source}: {error}") from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> PipelineConfig:
        """Read a YAML file.

        Raises:
            InputError: It is not there, not UTF-8, not YAML, or as `from_dict`.
        """
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                f"cannot read the configuration {path}: {error.strerror}; give the path of a YAML file"
            ) from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2024-13-45, a path with a null
            raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
        if not isinstance(values, Mapping):
            raise InputError(f"{path} must hold a mapping of settings, got {type(values).__name__}")
        return cls.from_dict(values, str(path))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a YAML file holds them."""
        return dataclasses.asdict(self) | {"search": self.search.to_dict()}


def _string(name: str, value: Any, wanted: str) -> str:
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(text, str) or not text:
        remedy = "; put it in quotes" if isinstance(value, int | float) else ""  # YAML takes yes and no for booleans
        raise InputError(f"{name} must be {wanted}, got {shown(value)}{remedy}")
    return text


def _component(name: str, value: Any, example: str) -> dict[str, Any]:
    """Name and options; a name alone will do."""
    options = {"name": value} if isinstance(value, str) else value
    if not isinstance(options, Mapping) or not isinstance(options.get("name"), str):
        raise InputError(f"{name} must have a name, such as {{name: {example}}}, got {shown(value)}")
    return _keywords(name, options)


def _options_by_name(name: str, value: Any) -> dict[str, dict[str, Any]]:
    """Options of each; null stands for none."""
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a mapping of names to options, such as {{bm25: {{}}}}, got {shown(value)}")
    return {
        one: _keywords(f"{name}: {one[:60]}", {} if options is None else options)
        for one, options in _keywords(name, value).items()
    }


def _keywords(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{name} must be a mapping of names to values, such as {{k1: 1.2}}, got {shown(value)}")
    return dict(value)


def _part(name: str, values: Any) -> Any:
    """`search` or `prompt` of plain values; null stands for the defaults."""
    default: Any = _local_search() if name == "search" else PromptTemplate()
    if values is None:
        return default
    if isinstance(values, type(default)):
        return values
    _check_keys(values, type(default), name)
    if name == "prompt":  # SearchConfig looks at its own types
        values = {key: _string(f"prompt: {key}", text, "a text") for key, text in values.items()}
    return dataclasses.replace(default, **values)


def _check_keys(values: Any, kind: type, source: str) -> None:
    allowed = [f.name for f in dataclasses.fields(kind)]
    if not isinstance(values, Mapping):
        raise InputError(f"{source} must be a mapping with keys out of {', '.join(allowed)}, got {shown(values)}")
    for key in values:
        if key not in allowed:
            raise InputError(f"{source}: unknown key {shown(key)}; allowed are {', '.join(allowed)}")

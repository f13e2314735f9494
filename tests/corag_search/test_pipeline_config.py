"""What a configuration may hold, and what is said in one line about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from corag_search import Corag, InputError, PipelineConfig, SearchConfig
from corag_search.prompt import PromptTemplate

UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"rerankers": ["bm25"]}, "rerankers must be a mapping of names to options, such as {bm25: {}}, got ['bm25']"),
    ({"rerankers": None}, "rerankers must be a mapping of names to options, such as {bm25: {}}, got None"),
    ({"rerankers": {"bm25": 5}}, "rerankers: bm25 must be a mapping of names to values, such as {k1: 1.2}, got 5"),
    (
        {"rerankers": {"bm25": {1: 2}}},
        "rerankers: bm25 must be a mapping of names to values, such as {k1: 1.2}, got {1: 2}",
    ),
    ({"rerankers": {5: {}}}, "rerankers must be a mapping of names to values, such as {k1: 1.2}, got {5: {}}"),
    ({"store": 5}, "store must be a directory, or null, got 5; put it in quotes"),
    ({"store": ""}, "store must be a directory, or null, got ''"),
    ({"agent": 5}, "agent must be a directory or a name, or null, got 5; put it in quotes"),
    ({"agent": ["a"]}, "agent must be a directory or a name, or null, got ['a']"),
    ({"tokenizer": None}, "tokenizer must be a name or a path, got None"),
    ({"reranker": True}, "reranker must be a name, got True; put it in quotes"),
    ({"embedder": 5}, "embedder must have a name, such as {name: minilm}, got 5"),
    ({"embedder": None}, "embedder must have a name, such as {name: minilm}, got None"),
    ({"generator": {"name": 5}}, "generator must have a name, such as {name: smollm2}, got {'name': 5}"),
    ({"chunk_size": "many"}, "chunk_size must be a whole number of tokens, at least 8, got 'many'"),
    ({"chunk_size": 3}, "chunk_size must be a whole number of tokens, at least 8, got 3"),
    ({"candidates": 2.5}, "candidates must be a whole number, at least 1, got 2.5"),
    ({"max_answer_tokens": None}, "max_answer_tokens must be a whole number, at least 1, got None"),
]
PARTS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": {"passage": 5}}, "prompt: passage must be a text, got 5; put it in quotes"),
    ({"prompt": 5}, "prompt must be a mapping with keys out of passage, prompt, got 5"),
    ({"prompt": {"pasage": "x"}}, "prompt: unknown key 'pasage'; allowed are passage, prompt"),
    ({"search": {"budget": "few"}}, "budget must be a whole number of tokens, at least 1, got 'few'"),
    ({"search": {"exploration": "high"}}, "exploration must be a finite number, at least 0, got 'high'"),
    ({"search": 0}, "search must be a mapping with keys out of iterations"),
]


@pytest.mark.parametrize(("values", "message"), UNUSABLE)
def test_unusable_values(values: dict[str, Any], message: str) -> None:
    for make in (lambda: PipelineConfig(**values), lambda: PipelineConfig.from_dict(values, "here")):
        with pytest.raises(InputError) as error:
            make()
        assert str(error.value).removeprefix("here: ") == message


@pytest.mark.parametrize(("values", "message"), PARTS)
def test_unusable_parts(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        PipelineConfig.from_dict(values, "here")
    assert str(error.value).startswith(f"here: {message}")


@pytest.mark.parametrize("part", [{"search": {"budget": 5}}, {"prompt": "{passages}"}])
def test_parts_of_another_type(part: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(part))} must be a (SearchConfig|PromptTemplate), got"):
        PipelineConfig(**part)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'reranker: "\xe9"\n', r"c\.yaml is not UTF-8 \(byte 11\); save it as UTF-8$"),
        ("store: x".encode("utf-16"), r"c\.yaml is not UTF-8 \(byte 0\); save it as UTF-8$"),
        (b"store: 2024-13-45", r"c\.yaml is not YAML: month must be in 1\.\.12$"),
        (b"store: 5", r"c\.yaml: store must be a directory, or null, got 5; put it in quotes$"),
        (b"candidates: ten", r"c\.yaml: candidates must be a whole number, at least 1, got 'ten'$"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(InputError, match=message):
        PipelineConfig.from_file(tmp_path / "c.yaml")


def test_null_stands_for_no_options_and_for_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("rerankers: {bm25: , maxsim: {}}\nsearch:\nprompt:\nstore:\nagent:\n")
    config = PipelineConfig.from_file(tmp_path / "c.yaml")
    assert config == PipelineConfig(rerankers={"bm25": {}, "maxsim": {}})


def test_values_are_brought_to_their_plain_form(tmp_path: Path) -> None:
    values = {"store": tmp_path, "candidates": np.int64(3), "embedder": "minilm", "rerankers": {"bm25": None}}
    for config in (PipelineConfig(**values), PipelineConfig.from_dict(MappingProxyType(values))):  # type: ignore[arg-type]
        assert (config.store, config.embedder, config.rerankers) == (str(tmp_path), {"name": "minilm"}, {"bm25": {}})
        assert (config.candidates, type(config.candidates)) == (3, int)


@pytest.mark.parametrize("mapping", [dict, MappingProxyType])
def test_a_mapping_is_a_configuration(mapping: type[Mapping]) -> None:
    values = mapping({"candidates": 7, "search": {"budget": 50}, "prompt": PromptTemplate()})
    config = PipelineConfig(candidates=7, search=SearchConfig(budget=50))
    assert PipelineConfig.of(values) == config
    assert PipelineConfig.of(config) is config
    with pytest.raises(InputError, match="store is not set"):
        Corag.from_config(values)


@pytest.mark.parametrize("config", [5, None, ["c.yaml"]])
def test_what_is_no_configuration(config: Any) -> None:
    with pytest.raises(InputError, match="a configuration must be the path of a YAML file or a mapping"):
        Corag.from_config(config)
    with pytest.raises(InputError, match="configuration must be a mapping with keys out of embedder"):
        PipelineConfig.from_dict(config)


HUGE = "x" * 1_000_000


@pytest.mark.parametrize(
    "values",
    [
        *({name: [HUGE]} for name in ("chunk_size", "retrieval", "store", "embedder", "index", "rerankers", "search")),
        *({name: {HUGE: 1}} for name in ("generator", "index", "rerankers", "search", "prompt")),
        *({"index": {"kind": "ivfpq"} | option} for option in ({"refine": HUGE}, {"m": HUGE}, {HUGE: 1})),
        *({"search": {name: HUGE}} for name in ("budget", "exploration", "selection")),
        {"index": HUGE},
        {"prompt": {"passage": HUGE}},
        {HUGE: 1},
    ],
)
def test_of_a_huge_value_only_the_beginning_is_shown(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"x{30}") as told:
        PipelineConfig.from_dict(values)
    assert len(str(told.value)) < 400


def test_of_a_huge_configuration_only_the_beginning_is_shown() -> None:
    with pytest.raises(InputError, match=r"x{30}") as told:
        PipelineConfig.of([HUGE])  # type: ignore[arg-type]
    assert len(str(told.value)) < 400

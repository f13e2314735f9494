"""Options of named things: a value of the wrong type is one line, a fault of the factory is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corag_search import InputError, load_embedder, load_generator, load_reranker
from corag_search.registry import Entry, create, one_of, whole

OPENAI = {"base_url": "http://localhost/v1", "model": "m"}


@pytest.mark.parametrize(
    ("load", "name", "options", "message"),
    [
        (load_reranker, "bm25", {"k1": "high"}, "reranker 'bm25': k1 must be a number, got 'high'"),
        (load_reranker, "bm25", {"b": None}, "reranker 'bm25': b must be a number, got None"),
        (load_reranker, "bm25", {"b": True}, "reranker 'bm25': b must be a number, got True"),
        (load_reranker, "cosine", {"dtype": 16}, "reranker 'cosine': dtype must be a string, got 16"),
        (load_reranker, "maxsim", {"device": 0}, "reranker 'maxsim': device must be a string or null, got 0"),
        (
            load_reranker,
            "bge-reranker-base",
            {"devices": [0, 1]},
            "reranker 'bge-reranker-base': devices must be a string or a list or null, got [0, 1]",
        ),
        (
            load_reranker,
            "bge-reranker-base",
            {"trust_remote_code": "no"},
            "reranker 'bge-reranker-base': trust_remote_code must be true or false, got 'no'",
        ),
        (load_reranker, ["bm25"], {}, None),
        (
            load_embedder,
            "minilm",
            {"batch_size": "all"},
            "embedder 'minilm': batch_size must be a whole number, got 'all'",
        ),
        (load_embedder, "bge-m3", {"path": 3}, "embedder 'bge-m3': path must be a string, got 3"),
        (load_generator, "smollm2", {"n_ctx": 1e3}, "generator 'smollm2': n_ctx must be a whole number, got 1000.0"),
        (
            load_generator,
            "openai",
            {**OPENAI, "timeout": "soon"},
            "generator 'openai': timeout must be a number, got 'soon'",
        ),
        (
            load_generator,
            "openai",
            {**OPENAI, "seed": "x"},
            "generator 'openai': seed must be a whole number or null, got 'x'",
        ),
        (
            load_generator,
            "openai",
            {**OPENAI, "extra_body": [1]},
            "generator 'openai': extra_body must be a mapping or null, got [1]",
        ),
    ],
)
def test_values_of_another_type(load: Callable, name: Any, options: dict, message: str | None) -> None:
    with pytest.raises(InputError) as error:
        load(name, **options)
    assert str(error.value) == (message or str(error.value))
    assert "\n" not in str(error.value)


def test_numbers_of_numpy_and_paths_are_taken(tmp_path: Path) -> None:
    reranker: Any = load_reranker("bm25", k1=np.float32(1.25), b=np.int64(1))
    assert (reranker.k1, reranker.b, type(reranker.k1), type(reranker.b)) == (1.25, 1, float, int)
    generator = load_generator("openai", **OPENAI, context_length=np.int64(9), seed=np.int64(1))
    assert (generator.context_length, type(generator.context_length)) == (9, int)
    with pytest.raises(InputError, match="no directory"):
        load_embedder("bge-m3", path=tmp_path / "missing")


def faulty(size: int = 1, anything: object = None) -> None:
    raise TypeError(f"a fault of the factory with {anything}")


def test_a_fault_of_the_factory_stays_one() -> None:
    entries = {"faulty": Entry(__name__, "faulty")}
    with pytest.raises(TypeError, match="a fault of the factory with 3"):
        create("thing", entries, "faulty", {"size": 2, "anything": 3})
    with pytest.raises(InputError, match="thing 'faulty': size must be a whole number, got 'two'"):
        create("thing", entries, "faulty", {"size": "two"})


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "pear"


def test_one_of_a_closed_choice() -> None:
    assert one_of("fruit", "pear", Fruit) is Fruit.PEAR is one_of("fruit", Fruit.PEAR, Fruit)
    for value in ("plum", "", None, ["apple"]):
        with pytest.raises(InputError, match=f"^fruit must be one of apple, pear, got {re.escape(repr(value))}$"):
            one_of("fruit", value, Fruit)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, 1.0, True, "1", None, np.float64(1), np.bool_(True)])
def test_what_is_no_whole_number(value: object) -> None:
    with pytest.raises(InputError, match=r"^size must be a whole number of tokens, at least 1, got "):
        whole("size", value, unit="tokens")


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2)])
def test_a_whole_number_of_any_integer_type(value: object) -> None:
    assert (whole("size", value), type(whole("size", value))) == (2, int)

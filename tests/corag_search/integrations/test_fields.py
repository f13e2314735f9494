"""Bad values that pydantic itself looks at, in the frameworks whose components are its models: one line of ours."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager
from pydantic import BaseModel, ValidationError

from corag_search import InputError
from corag_search.integrations.fields import SelectorFields
from corag_search.integrations.langchain import CoragDocumentCompressor
from corag_search.integrations.llamaindex import CoragNodePostprocessor

pytestmark = pytest.mark.models

KINDS = [CoragDocumentCompressor, CoragNodePostprocessor]
FIELDS = "budget, reranker, rerankers, agent, embedder, tokenizer, search$"
WAYS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "call": lambda kind, values: kind(**values),
    "model_validate": lambda kind, values: kind.model_validate(values),
    "model_validate_json": lambda kind, values: kind.model_validate_json(json.dumps(values)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 0}, "^settings: budget must be a whole number of tokens, at least 1, got 0$"),
        ({"budget": "many"}, "^settings: budget must be a whole number of tokens, at least 1, got 'many'$"),
        ({"search": {"depth": 3}}, "^settings: search: unknown key 'depth'; allowed are iterations, .*$"),
        ({"budget": 9, "embedder": 7}, "^settings: embedder must have a name, such as {name: minilm}, got 7$"),
        ({"buget": 3}, rf"^\w+ has no field 'buget'; it has: (callback_manager, )?{FIELDS}"),
        # What the selector would take and pydantic does not.
        ({"rerankers": {"bm25": None}}, "^rerankers.bm25: Input should be a valid dictionary, got None$"),
    ],
)
def test_a_bad_value_is_one_line_whoever_makes_it(
    kind: type[SelectorFields], way: str, values: dict, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refused:
        WAYS[way](kind, values)
    told = "".join(traceback.format_exception(refused.value))
    assert "validation error" not in told


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds_no_fields_is_one_line(kind: type[SelectorFields]) -> None:
    with pytest.raises(InputError, match=rf"^{kind.__name__}: Input should be a valid dictionary or .*, got 7$"):
        kind.model_validate(7)
    with pytest.raises(InputError, match=rf"^{kind.__name__}: Invalid JSON: .* line 1 column 10, got '{{\"budget\":'$"):
        kind.model_validate_json('{"budget":')
    with pytest.raises(InputError, match=r"budget must be a whole number of tokens, at least 1, got 'many'$"):
        kind.model_validate_strings({"budget": "many"})


def test_what_was_written_down_and_spoilt_is_one_line() -> None:
    written = CoragNodePostprocessor(reranker="bm25").to_json()
    with pytest.raises(InputError, match=r"^settings: budget must be .*, got 'many'$"):
        CoragNodePostprocessor.from_json(written.replace("1024", '"many"'))


def test_pydantic_still_makes_what_can_be_used() -> None:
    made = CoragNodePostprocessor.model_validate({"budget": "7", "reranker": "bm25"})
    assert made.budget == 7 and isinstance(made.callback_manager, CallbackManager)
    assert CoragDocumentCompressor.model_validate(same := CoragDocumentCompressor(reranker="bm25")) is same


def test_a_model_of_the_users_that_holds_one_tells_the_line_in_its_own_error() -> None:
    class Settings(BaseModel):
        compressor: CoragDocumentCompressor

    assert Settings(compressor={"budget": 7, "reranker": "bm25"}).compressor.budget == 7
    with pytest.raises(ValidationError, match="1 validation error") as refused:
        Settings(compressor={"budget": "many"})
    assert "budget must be a whole number of tokens, at least 1, got 'many'" in str(refused.value)

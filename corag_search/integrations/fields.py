"""The settings as pydantic fields, for the frameworks whose components are pydantic models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from corag_search.errors import InputError
from corag_search.integrations.items import DEFAULT_BUDGET, ItemSelector
from corag_search.texts import shown


class SelectorFields(BaseModel):
    """Fields as the arguments of `ItemSelector`, and the selector made of them, loaded at once.

    Only the budget can be assigned later; the rest is fixed when the models are loaded. An unknown field is refused.
    What cannot be used is an `InputError` of one line, whoever makes the object: a call or pydantic's own validation.
    """

    model_config = ConfigDict(extra="forbid")

    budget: int = Field(DEFAULT_BUDGET, description="Tokens that the chosen items may cost together.")
    reranker: Any = Field(
        None,
        frozen=True,
        description="Name or object; the agent's choice when None, or 'bm25' without an agent.",
    )
    rerankers: dict[str, dict[str, Any]] = Field(
        default_factory=dict, frozen=True, description="Options of `load_reranker`, by the reranker's name."
    )
    agent: str | None = Field(
        None,
        frozen=True,
        description="Directory of an exported checkpoint or the name of a shipped one; None for fixed settings.",
    )
    embedder: str | dict[str, Any] = Field(
        "minilm",
        frozen=True,
        description="Name, or name and options, of the agent's embedder; used with an agent only.",
    )
    tokenizer: str = Field("smollm2", frozen=True, description="Counts the tokens; see `load_tokenizer`.")
    search: dict[str, Any] = Field(
        default_factory=dict,
        frozen=True,
        description="Other fields of `SearchConfig`; they take precedence over the agent.",
    )

    _selector: ItemSelector = PrivateAttr()

    def __init__(self, **fields: Any) -> None:
        with _in_one_line(type(self), fields):
            super().__init__(**fields)
        settings: Mapping[str, Any] = {name: getattr(self, name) for name in SelectorFields.model_fields}
        self._selector = ItemSelector(**settings)
        self._selector.warm_up()

    @classmethod
    def model_validate(cls, *args: Any, **options: Any) -> Self:
        with _in_one_line(cls):
            return super().model_validate(*args, **options)

    @classmethod
    def model_validate_json(cls, *args: Any, **options: Any) -> Self:
        with _in_one_line(cls):
            return super().model_validate_json(*args, **options)

    @classmethod
    def model_validate_strings(cls, *args: Any, **options: Any) -> Self:
        with _in_one_line(cls):
            return super().model_validate_strings(*args, **options)


@contextmanager
def _in_one_line(kind: type[BaseModel], fields: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Around pydantic's validation.

    Args:
        kind: What is made.
        fields: Of which values, where they are at hand.

    Raises:
        InputError: In place of a ValidationError, which has several lines for each value.
    """
    try:
        yield
    except ValidationError as error:
        raise _refusal(error, kind, fields or {}) from None


def _refusal(error: ValidationError, kind: type[BaseModel], fields: Mapping[str, Any]) -> InputError:
    """The first thing that pydantic refused, in the words of `ItemSelector` where that refuses it too."""
    first = error.errors()[0]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InputError):  # raised in here; pydantic packs any ValueError up
        return raised
    name = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "extra_forbidden":
        return InputError(f"{kind.__name__} has no field {name!r}; it has: {', '.join(kind.model_fields)}")
    if name in SelectorFields.model_fields and name in fields:
        try:
            ItemSelector(**{name: fields[name]})
        except InputError as ours:
            return ours
    place = ".".join(map(str, first["loc"])) or kind.__name__
    return InputError(f"{place}: {' '.join(first['msg'].split())}, got {shown(first['input'])}")

"""The settings as pydantic fields, for the frameworks whose components are pydantic models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from corag_search.integrations.items import DEFAULT_BUDGET, ItemSelector


class SelectorFields(BaseModel):
    """Fields as the arguments of `ItemSelector`, and the selector made of them, loaded at once.

    Only the budget can be assigned later; the rest is fixed when the models are loaded. An unknown field is refused.
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
        super().__init__(**fields)
        settings: Mapping[str, Any] = {name: getattr(self, name) for name in SelectorFields.model_fields}
        self._selector = ItemSelector(**settings)
        self._selector.warm_up()

"""What labelling costs: searches, evaluations, answers, tokens, hours and money."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from corag_search.errors import InputError
from data_prep.grid import LabelGrid

PROBED = 2  # questions that an estimate stands on
_MILLION = 1_000_000
_USAGE = ("calls", "prompt_tokens", "answer_tokens", "search_seconds", "answer_seconds")


@dataclass(frozen=True)
class TokenPrice:
    """What the endpoint charges, in any currency.

    Attributes:
        prompt: For a million prompt tokens.
        answer: For a million answer tokens.

    Raises:
        InputError: A price that is negative or no number.
    """

    prompt: float = 0.0
    answer: float = 0.0

    def __post_init__(self) -> None:
        for name in ("prompt", "answer"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"price.{name} must be a finite number, at least 0, got {value!r}")


@dataclass(frozen=True)
class Work:
    """The work of labelling some questions; answers that the cache gave are counted like the others.

    Attributes:
        questions: How many.
        searches: Tree searches, each of which answers for all iteration counts.
        evaluations: Combinations scored, by reranker.
        calls: Prompts.
        prompt_tokens: Of these together.
        answer_tokens: Of the answers together.
        search_seconds: Spent in searches, of all threads together.
        answer_seconds: Spent waiting for answers, likewise.
    """

    questions: float
    searches: float
    evaluations: Mapping[str, float]
    calls: float
    prompt_tokens: float
    answer_tokens: float
    search_seconds: float
    answer_seconds: float

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]], grid: LabelGrid) -> Work:
        """The work that ledger records tell of; those of versions that did not measure it are passed over."""
        measured = [record for record in records if "usage" in record]
        evaluations: Counter[str] = Counter()
        usage: Counter[str] = Counter()
        searches = 0
        for record in measured:
            evaluations.update(record["evaluations"])
            usage.update(record["usage"])
            searches += len(record["evaluations"]) * len(grid.exploration) * len(grid.cost_coefficient)
        used = {name: usage[name] for name in _USAGE}
        return cls(questions=len(measured), searches=searches, evaluations=evaluations, **used)

    def scaled(self, questions: int) -> Work:
        """The work of so many questions that cost what these do on average."""
        factor = questions / self.questions if self.questions else 0.0
        return Work(
            questions=questions,
            searches=self.searches * factor,
            evaluations={name: count * factor for name, count in self.evaluations.items()},
            **{name: getattr(self, name) * factor for name in _USAGE},
        )

    def hours(self, workers: int, llm_concurrency: int, in_flight: int) -> float:
        """Time on the clock: whichever is the narrowest of searching, answering, and the questions in flight."""
        seconds = max(
            self.search_seconds / workers,
            self.answer_seconds / llm_concurrency,
            (self.search_seconds + self.answer_seconds) / in_flight,
        )
        return seconds / 3600

    def price(self, price: TokenPrice) -> float:
        """What the tokens cost."""
        return (self.prompt_tokens * price.prompt + self.answer_tokens * price.answer) / _MILLION

    def to_dict(self, hours: float, price: TokenPrice) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "questions": round(self.questions),
            "searches": round(self.searches),
            "evaluations": {name: round(count) for name, count in self.evaluations.items()},
            "llm_calls": round(self.calls),
            "prompt_tokens": round(self.prompt_tokens),
            "answer_tokens": round(self.answer_tokens),
            "hours": round(hours, 4),
            "price": round(self.price(price), 4),
        }


def work_rows(works: Iterable[tuple[Work, float]], price: TokenPrice) -> list[tuple[str, ...]]:
    """Rows of a table to print, a column for each work and the hours that it takes."""
    columns = [work.to_dict(hours, price) for work, hours in works]
    rerankers = list(dict.fromkeys(name for column in columns for name in column["evaluations"]))

    def row(title: str, name: str) -> tuple[str, ...]:
        return title, *(f"{column[name]:,}" for column in columns)

    rows = [row("questions", "questions"), row("searches", "searches")]
    for name in rerankers:
        rows.append((f"evaluations, {name}", *(f"{column['evaluations'].get(name, 0):,}" for column in columns)))
    rows += [
        row("LLM calls", "llm_calls"),
        row("prompt tokens", "prompt_tokens"),
        row("answer tokens", "answer_tokens"),
    ]
    rows.append(("hours", *(_decimal(column["hours"]) for column in columns)))
    if price != TokenPrice():
        rows.append(("price", *(_decimal(column["price"]) for column in columns)))
    return rows


def _decimal(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"

"""What a generator is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


class GeneratorError(RuntimeError):
    """A model or its endpoint failed while it ran. The message is one line: who, what happened, the remedy."""


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer.

    Attributes:
        text: The answer.
        prompt_tokens: Length of the prompt with its chat template, in the model's tokens; 0 where it was not told.
        answer_tokens: Length of the answer, in the model's tokens; 0 where it was not told.
    """

    text: str
    prompt_tokens: int
    answer_tokens: int


@runtime_checkable
class Generator(Protocol):
    """A language model that answers a prompt. Safe to share between threads.

    Attributes:
        name: As `load_generator` knows it.
        context_length: Tokens that prompt, template and answer may have together; None when it is not known.
        fingerprint: 16 hexadecimal digits that change with the weights and with any setting that changes answers.
    """

    name: str
    context_length: int | None

    @property
    def fingerprint(self) -> str: ...

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        """The answer to one prompt, at most `max_tokens` long.

        Raises:
            GeneratorError: The model or its endpoint failed.
        """
        ...

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """The same answer, piece by piece as it comes.

        Raises:
            GeneratorError: The model or its endpoint failed, perhaps after some pieces.
        """
        ...

    def close(self) -> None:
        """Free what is held; the generator cannot be used afterwards."""
        ...

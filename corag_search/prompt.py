"""The prompt: chunks numbered in the found order, and the way back from a number to its source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.files import digest_of
from corag_search.texts import check_text, shown


@dataclass(frozen=True)
class PromptTemplate:
    """The prompt's wording.

    Attributes:
        passage: One numbered chunk; `{number}` and `{text}` are filled in.
        prompt: The whole; `{passages}` and `{question}` are filled in.
    """

    passage: str = "[{number}] {text}"
    prompt: str = (
        "Use the numbered passages to answer the question briefly.\n\n{passages}\n\nQuestion: {question}\nAnswer:"
    )

    def __post_init__(self) -> None:
        for name, fields in (("passage", ("{number}", "{text}")), ("prompt", ("{passages}", "{question}"))):
            check_text(f"prompt template: {name}", getattr(self, name))
            missing = [field for field in fields if field not in getattr(self, name)]
            if missing:
                raise InputError(f"prompt template: {name} must contain {missing[0]}, got {shown(getattr(self, name))}")

    @property
    def fingerprint(self) -> str:
        """Of the wording, 16 hexadecimal digits."""
        return digest_of(asdict(self))[:16]

    def fill(self, question: str, texts: Sequence[str]) -> str:
        """The prompt for a question over texts in this order, numbered from 1.

        Example:
            >>> print(PromptTemplate(prompt="{passages} | {question}").fill("Why?", ["Because.", " So. "]))
            [1] Because.
            <BLANKLINE>
            [2] So. | Why?
        """
        passages = "\n\n".join(
            self.passage.replace("{number}", str(number)).replace("{text}", text.strip())
            for number, text in enumerate(texts, 1)
        )
        before, after = self.prompt.split("{passages}", 1)
        # Filled in apart, so that braces in a passage or question are never taken for fields.
        return before.replace("{question}", question) + passages + after.replace("{question}", question)


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a number of the prompt comes from.

    Attributes:
        number: As in the prompt, from 1.
        chunk: The chunk's id.
        document: The document's id, when the chunk's metadata has it.
        start: First character in the document.
        end: One past the last.
        cited: Whether the answer's text names the number, as in [2] or [1, 2].
    """

    number: int
    chunk: str
    document: str | None
    start: int | None
    end: int | None
    cited: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def citations(answer: str, chunks: Sequence[Chunk]) -> tuple[Citation, ...]:
    """One citation for each chunk of the prompt, in its order.

    Example:
        >>> [c.cited for c in citations("It is 330 m tall [2].", [Chunk("a", "x", 1), Chunk("b", "y", 1)])]
        [False, True]
    """
    bracketed = re.findall(r"[\[［【]([\d\s,，、]+)[\]］】]", answer)
    # No prompt has a billion passages, and an answer may go on in digits without end.
    named = {int(number) for group in bracketed for number in re.findall(r"\d+", group) if len(number) < 10}
    return tuple(
        Citation(
            number,
            chunk.id,
            chunk.metadata.get("document"),
            chunk.metadata.get("start"),
            chunk.metadata.get("end"),
            number in named,
        )
        for number, chunk in enumerate(chunks, 1)
    )

"""Scripted embedder, generator and tokenizer: what a tree or a passage becomes is known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from corag_search.generators import Generation
from corag_search.tokenizers import Tokenizer


def words() -> Tokenizer:
    """Counts words."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer("words", tokenizer)


class TableEmbedder:
    """Vectors looked up by text; other texts get the mean of those that they contain."""

    name, fingerprint = "table", "0" * 16

    def __init__(self, table: dict[str, Sequence[float]]) -> None:
        self.table = {text: np.asarray(vector, np.float32) for text, vector in table.items()}
        self.dimension = len(next(iter(self.table.values())))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            known = (
                [self.table[text]] if text in self.table else [self.table[w] for w in text.split() if w in self.table]
            )
            row[:] = np.mean(known, axis=0)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class ScriptedGenerator:
    """Answers by a function of the prompt; remembers prompts and limits."""

    name, fingerprint = "scripted", "0" * 16

    def __init__(self, answer: Callable[[str], str], context_length: int | None = None) -> None:
        self.context_length = context_length
        self.asked: list[tuple[str, int]] = []
        self._answer = answer

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.asked.append((prompt, max_tokens))
        return Generation(self._answer(prompt), 0, 0)

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        yield self.generate(prompt, max_tokens).text

    def close(self) -> None:
        pass

"""Summaries of clusters: which chunks one prompt can hold, and the chunk that stands for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.generators.base import Generator
from corag_search.tokenizers import Tokenizer

PROMPT = "Write a summary of the following, including as many key details as possible: {context}:"
SEPARATOR = "\n\n"  # between the chunks of a prompt
CHAT_TEMPLATE_TOKENS = 64  # what a generator's own template may add

Rows = NDArray[np.intp]
Split = Callable[[Rows], list[Rows]]


def split_to_fit(members: Rows, costs: NDArray[np.int64], limit: int, split: Split) -> list[Rows]:
    """Cluster again what is too long for one prompt (arXiv:2401.18059, section 3), until all pieces fit.

    **[ours]** A cluster that clustering does not divide further is cut into runs in its own order.

    Args:
        members: Rows of one cluster.
        costs: Tokens of every row.
        limit: Tokens that the chunks of one prompt may have together.
        split: Clusters some rows anew.
    """
    done: list[Rows] = []
    waiting = [members]
    while waiting:
        rows = waiting.pop()
        if len(rows) == 1 or costs[rows].sum() <= limit:
            done.append(rows)
            continue
        parts = split(rows)
        # Soft clusters overlap: a part nearly as large as the whole would go round for ever.
        waiting += parts if max(len(part) for part in parts) <= 0.9 * len(rows) else _runs(rows, costs, limit)
    return done


def _runs(rows: Rows, costs: NDArray[np.int64], limit: int) -> list[Rows]:
    runs: list[list[int]] = [[]]
    length = 0
    for row in rows.tolist():
        if runs[-1] and length + costs[row] > limit:
            runs.append([])
            length = 0
        runs[-1].append(row)
        length += int(costs[row])
    return [np.array(run, np.intp) for run in runs]


class Summariser:
    """Writes the chunks that stand for clusters.

    Args:
        generator: Writes.
        tokenizer: Counts.
        tokens: Longest summary; what is longer by this tokenizer is cut.
        prompt: With `{context}`.
        workers: Clusters summarised at a time.
    """

    def __init__(self, generator: Generator, tokenizer: Tokenizer, tokens: int, prompt: str, workers: int) -> None:
        self._generator, self._tokenizer = generator, tokenizer
        self._tokens, self._prompt, self._workers = tokens, prompt, workers

    def chunks(self, level: int, clusters: Sequence[Sequence[Chunk]]) -> list[Chunk | None]:
        """A chunk for each cluster, None where the generator wrote nothing.

        Raises:
            GeneratorError: The generator failed.
        """
        with ThreadPoolExecutor(self._workers) as pool:
            texts = list(pool.map(self._write, clusters))
        costs = self._tokenizer.count(texts)
        return [
            Chunk(
                f"summary/{level}/{number}",
                text,
                cost,
                {"kind": "summary", "level": level, "children": [chunk.id for chunk in cluster]},
            )
            if cost
            else None
            for number, (text, cost, cluster) in enumerate(zip(texts, costs, clusters, strict=True))
        ]

    def _write(self, cluster: Sequence[Chunk]) -> str:
        context = SEPARATOR.join(chunk.text.strip() for chunk in cluster)
        text = self._generator.generate(self._prompt.replace("{context}", context), self._tokens).text.strip()
        ends = self._tokenizer.offsets(text)[:, 1]
        while len(ends) > self._tokens:  # a cut text may have a token more than its part of the whole
            text = text[: int(ends[self._tokens - 1])].rstrip()
            fresh = self._tokenizer.offsets(text)[:, 1]
            ends = fresh if len(fresh) < len(ends) else ends[: self._tokens]
        return text

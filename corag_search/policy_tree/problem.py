"""What one search is about: candidates, their costs, and what a combination may cost."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.registry import whole
from corag_search.rerankers.base import Reranker
from corag_search.texts import check_text, shown

if TYPE_CHECKING:
    from corag_search.policy_tree.tree import PolicyTree


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Candidates ranked by (cost, retrieval order).

    Children are always made in that ranking, so the first of several maxima is the one that the tie rule
    wants (METHOD §3: lower cost, then retrieval order), and the affordable candidates are a prefix.

    Attributes:
        config: Settings of the search.
        candidate: `[k]` candidate index of each rank.
        rank: `[k]` rank of each candidate index.
        cost: `[k]` tokens, by rank.
        length: `[k]` length in the reranker's own tokens, by rank; None when the reranker has no limit.
        length_limit: Longest combination in the reranker's tokens.
        order_sensitive: Whether permutations of a combination are different combinations.
    """

    config: SearchConfig
    candidate: list[int]
    rank: list[int]
    cost: NDArray[np.int64]
    length: NDArray[np.int64] | None
    length_limit: int
    order_sensitive: bool

    @property
    def max_chunks(self) -> int:
        """Longest combination in chunks."""
        limit = self.config.max_chunks
        return len(self.candidate) if limit is None else min(limit, len(self.candidate))


def make_problem(
    candidates: Sequence[Chunk],
    config: SearchConfig,
    order_sensitive: bool,
    lengths: Sequence[int] | None = None,
    length_limit: int = 0,
) -> Problem:
    """Rank the candidates.

    Args:
        candidates: Retrieved chunks, best first, from `checked_candidates`.
        config: Settings.
        order_sensitive: As the reranker declares.
        lengths: `[k]` candidate lengths in the reranker's tokens, when it has a limit.
        length_limit: That limit, less the query's own tokens.
    """
    costs = np.fromiter((chunk.cost for chunk in candidates), np.int64, len(candidates))
    by_rank = np.argsort(costs, kind="stable")
    rank = np.empty_like(by_rank)
    rank[by_rank] = np.arange(len(candidates))
    return Problem(
        config=config,
        candidate=by_rank.tolist(),
        rank=rank.tolist(),
        cost=costs[by_rank],
        length=None if lengths is None else np.asarray(lengths, np.int64)[by_rank],
        length_limit=length_limit,
        order_sensitive=order_sensitive,
    )


def token_lengths(query: str, candidates: Sequence[Chunk], reranker: Reranker) -> tuple[list[int] | None, int]:
    """Candidate lengths in the reranker's own tokens, and what its limit leaves for them beside the query.

    A reranker that cannot count is taken to count as the run's tokenizer does, for the chunks alone.

    Returns:
        `[k]` lengths and the limit; None and 0 when the reranker has no limit.

    Raises:
        InputError: It counted something else than one whole number for each text.

    Warns:
        UserWarning: A candidate alone is longer; it is scored on what fits (METHOD §4).
    """
    if reranker.max_tokens is None:
        return None, 0
    if hasattr(reranker, "count_tokens"):
        counted = _counted(reranker.count_tokens([query, *(chunk.text for chunk in candidates)]))
        if len(counted) != 1 + len(candidates):
            raise InputError(
                f"reranker {reranker.name!r} must count one number of tokens for each of {1 + len(candidates)} texts, "
                f"got {len(counted)} numbers from count_tokens"
            )
        own, *lengths = counted
    else:
        own, lengths = 0, [chunk.cost for chunk in candidates]
    limit = reranker.max_tokens - own
    cut = [chunk.id for chunk, length in zip(candidates, lengths, strict=True) if length > limit]
    if cut:
        warnings.warn(
            f"reranker {reranker.name!r} reads {reranker.max_tokens} tokens: {len(cut)} of {len(candidates)} "
            f"candidates are longer (the first is {cut[0]!r}); each is scored on what fits and not combined",
            stacklevel=5,
        )
    return lengths, limit


def _counted(tokens: object) -> list[int]:
    """Numbers of tokens; none where they are none."""
    try:
        return [whole("tokens", number, least=0) for number in tokens]  # type: ignore[attr-defined]
    except (TypeError, InputError):
        return []


def warn_of_refused(tree: PolicyTree, reranker: Reranker, stacklevel: int) -> None:
    """Say after a search which combinations were not made because the reranker cannot read them.

    Warns:
        UserWarning: At least one, with the numbers. Not after the warning of `token_lengths`, which says it too.
    """
    length, limit = tree.problem.length, tree.problem.length_limit
    if length is None or length.max() > limit or np.sort(length)[-tree.problem.max_chunks :].sum() <= limit:
        return
    looked_at = {row for row, _ in tree.expanded}
    looked_at |= {row for row, below in enumerate(tree.children) if below is None and tree.exhausted[row]}
    refused: set[object] = set()
    longest = 0
    for row in looked_at:
        for rank in _too_long(tree, row).tolist():
            index = tree.problem.candidate[rank]
            order = tree.orders[row]
            refused.add((*order, index) if tree.problem.order_sensitive else tree.members[row] | 1 << index)
            longest = max(longest, int(length[[*(tree.problem.rank[i] for i in order), rank]].sum()))
    if refused:
        warnings.warn(
            f"reranker {reranker.name!r} reads {reranker.max_tokens} tokens, {limit} of them beside the query: "
            f"{len(refused)} combinations within the budget were longer (up to {longest}) and not tried; lower the "
            "budget or max_chunks, or load a reranker with long='window' where it has that option",
            stacklevel=stacklevel,
        )


def _too_long(tree: PolicyTree, row: int) -> NDArray[np.intp]:
    """Ranks that may be appended to a row for their cost and not for their length, `[n]`."""
    problem, order = tree.problem, tree.orders[row]
    assert problem.length is not None, "asked only where there is a limit"
    if not order or len(order) >= problem.max_chunks:
        return np.empty(0, np.intp)
    used = [problem.rank[index] for index in order]
    refused = problem.cost <= problem.config.budget - tree.cost[row]
    refused &= problem.length > problem.length_limit - problem.length[used].sum()
    refused[used] = False
    return np.flatnonzero(refused)


def checked_candidates(query: str, candidates: Iterable[Chunk], budget: int) -> tuple[Chunk, ...]:
    """What every way of choosing chunks asks of its input.

    Returns:
        The candidates, out of reach of whoever has the list that was given.

    Raises:
        InputError: Empty query, no candidates, one that is no chunk or is there twice, or a budget below every
            candidate's cost.
    """
    check_query(query)
    if not has_order(candidates):
        raise InputError(f"candidates must be a list of chunks, best first, got {shown(candidates)}")
    candidates = tuple(candidates)
    if not candidates:
        raise InputError("there are no candidates to choose from; retrieve at least one chunk first")
    for chunk in candidates:
        if not isinstance(chunk, Chunk):
            raise InputError(f"candidates must be chunks (corag_search.Chunk), got {shown(chunk)} among them")
    if len({id(chunk) for chunk in candidates}) < len(candidates) or len({c.id for c in candidates}) < len(candidates):
        seen: set[str] = set()
        twice = next(c.id for c in candidates if c.id in seen or seen.add(c.id))  # type: ignore[func-returns-value]
        raise InputError(f"candidate {twice!r} is given twice; a combination may hold a chunk once only")
    check_affordable(candidates, budget)
    return candidates


def has_order(values: object) -> bool:
    """Whether one can go through values in an order of their own: not those of a set, a mapping or a text."""
    if isinstance(values, str | bytes | bytearray | Mapping | Set):
        return False
    try:
        iter(values)  # type: ignore[call-overload]
    except TypeError:  # a NumPy number, for one
        return False
    return True


def check_affordable(chunks: Sequence[Chunk], tokens: int, name: str = "budget", what: str = "candidate") -> None:
    """Refuse a number of tokens that no chunk fits into.

    Args:
        chunks: At least one.
        tokens: What there is to spend.
        name: Of that number, for the message.
        what: The chunks are, for the message.

    Raises:
        InputError: Every chunk costs more.
    """
    cheapest = min(chunk.cost for chunk in chunks)
    if cheapest > tokens:
        raise InputError(f"{name} must be at least the smallest {what}'s cost ({cheapest} tokens), got {tokens}")


def check_query(query: str) -> None:
    """Refuse what cannot be asked.

    Raises:
        InputError: The query is no text, is empty or white space, or cannot be encoded as UTF-8.
    """
    if not isinstance(query, str) or not query.strip():
        raise InputError(f"query must be a text that is not empty, got {shown(query)}")
    check_text("query", query)

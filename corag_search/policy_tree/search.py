"""The search loop, for one query or for many in lockstep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.errors import InputError
from corag_search.policy_tree.expansion import affordable, child_orders, expand
from corag_search.policy_tree.final_rule import BestSoFar
from corag_search.policy_tree.problem import Problem, check_search, make_problem, token_lengths
from corag_search.policy_tree.scores import ScoreMemo, score_pending
from corag_search.policy_tree.selection import select
from corag_search.policy_tree.tree import Order, PolicyTree
from corag_search.policy_tree.update import update
from corag_search.rerankers.base import Reranker, as_reranker
from corag_search.result import Combination, SearchResult

AnyReranker = Reranker | Callable[[str, Sequence[Sequence[Chunk]]], Any]


def search_policy_tree(
    query: str, candidates: Sequence[Chunk], reranker: AnyReranker, config: SearchConfig | None = None
) -> SearchResult:
    """Choose chunks and their order for a query by Monte Carlo tree search (arXiv:2411.00744, Algorithms 1–3).

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: Gives each combination a benefit in [0, 1]; a plain function `(query, combinations)` will do.
        config: Settings; the paper's defaults when None.

    Returns:
        The best combination within the budget among all that were evaluated.

    Raises:
        InputError: Empty query, no candidates, a budget below every candidate's cost, or scores that are not
            finite numbers in [0, 1], one for each combination.

    Example:
        >>> chunks = [Chunk("a", "330 m tall", 4), Chunk("b", "built by Eiffel", 4), Chunk("c", "filler", 2)]
        >>> def covers(query, combinations):
        ...     return [0.4 * len({c.id for c in combination} & {"a", "b"}) for combination in combinations]
        >>> result = search_policy_tree("height and builder?", chunks, covers, SearchConfig(budget=10))
        >>> result.order, result.value, result.cost
        ((0, 1), 0.8, 8)
    """
    return search_policy_trees([query], [candidates], reranker, config)[0]


def search_policy_trees(
    queries: Sequence[str],
    candidates: Sequence[Sequence[Chunk]],
    reranker: AnyReranker | Sequence[AnyReranker],
    config: SearchConfig | Sequence[SearchConfig] | None = None,
) -> list[SearchResult]:
    """Run many searches in lockstep: at most one reranker batch in each iteration for all of them.

    Results equal those of `search_policy_tree` one by one. A query may come several times with different settings:
    searches over the same query, the same chunk objects and the same reranker share their scores.

    Args:
        queries: `[n]`.
        candidates: `[n]` candidate lists.
        reranker: One for all, or `[n]`.
        config: One for all, or `[n]`; the paper's defaults when None.

    Raises:
        InputError: As `search_policy_tree`, or arguments of unequal length.
    """
    searches = _searches(queries, candidates, reranker, config)
    active = list(searches)
    while active:
        active = [search for search in active if search.propose()]
        score_pending([search.memo for search in active])
        for search in active:
            search.absorb()
    return [search.result() for search in searches]


def _searches(
    queries: Sequence[str],
    candidates: Sequence[Sequence[Chunk]],
    reranker: AnyReranker | Sequence[AnyReranker],
    config: SearchConfig | Sequence[SearchConfig] | None,
) -> list[_Search]:
    count = len(queries)
    given = list(reranker) if isinstance(reranker, Sequence) and not isinstance(reranker, str) else [reranker] * count
    configs = list(config) if isinstance(config, Sequence) else [SearchConfig() if config is None else config] * count
    for name, values in (("candidates", candidates), ("reranker", given), ("config", configs)):
        if len(values) != count:
            raise InputError(f"{name} has {len(values)} entries for {count} queries; give one each")
    for settings in configs:
        if not isinstance(settings, SearchConfig):
            raise InputError(f"config must be a SearchConfig, such as SearchConfig(budget=300), got {settings!r}")
    wrapped = {id(one): as_reranker(one) for one in given}
    memos: dict[tuple, ScoreMemo] = {}
    lengths: dict[tuple, tuple[list[int] | None, int]] = {}
    searches = []
    for query, own, one, settings in zip(queries, candidates, given, configs, strict=True):
        check_search(query, own, settings.budget)
        judge = wrapped[id(one)]
        key = (query, tuple(map(id, own)), id(judge))
        if key not in memos:
            memos[key] = ScoreMemo(query, own, judge)
            lengths[key] = token_lengths(query, own, judge)
        problem = make_problem(own, settings, judge.order_sensitive, *lengths[key])
        searches.append(_Search(problem, memos[key]))
    return searches


class _Search:
    """One tree under way."""

    def __init__(self, problem: Problem, memo: ScoreMemo) -> None:
        self.memo = memo
        self._problem = problem
        self._tree = PolicyTree(problem)
        self._best = BestSoFar(self._tree)
        self._best_after: list[Combination] = []
        self._path: list[int] = []
        self._ranks: NDArray[np.intp]
        self._orders: list[Order]

    def propose(self) -> bool:
        """Select and ask for the scores of all children; False when the search is over."""
        if len(self._best_after) == self._problem.config.iterations:
            return False
        path = select(self._tree)
        if path is None:
            return False
        self._path = path
        self._ranks = affordable(self._tree, path[-1])
        self._orders = child_orders(self._tree, path[-1], self._ranks)
        self.memo.ask(self._orders)
        return True

    def absorb(self) -> None:
        """Expand with the scores, update, and note the best so far."""
        new = expand(self._tree, self._path[-1], self._ranks, self._orders, self.memo.of(self._orders))
        update(self._tree, self._path, new)
        self._best_after.append(self._best.look(new))

    def result(self) -> SearchResult:
        best = self._best_after[-1]
        padding = self._problem.config.iterations - len(self._best_after)
        return SearchResult(
            order=best.order,
            chunks=tuple(self.memo.candidates[i] for i in best.order),
            value=best.value,
            objective=best.objective,
            cost=best.cost,
            evaluations=len(self._tree) - 1,
            best_after=(*self._best_after, *[best] * padding),
        )

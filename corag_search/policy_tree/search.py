"""The search loop, for one query or for many in lockstep."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from corag_search.chunk import Chunk
from corag_search.config import SearchConfig, check_config
from corag_search.errors import InputError
from corag_search.policy_tree.expansion import Children, best_by_prior, children_of, expand
from corag_search.policy_tree.final_rule import BestSoFar
from corag_search.policy_tree.problem import (
    Problem,
    checked_candidates,
    has_order,
    make_problem,
    token_lengths,
    warn_of_refused,
)
from corag_search.policy_tree.scores import ScoreMemo, score_pending
from corag_search.policy_tree.selection import select
from corag_search.policy_tree.trace import trace_of
from corag_search.policy_tree.tree import ROOT, PolicyTree
from corag_search.policy_tree.update import update
from corag_search.rerankers.base import Reranker, as_reranker
from corag_search.result import Combination, SearchResult
from corag_search.texts import shown

T = TypeVar("T")
AnyReranker = Reranker | Callable[[str, Sequence[Sequence[Chunk]]], Any]


def search_policy_tree(
    query: str,
    candidates: Sequence[Chunk],
    reranker: AnyReranker,
    config: SearchConfig | None = None,
    *,
    prior: AnyReranker | None = None,
    trace: bool = False,
) -> SearchResult:
    """Choose chunks and their order for a query by Monte Carlo tree search (arXiv:2411.00744, Algorithms 1–3).

    Args:
        query: The question.
        candidates: Retrieved chunks, best first.
        reranker: Gives each combination a benefit in [0, 1]; a plain function `(query, combinations)` will do.
        config: Settings; the defaults of `SearchConfig` when None.
        prior: A cheap reranker that ranks the children of a node where `config.expansion_width` or `root_width` lets
            only some of them be scored.
        trace: Keep the whole tree in the result's `trace`.

    Returns:
        The best combination within the budget among all that were evaluated.

    Raises:
        InputError: Empty query, no candidates, a budget below every candidate's cost, a width without a prior, or
            scores that are not finite numbers in [0, 1], one for each combination.

    Example:
        >>> chunks = [Chunk("a", "330 m tall", 4), Chunk("b", "built by Eiffel", 4), Chunk("c", "filler", 2)]
        >>> def covers(query, combinations):
        ...     return [0.4 * len({c.id for c in combination} & {"a", "b"}) for combination in combinations]
        >>> result = search_policy_tree("height and builder?", chunks, covers, SearchConfig(budget=10))
        >>> result.order, result.value, result.cost
        ((0, 1), 0.8, 8)
    """
    return search_policy_trees([query], [candidates], reranker, config, prior=prior, trace=trace)[0]


def search_policy_trees(
    queries: Sequence[str],
    candidates: Sequence[Sequence[Chunk]],
    reranker: AnyReranker | Sequence[AnyReranker],
    config: SearchConfig | Sequence[SearchConfig] | None = None,
    *,
    prior: AnyReranker | None = None,
    trace: bool = False,
) -> list[SearchResult]:
    """Run many searches in lockstep: at most one reranker batch in each iteration for all of them.

    Results equal those of `search_policy_tree` one by one. A query may come several times with different settings:
    searches over the same query, the same chunk objects and the same reranker share their scores.

    Args:
        queries: `[n]`.
        candidates: `[n]` candidate lists.
        reranker: One for all, or `[n]`.
        config: One for all, or `[n]`; the defaults when None. A `time_limit` counts from this call.
        prior: As for `search_policy_tree`, one for all. It has its own batch in each iteration.
        trace: Keep the trees.

    Raises:
        InputError: As `search_policy_tree`, or arguments of unequal length.
    """
    searches = _searches(queries, candidates, reranker, config, prior)
    active = list(searches)
    while active:
        active = [search for search in active if search.select()]
        score_pending([search.prior for search in active if search.prior is not None])
        for search in active:
            search.propose()
        score_pending([search.memo for search in active])
        for search in active:
            search.absorb()
    return [search.result(trace) for search in searches]


def _searches(
    queries: Sequence[str],
    candidates: Sequence[Sequence[Chunk]],
    reranker: AnyReranker | Sequence[AnyReranker],
    config: SearchConfig | Sequence[SearchConfig] | None,
    prior: AnyReranker | None,
) -> list[_Search]:
    start = time.monotonic()
    queries, candidates = _listed("queries", queries), _listed("candidates", candidates)
    count = len(queries)
    given: list[AnyReranker] = _one_each(reranker, count)
    configs: list[SearchConfig] = _one_each(SearchConfig() if config is None else config, count)
    for name, values in (("candidates", candidates), ("reranker", given), ("config", configs)):
        if len(values) != count:
            raise InputError(f"{name} has {len(values)} entries for {count} queries; give one each")
    for settings in configs:
        check_config(settings)
    cheap = None if prior is None else _checked_prior(prior)
    wrapped = {id(one): as_reranker(one) for one in given}
    memos: dict[tuple, ScoreMemo] = {}
    lengths: dict[tuple, tuple[list[int] | None, int]] = {}
    searches = []
    for query, own, one, settings in zip(queries, candidates, given, configs, strict=True):
        own = checked_candidates(query, own, settings.budget)
        judge = wrapped[id(one)]
        key = (query, tuple(map(id, own)), id(judge))
        if key not in memos:
            memos[key] = ScoreMemo(query, own, judge)
            lengths[key] = token_lengths(query, own, judge)
        ranked = None
        if settings.narrows:
            if cheap is None:
                raise InputError(
                    "expansion_width and root_width need a prior that ranks the children, such as "
                    'prior=load_reranker("maxsim")'
                )
            ranked = memos.setdefault((*key[:2], id(cheap)), ScoreMemo(query, own, cheap))
        problem = make_problem(own, settings, judge.order_sensitive, *lengths[key])
        searches.append(_Search(problem, memos[key], ranked, start))
    return searches


def _listed(name: str, values: Iterable[T]) -> list[T]:
    if not has_order(values):
        raise InputError(f"{name} must be a list with an entry for each search, got {shown(values)}")
    return list(values)


def _one_each(value: T | Sequence[T], count: int) -> list[T]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value] * count


def _checked_prior(prior: AnyReranker) -> Reranker:
    """A reranker that reads combinations of any length: cut ones would all look alike."""
    judge = as_reranker(prior)
    if judge.max_tokens is not None:
        raise InputError(
            f"prior must be a reranker without a token limit, such as 'maxsim', got {judge.name!r}, which reads "
            f"{judge.max_tokens} tokens"
        )
    return judge


class _Search:
    """One tree under way: in each iteration `select`, `propose` and `absorb`, with the scores made between them."""

    def __init__(self, problem: Problem, memo: ScoreMemo, prior: ScoreMemo | None, start: float) -> None:
        self.memo = memo
        self.prior = prior
        self._config = problem.config
        limit = problem.config.time_limit
        self._deadline = None if limit is None else start + limit
        self._tree = PolicyTree(problem)
        self._best = BestSoFar(self._tree)
        self._best_after: list[Combination] = []
        self._path: list[int] = []
        self._children: Children

    def select(self) -> bool:
        """Go down to a node and list its children; False when the search is over."""
        done = len(self._best_after)
        late = self._deadline is not None and done > 0 and time.monotonic() >= self._deadline
        path = None if late or done == self._config.iterations else select(self._tree)
        if path is None:
            return False
        self._path = path
        self._children = children_of(self._tree, path[-1])
        if self._narrows:
            assert self.prior is not None, "checked when the search was made"
            self.prior.ask(self._children.orders)
        return True

    @property
    def _narrows(self) -> bool:
        width = self._width
        return width is not None and len(self._children.orders) > width

    @property
    def _width(self) -> int | None:
        return self._config.root_width if self._path == [ROOT] else self._config.expansion_width

    def propose(self) -> None:
        """Leave out what the prior thinks little of, and ask for the scores of the others."""
        if self._narrows:
            assert self.prior is not None and self._width is not None, "as in select"
            scores = self.prior.of(self._children.orders)
            self._children = best_by_prior(self._tree, self._path[-1], self._children, scores, self._width)
        self.memo.ask(self._children.orders, self._keys)

    @property
    def _keys(self) -> Sequence[Any]:
        return self._children.orders if self._tree.problem.order_sensitive else self._children.members

    def absorb(self) -> None:
        """Expand with the scores, update, and note the best so far."""
        scores = self.memo.of(self._children.orders, self._keys)
        new = expand(self._tree, self._path[-1], self._children, scores)
        update(self._tree, self._path, new)
        self._best_after.append(self._best.look(new))

    def result(self, trace: bool) -> SearchResult:
        memo, best = self.memo, self._best_after[-1]
        warn_of_refused(self._tree, memo.reranker, stacklevel=5)
        iterations = len(self._best_after)
        return SearchResult(
            order=best.order,
            chunks=tuple(memo.candidates[i] for i in best.order),
            value=best.value,
            objective=best.objective,
            cost=best.cost,
            evaluations=len(self._tree) - 1,
            best_after=(*self._best_after, *[best] * (self._config.iterations - iterations)),
            iterations=iterations,
            trace=trace_of(self._tree, memo.query, memo.candidates, memo.reranker.name, best) if trace else None,
        )

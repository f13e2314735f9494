"""The methods that are compared, by name; a new one is a function with `@method("name")`.

A method takes a `Task`, and its options as keyword arguments, and returns a `SearchResult`.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from corag_agent.evaluation.task import Task
from corag_search import baselines
from corag_search.errors import InputError
from corag_search.pipeline import Selected, timed
from corag_search.result import SearchResult

Choose = Callable[..., SearchResult]


@dataclass(frozen=True)
class Method:
    """A way of choosing chunks.

    Attributes:
        name: In YAML files, records and tables.
        choose: The function.
        reranks: Whether it judges by a reranker that the experiment names: it is run with each of them.
        after_tree: Whether it starts from what `tree` chose with the same reranker and settings. That search is no part
            of its time.
        follows_agent: Whether its settings are the agent's.
        prepares: What it builds over the whole corpus before the first question; "" for nothing.
    """

    name: str
    choose: Choose
    reranks: bool = True
    after_tree: bool = False
    follows_agent: bool = False
    prepares: str = ""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the function does not have (InputError)."""
        _, *allowed = inspect.signature(self.choose).parameters
        for option in options:
            if option not in allowed:
                raise InputError(
                    f"method {self.name!r} has no option {option!r}; it has: {', '.join(allowed) or 'none'}"
                )


_METHODS: dict[str, Method] = {}


def method(name: str, **traits: Any) -> Callable[[Choose], Choose]:
    """Register a function as a method.

    Args:
        name: How it is called.
        **traits: Further attributes of `Method`.

    Raises:
        InputError: The name is taken.

    Example:
        >>> @method("first_chunk")
        ... def _first_chunk(task):
        ...     return task.reordered([0])
        >>> "first_chunk" in list_methods(), _METHODS.pop("first_chunk").reranks
        (True, True)
    """

    def register(choose: Choose) -> Choose:
        if name in _METHODS:
            raise InputError(f"there is a method {name!r} already; give yours another name")
        _METHODS[name] = Method(name, choose, **traits)
        return choose

    return register


def list_methods() -> list[str]:
    """The names of all methods."""
    return list(_METHODS)


def find_method(name: str) -> Method:
    """A method by its name.

    Raises:
        InputError: There is none.
    """
    if name not in _METHODS:
        raise InputError(f"unknown method {name!r}; there are: {', '.join(_METHODS)}")
    return _METHODS[name]


@method("naive_rag")
def _naive_rag(task: Task) -> SearchResult:
    return baselines.naive_rag(*task.problem)


@method("naive_matched", after_tree=True)
def _naive_matched(task: Task) -> SearchResult:
    """NaiveRAG at the price of the tree search."""
    return baselines.naive_matched(*task.problem, tokens=task.tree.cost)


@method("best_single")
def _best_single(task: Task) -> SearchResult:
    return baselines.best_single(*task.problem)


@method("greedy_climb")
def _greedy_climb(task: Task) -> SearchResult:
    return baselines.greedy_climb(*task.problem)


@method("mmr")
def _mmr(task: Task, trade_off: float = 0.5) -> SearchResult:
    return baselines.mmr(*task.problem, embeddings=task.embeddings, trade_off=trade_off)


@method("adagres")
def _adagres(task: Task, trade_off: float | None = None) -> SearchResult:
    return baselines.adagres(*task.problem, embeddings=task.embeddings, trade_off=trade_off)


@method("beam")
def _beam(task: Task, width: int = 4) -> SearchResult:
    return baselines.beam(*task.problem, width=width)


@method("upper")
def _upper(task: Task, candidates: int = 8, limit: int = 20_000) -> SearchResult:
    """The optimum over the first candidates, so few that all their orders can be scored."""
    first = task.candidates[:candidates]
    # Scores are shared over all candidates of the task, of which these are a part: they are made anew.
    judge = task.corpus.components.rerankers[task.reranker]
    return baselines.upper_bound(task.query, first, judge, task.config, limit=limit)


@method("raptor", reranks=False, prepares="summaries")
def _raptor(task: Task, summary_tokens: int = 100, cluster_tokens: int = 3500, max_layers: int = 5) -> SearchResult:
    """Over a summary tree of the whole corpus."""
    shape = baselines.RaptorConfig(summary_tokens=summary_tokens, cluster_tokens=cluster_tokens, max_layers=max_layers)
    tree = task.corpus.raptor_tree(shape)
    return baselines.raptor(task.query, tree, task.corpus.components.embedder, task.config)


@method("hyde", reranks=False)
def _hyde(task: Task, passages: int = 1, passage_tokens: int = 128) -> SearchResult:
    return baselines.hyde(
        task.query,
        task.corpus.store,
        task.corpus.components.embedder,
        task.generator,
        task.config,
        candidates=len(task.candidates),
        passages=passages,
        passage_tokens=passage_tokens,
    )


@method("tree")
def _tree(task: Task) -> SearchResult:
    """The policy-tree search with fixed settings, without an agent."""
    return task.tree


@method("agent", reranks=False, follows_agent=True)
def _agent(task: Task) -> SearchResult:
    """The policy-tree search with reranker and settings as the agent predicts them."""
    return task.with_agent


@method("agent_matched", reranks=False, follows_agent=True)
def _agent_matched(task: Task) -> SearchResult:
    """NaiveRAG with the agent's reranker, at the price of its search."""
    return _instead_of_agent(task, partial(baselines.naive_matched, tokens=task.with_agent.cost))


@method("agent_climb", reranks=False, follows_agent=True)
def _agent_climb(task: Task) -> SearchResult:
    """The greedy climb with the agent's reranker and settings."""
    return _instead_of_agent(task, baselines.greedy_climb)


def _instead_of_agent(task: Task, rival: Choose) -> Selected:
    """What a rival chooses where the agent's search had chosen; that search is no part of its time."""
    found = task.with_agent
    timings = {step: seconds for step, seconds in found.timings.items() if step != "search"}
    with timed(timings, "search"):
        result = rival(found.query, found.candidates, task.judges[found.reranker], found.config)
    return replace(found, timings=timings, **{own.name: getattr(result, own.name) for own in fields(SearchResult)})


@method("order_reversed", after_tree=True)
def _order_reversed(task: Task) -> SearchResult:
    """The tree search's chunks, last first. Its own order is the method `tree`."""
    return task.reordered(task.tree.order[::-1])


@method("order_random", after_tree=True)
def _order_random(task: Task, seed: int = 0) -> SearchResult:
    """The tree search's chunks, shuffled in another way for each question."""
    order = list(task.tree.order)
    random.Random(f"{seed}:{task.query}").shuffle(order)
    return task.reordered(order)


@method("order_document", after_tree=True)
def _order_document(task: Task) -> SearchResult:
    """The tree search's chunks as they stand in their documents; documents in the order of retrieval."""
    documents = list(dict.fromkeys(chunk.metadata.get("document") for chunk in task.candidates))

    def place(index: int) -> tuple[int, int]:
        metadata = task.candidates[index].metadata
        return documents.index(metadata.get("document")), metadata.get("start", 0)

    return task.reordered(sorted(task.tree.order, key=place))

"""What a reranker's token limit keeps out of a search, and what is said of it."""

from __future__ import annotations

import warnings
from itertools import permutations

import numpy as np
import pytest

from corag_search import Chunk, SearchConfig
from corag_search.policy_tree.expansion import children_of, expand
from corag_search.policy_tree.problem import make_problem, warn_of_refused
from corag_search.policy_tree.selection import select
from corag_search.policy_tree.tree import PolicyTree

LENGTHS = [3, 4, 5, 6]


class Limited:
    """Ten tokens beside the query."""

    name, order_sensitive, max_tokens = "limited", True, 12


def explored(iterations, order_sensitive=True, limit=10, lengths=LENGTHS, **settings):
    """The tree after some expansions, every combination scoring the same."""
    config = SearchConfig(**{"budget": 100, "iterations": iterations, **settings})
    candidates = [Chunk(str(i), "x", 10) for i in range(len(lengths))]
    tree = PolicyTree(make_problem(candidates, config, order_sensitive, lengths, limit))
    for _ in range(iterations):
        path = select(tree)
        if path is None:
            break
        children = children_of(tree, path[-1])
        expand(tree, path[-1], children, np.full(len(children.orders), 0.5))
    return tree


@pytest.mark.parametrize("order_sensitive", [True, False])
def test_the_whole_tree_says_what_brute_force_says(order_sensitive):
    """Refused: those whose parent was made, that are affordable in cost and longer than the limit."""
    refused = set()
    for size in (2, 3, 4):
        for order in permutations(range(4), size):
            total = sum(LENGTHS[i] for i in order)
            made = size == 2 or total - LENGTHS[order[-1]] <= 10
            if total > 10 and made:
                refused.add(order if order_sensitive else frozenset(order))
    longest = max(sum(LENGTHS[i] for i in own) for own in refused)
    tree = explored(1000, order_sensitive)
    with pytest.warns(UserWarning, match="'limited' reads 12 tokens, 10 of them beside the query") as record:
        warn_of_refused(tree, Limited(), 2)
    assert len(record) == 1
    assert f": {len(refused)} combinations within the budget were longer (up to {longest})" in str(record[0].message)


@pytest.mark.parametrize(
    "settings",
    [
        {"iterations": 1},  # single chunks only
        {"iterations": 1000, "limit": 18},  # all four together
        {"iterations": 1000, "lengths": [3, 4, 5, 5], "max_chunks": 2},
        {"iterations": 1000, "budget": 19},  # no two are affordable
        {"iterations": 1000, "lengths": [3, 4, 5, 11]},  # said before the search
        {"iterations": 1000, "lengths": None},
    ],
)
def test_nothing_is_said_where_the_limit_never_bites(settings):
    lengths = settings.pop("lengths", LENGTHS)
    if lengths is None:
        config = SearchConfig(budget=100)
        tree = PolicyTree(make_problem([Chunk("a", "a", 1)], config, True))
    else:
        tree = explored(lengths=lengths, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_refused(tree, Limited(), 2)

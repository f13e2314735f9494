"""The policy tree against trees worked out by hand, a plain re-derivation of the algorithms, and brute force."""

from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corag_search import Chunk, InputError, SearchConfig, search_policy_tree, search_policy_trees
from tests.corag_search.scripted import RandomScores, Scripted, chunks_of

# ---- worked out by hand ----

HAND = {"a": 0.5, "b": 0.4, "c": 0.3, "ab": 0.6, "ac": 0.2, "ba": 0.9, "bc": 0.1, "ca": 0.0, "cb": 0.0, "abc": 0.1}
HAND_CHUNKS = chunks_of(a=10, b=10, c=20)


def hand_search(**settings: object) -> tuple[Scripted, object]:
    reranker = Scripted(HAND, default=0.05)
    hand = {"exploration": 1.0, "cost_coefficient": 0.1, "budget": 40, "iterations": 4, "selection": "uct"}
    config = SearchConfig(**{**hand, **settings})
    return reranker, search_policy_tree("q", HAND_CHUNKS, reranker, config)


def test_each_iteration_expands_the_node_of_greatest_utility() -> None:
    reranker, result = hand_search()
    # 1: the root. N = 3. 2: N(v) = 1 for all, so a (greatest V − λ·cost/B). N = 6, V(a) = 0.5 + 0.6, N(a) = 2.
    # 3: U(a) = 0.55 + √(ln 6 / 2) − 0.025 = 1.47, U(b) = 0.4 + √ln 6 − 0.025 = 1.71, U(c) = 1.59: b. N = 9.
    # 4: U(a) = 1.57, U(b) = 0.65 + √(ln 9 / 2) − 0.025 = 1.67, U(c) = 0.3 + √ln 9 − 0.05 = 1.73: c.
    assert reranker.batches == [["a", "b", "c"], ["ab", "ac"], ["ba", "bc"], ["ca", "cb"]]
    assert [b.order for b in result.best_after] == [(0,), (0, 1), (1, 0), (1, 0)]
    assert result.order == (1, 0)
    assert (result.value, result.cost) == (0.9, 20)
    assert result.objective == pytest.approx(0.9 - 0.1 * 20 / 40)
    assert result.evaluations == 9
    assert [chunk.id for chunk in result.chunks] == ["b", "a"]


def test_the_best_child_keeps_one_visit() -> None:
    # 2: a. 3: N = 6, U(a) = (1 + 0.9)/2 + 0.3·√(ln 6 / 2) = 1.23 beats U(b) = U(c) = 0.3·√ln 6 = 0.40; below a,
    # U(ab) = 0.9 + 0.3·√ln 6 = 1.30 beats U(ac) = 1.25. Counted twice, ab would have 0.9 + 0.3·√(ln 6 / 2) = 1.18.
    reranker = Scripted({"a": 1.0, "ab": 0.9, "ac": 0.85}, default=0.0)
    config = SearchConfig(iterations=3, exploration=0.3, cost_coefficient=0.0, budget=3)
    search_policy_tree("q", chunks_of(a=1, b=1, c=1), reranker, config)
    assert reranker.batches == [["a", "b", "c"], ["ab", "ac"], ["abc"]]


def test_without_exploration_the_greedy_path_goes_on() -> None:
    reranker, _ = hand_search(exploration=0.0, iterations=3)
    assert reranker.batches == [["a", "b", "c"], ["ab", "ac"], ["abc"]]


def test_figure_1_of_the_paper() -> None:
    """χ3 and χ1 say the same; χ4 names the builder; ⟨χ4, χ3⟩ is best, and χ1 added to it makes it worse."""
    scores = {"1": 0.55, "2": 0.1, "3": 0.6, "4": 0.5, "31": 0.6, "13": 0.6, "34": 0.8, "43": 0.9, "431": 0.7}
    reranker = Scripted(scores, default=0.3)
    chunks = chunks_of(**{"1": 50, "2": 50, "3": 50, "4": 50})
    for exploration in (0.1, 2.4):
        config = SearchConfig(iterations=10, exploration=exploration, budget=200)
        result = search_policy_tree("How tall is the Eiffel tower, and what is its history?", chunks, reranker, config)
        assert [chunk.id for chunk in result.chunks] == ["4", "3"]


def test_photosynthesis_returns_factors_and_process_and_no_filler() -> None:
    texts = {
        "process": "植物、藻类和一些细菌借助光能，把二氧化碳和水变成葡萄糖并放出氧气，这就是光合作用。",
        "place": "光合作用在叶绿体里进行，先后经过光反应和碳反应两个阶段。",
        "factors": "光照、二氧化碳浓度、温度和水分都会影响光合作用的效率。",
        "light": "光照增强时光合作用加快，但过强会造成光抑制。",
        "carbon": "二氧化碳是光合作用的原料，浓度决定其速率。",
    }
    chunks = [Chunk(name, text, len(text)) for name, text in texts.items()]
    worth = {"factors": 0.4, "process": 0.3, "place": 0.2}

    def covers_once(query: str, combinations: list[list[Chunk]]) -> list[float]:
        # Fillers add nothing and cost attention; the factors are asked for last but score best when they stand first.
        return [
            max(0.0, sum(worth.get(c.id, -0.05) for c in own) + (0.05 if own[0].id == "factors" else 0.0))
            for own in combinations
        ]

    query = "请解释光合作用的过程，并列出影响其效率的因素。"
    result = search_policy_tree(query, chunks, covers_once, SearchConfig(iterations=20, budget=300))
    assert result.order[0] == 2
    assert {chunk.id for chunk in result.chunks} == {"factors", "process", "place"}


def test_a_set_is_one_node_and_is_given_out_by_falling_single_score() -> None:
    scores = {"a": 0.2, "b": 0.5, "c": 0.1, "ab": 0.9, "ac": 0.1, "bc": 0.1, "abc": 0.3}
    reranker = Scripted(scores, order_sensitive=False)
    result = search_policy_tree("q", chunks_of(a=1, b=1, c=1), reranker, SearchConfig(iterations=20, budget=3))
    assert result.order == (1, 0)
    assert result.evaluations == 7
    evaluated = [key for batch in reranker.batches for key in batch]
    assert sorted(evaluated) == sorted(scores)


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        ("objective", (0,)),  # 0.5 − 0.4·0.25 beats 0.6 − 0.4·1
        ("reward", (0, 1)),  # 0.6
        ("average", (0, 1)),  # V(a)/N(a) = (0.5 + 0.6)/2 = 0.55; ab stays 0.6
        ("utility", (0,)),  # U(a) = 0.55 − 0.1 at c = 0; U(ab) = 0.6 − 0.4
    ],
)
def test_final_rules(rule: str, order: tuple[int, ...]) -> None:
    reranker = Scripted({"a": 0.5, "b": 0.1, "ab": 0.6, "ba": 0.0})
    config = SearchConfig(iterations=2, exploration=0.0, cost_coefficient=0.4, budget=40, final_rule=rule)
    assert search_policy_tree("q", chunks_of(a=10, b=30), reranker, config).order == order


def test_never_the_empty_root_even_if_every_objective_is_negative() -> None:
    reranker = Scripted({"a": 0.0, "b": 0.01}, default=0.0)
    result = search_policy_tree("q", chunks_of(a=9, b=10), reranker, SearchConfig(cost_coefficient=1.0, budget=10))
    assert result.order == (0,)
    assert result.objective == pytest.approx(-0.9)


def test_ties_go_to_lower_cost_then_shorter_then_retrieval_order() -> None:
    same = Scripted({}, default=0.5)
    config = SearchConfig(cost_coefficient=0.0, budget=100, iterations=30)
    assert search_policy_tree("q", chunks_of(a=20, b=10, c=10), same, config).order == (1,)
    # ab costs what c costs; the shorter wins.
    longer = Scripted({"c": 0.5, "ab": 0.5}, default=0.1)
    assert search_policy_tree("q", chunks_of(a=5, b=5, c=10), longer, config).order == (2,)


def test_exhausted_tree_stops_early_and_is_padded() -> None:
    reranker = Scripted(HAND, default=0.05)
    result = search_policy_tree("q", HAND_CHUNKS[:2], reranker, SearchConfig(iterations=50, budget=20))
    assert len(reranker.batches) == 3  # the root, a and b; ab and ba are terminal
    assert len(result.best_after) == 50
    assert len(set(result.best_after[2:])) == 1


# ---- a plain re-derivation ----


@dataclass
class Node:
    order: tuple[int, ...]
    score: float = 0.0
    value: float = 0.0
    visits: int = 0
    children: dict[int, Node] | None = None
    parents: list[Node] = field(default_factory=list)


def plain_search(query, chunks, reranker, config):
    """Algorithms 1–3 with one object a node, for any reranker and either selection, as METHOD §2–3 say."""
    costs = [chunk.cost for chunk in chunks]
    by_set: dict[frozenset[int], Node] = {}
    nodes: list[Node] = []
    root = Node(())
    seen: list[float] = []  # every V/N that a node had after an iteration

    def cost(order):
        return sum(costs[i] for i in order)

    def extensions(node):
        if len(node.order) >= min(config.max_chunks or len(chunks), len(chunks)):
            return []
        return [i for i in range(len(chunks)) if i not in node.order and cost((*node.order, i)) <= config.budget]

    def exhausted(node):
        return not extensions(node) or (node.children is not None and all(map(exhausted, node.children.values())))

    def utility(node):
        total = sum(n.visits for n in nodes)
        average = node.value / node.visits
        if config.selection == "scaled":
            spread = max(seen) - min(seen)
            average = (average - min(seen)) / spread if spread > 0 else 0.0
        return (
            average
            + config.exploration * math.sqrt(math.log(total) / node.visits)
            - config.cost_coefficient * cost(node.order) / config.budget
        )

    def given_out(node):
        if reranker.order_sensitive:
            return node.order
        single = {i: by_set[frozenset({i})].score for i in node.order}
        return tuple(sorted(node.order, key=lambda i: (-single[i], i)))

    def worth(node):
        price = config.cost_coefficient * cost(node.order) / config.budget
        return {
            "objective": lambda: node.score - price,
            "reward": lambda: node.score,
            "average": lambda: node.value / node.visits,
            "utility": lambda: utility(node),
        }[config.final_rule]()

    best_after = []
    for _ in range(config.iterations):
        if exhausted(root):
            break
        path = [root]
        while path[-1].children is not None:
            options = [child for child in path[-1].children.values() if not exhausted(child)]
            path.append(min(options, key=lambda n: (-utility(n), cost(n.order), n.order[-1])))
        leaf = path[-1]
        leaf.children = {}
        for i in extensions(leaf):
            key = frozenset((*leaf.order, i))
            if not reranker.order_sensitive and key in by_set:
                leaf.children[i] = by_set[key]
                continue
            score = reranker.of(query, [chunks[j].id for j in (*leaf.order, i)])
            leaf.children[i] = by_set[key] = Node((*leaf.order, i), score, score, 1)
            nodes.append(leaf.children[i])
        reward = max(child.score for child in leaf.children.values())
        for node in path[1:]:
            node.value += reward
            node.visits += 1
        seen += [node.value / node.visits for node in nodes]
        best = min(nodes, key=lambda n: (-worth(n), cost(n.order), len(n.order), given_out(n)))
        best_after.append((given_out(best), best.score))
    return best_after, len(nodes)


searches = st.fixed_dictionaries(
    {
        "costs": st.lists(st.integers(1, 6), min_size=1, max_size=5),
        "seed": st.integers(0, 10_000),
        "order_sensitive": st.booleans(),
        "exploration": st.sampled_from([0.0, 0.1, 1.0, 2.4]),
        "cost_coefficient": st.sampled_from([0.0, 0.1, 0.3, 2.0]),
        "slack": st.integers(0, 12),
        "max_chunks": st.sampled_from([None, 1, 2, 3, 5]),
        "iterations": st.integers(1, 25),
    }
)


def problem_of(drawn: dict, **more: object) -> tuple[list[Chunk], RandomScores, SearchConfig]:
    chunks = [Chunk(str(i), f"text {i}", cost) for i, cost in enumerate(drawn["costs"])]
    reranker = RandomScores(drawn["seed"], drawn["order_sensitive"])
    names = ("exploration", "cost_coefficient", "max_chunks", "iterations")
    config = SearchConfig(budget=min(drawn["costs"]) + drawn["slack"], **{n: drawn[n] for n in names})
    return chunks, reranker, replace(config, **more)


@given(searches, st.sampled_from(["objective", "reward", "average", "utility"]), st.sampled_from(["uct", "scaled"]))
@settings(max_examples=400, deadline=None)
def test_equals_the_plain_re_derivation_after_every_iteration(drawn: dict, rule: str, selection: str) -> None:
    chunks, reranker, config = problem_of(drawn, final_rule=rule, selection=selection)
    expected, evaluations = plain_search("q", chunks, reranker, config)
    result = search_policy_tree("q", chunks, reranker, config)
    assert [(b.order, b.value) for b in result.best_after[: len(expected)]] == expected
    assert result.evaluations == evaluations


# ---- expansion by a prior, deadline, trace ----


@given(searches, st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_a_prior_chooses_what_is_scored(drawn: dict, width: int, root_width: int, seed: int) -> None:
    chunks, reranker, config = problem_of(drawn, expansion_width=width, root_width=root_width)
    prior = RandomScores(seed, order_sensitive=drawn["order_sensitive"])
    batches: list[list[tuple[int, ...]]] = []

    def costly(query, combinations):
        batches.append([tuple(int(chunk.id) for chunk in own) for own in combinations])
        return reranker.score(query, combinations)

    result = search_policy_tree("q", chunks, costly, config, prior=prior)
    costs = [chunk.cost for chunk in chunks]

    def worth(order):
        ids = [str(i) for i in order]
        return prior.of("q", ids) - config.cost_coefficient * sum(costs[i] for i in order) / config.budget

    for batch in batches:
        parent = batch[0][:-1]
        room = config.budget - sum(costs[i] for i in parent)
        every = [(*parent, i) for i in range(len(chunks)) if i not in parent and costs[i] <= room]
        best = sorted(every, key=lambda o: (-worth(o), costs[o[-1]], o[-1]))
        limit = width if parent else root_width
        assert sorted(batch) == sorted(best[:limit])
    assert result.evaluations == sum(map(len, batches))
    assert result.objective == max(b.objective for b in result.best_after)


def test_a_wide_prior_changes_nothing() -> None:
    chunks = chunks_of(a=3, b=4, c=5, d=2)
    plain = SearchConfig(budget=12, iterations=9)
    narrowed = replace(plain, expansion_width=4, root_width=4)
    for ordered in (True, False):
        reranker = RandomScores(5, ordered)
        expected = search_policy_tree("q", chunks, reranker, plain)
        assert search_policy_tree("q", chunks, reranker, narrowed, prior=RandomScores(6)) == expected


def test_a_set_whose_member_was_left_out_at_the_root_has_an_order() -> None:
    prior = Scripted({"a": 0.9, "ab": 0.9}, order_sensitive=False, default=0.1)
    reranker = Scripted({"a": 0.5, "ab": 0.9}, order_sensitive=False, default=0.1)
    config = SearchConfig(budget=3, iterations=2, root_width=1, expansion_width=1)
    result = search_policy_tree("q", chunks_of(a=1, b=1, c=1), reranker, config, prior=prior)
    assert (result.order, result.evaluations) == ((0, 1), 2)


def test_searches_with_a_prior_in_lockstep_equal_one_by_one() -> None:
    queries = ["p", "q", "r"]
    candidates = [chunks_of(a=2, b=3, c=4, d=1, e=2) for _ in queries]
    configs = [SearchConfig(budget=9, expansion_width=w, root_width=r) for w, r in ((1, 3), (2, None), (None, 2))]
    for ordered in (True, False):
        reranker, prior = RandomScores(1, ordered), RandomScores(2, ordered)
        together = search_policy_trees(queries, candidates, reranker, configs, prior=prior)
        alone = [
            search_policy_tree(q, c, reranker, s, prior=prior)
            for q, c, s in zip(queries, candidates, configs, strict=True)
        ]
        assert together == alone


@pytest.mark.parametrize("settings", [{"expansion_width": 2}, {"root_width": 2}])
def test_a_width_needs_a_prior_that_reads_everything(settings: dict) -> None:
    config = SearchConfig(budget=5, **settings)
    with pytest.raises(InputError, match="need a prior that ranks the children"):
        search_policy_tree("q", chunks_of(a=1), RandomScores(0), config)
    short = RandomScores(0)
    short.max_tokens = 512  # type: ignore[assignment]
    with pytest.raises(InputError, match=r"prior must be a reranker without a token limit, .* 'random 0', .* 512"):
        search_policy_tree("q", chunks_of(a=1), RandomScores(0), config, prior=short)


def test_after_the_deadline_no_expansion_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))  # one second at each look
    monkeypatch.setattr("corag_search.policy_tree.search.time.monotonic", lambda: float(next(clock)))
    chunks = chunks_of(a=1, b=1, c=1, d=1)
    config = SearchConfig(iterations=20, budget=4, time_limit=2.5)
    result = search_policy_tree("q", chunks, RandomScores(3), config)
    # Start at 0; looks before the second and third expansion at 1 and 2, before the fourth at 3.
    assert result.iterations == 3
    full = search_policy_tree("q", chunks, RandomScores(3), replace(config, time_limit=None))
    assert result.best_after[:3] == full.best_after[:3]
    assert result.best_after[3:] == (result.best_after[2],) * 17


@given(searches, st.sampled_from(["uct", "scaled"]))
@settings(max_examples=100, deadline=None)
def test_a_trace_holds_the_whole_tree(drawn: dict, selection: str) -> None:
    chunks, reranker, config = problem_of(drawn, selection=selection)
    result = search_policy_tree("q", chunks, reranker, config, trace=True)
    trace = result.trace
    assert trace is not None and trace.candidates == tuple(chunks)
    assert replace(result, trace=None) == search_policy_tree("q", chunks, reranker, config)
    assert len(trace.nodes) == result.evaluations
    chosen = trace.nodes[trace.chosen]
    assert sorted(chosen.order) == sorted(result.order)
    assert (chosen.score, chosen.objective, chosen.cost) == (result.value, result.objective, result.cost)
    for number, node in enumerate(trace.nodes):
        assert node.score == reranker.of("q", [str(i) for i in node.order])
        assert node.visits >= 1 and node.expanded != node.iteration
        for parent in node.parents:
            members = set() if parent == -1 else set(trace.nodes[parent].order)
            assert members < set(node.order) and len(node.order) == len(members) + 1
        assert node.parents[0] < number  # a later parent of a set may have been found after it
        if node.parents[0] != -1:
            assert trace.nodes[node.parents[0]].expanded == node.iteration
    assert sum(node.expanded is not None for node in trace.nodes) == result.iterations - 1
    assert json.loads(json.dumps(trace.to_dict()))["chosen"] == trace.chosen


# ---- brute force ----


@given(searches, st.sampled_from(["uct", "scaled"]))
@settings(max_examples=300, deadline=None)
def test_with_enough_iterations_the_optimum_is_found_and_nothing_is_scored_twice(drawn: dict, selection: str) -> None:
    chunks, reranker, config = problem_of(drawn, iterations=400, selection=selection)
    result = search_policy_tree("q", chunks, reranker, config)
    longest = min(config.max_chunks or len(chunks), len(chunks))
    pick = itertools.permutations if reranker.order_sensitive else itertools.combinations
    affordable = [
        order
        for length in range(1, longest + 1)
        for order in pick(range(len(chunks)), length)
        if sum(chunks[i].cost for i in order) <= config.budget
    ]
    assert len(reranker.evaluated) == len(set(reranker.evaluated)) == len(affordable) == result.evaluations

    def objective(order: tuple[int, ...]) -> float:
        price = config.cost_coefficient * sum(chunks[i].cost for i in order) / config.budget
        return reranker.of("q", [chunks[i].id for i in order]) - price

    assert result.objective == pytest.approx(max(map(objective, affordable)), abs=1e-12)
    assert result.objective == pytest.approx(objective(result.order), abs=1e-12)


@given(searches)
@settings(max_examples=200, deadline=None)
def test_result_is_affordable_without_repetition_and_best_of_what_was_evaluated(drawn: dict) -> None:
    chunks, reranker, config = problem_of(drawn)
    result = search_policy_tree("q", chunks, reranker, config)
    assert result.cost == sum(chunk.cost for chunk in result.chunks) <= config.budget
    assert len(set(result.order)) == len(result.order) >= 1
    cost = {chunk.id: chunk.cost for chunk in chunks}
    best = max(
        reranker.of("q", ids) - config.cost_coefficient * sum(cost[i] for i in ids) / config.budget
        for ids in reranker.evaluated
    )
    assert result.objective == pytest.approx(best, abs=1e-12)
    assert [b.objective for b in result.best_after] == sorted(b.objective for b in result.best_after)


def test_a_longer_search_answers_for_the_shorter_ones() -> None:
    chunks = chunks_of(a=3, b=4, c=5, d=2, e=6)
    for seed in range(20):
        for rule in ("objective", "average", "utility"):
            config = SearchConfig(iterations=25, exploration=0.5, budget=12, final_rule=rule)
            long = search_policy_tree("q", chunks, RandomScores(seed), config)
            for iterations in (1, 5, 10):
                short = search_policy_tree("q", chunks, RandomScores(seed), replace(config, iterations=iterations))
                assert short.order == long.best_after[iterations - 1].order


# ---- many queries in lockstep ----


class Pairing(RandomScores):
    """Scores pairs in one batch and counts the batches."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.calls = 0

    def score_pairs(self, queries, combinations):
        self.calls += 1
        return np.array([self.score(q, [c])[0] for q, c in zip(queries, combinations, strict=True)])


def test_lockstep_equals_one_by_one_with_one_batch_an_iteration() -> None:
    rng = random.Random(3)
    queries = [f"query {i}" for i in range(7)]
    candidates = [[Chunk(f"{i}-{j}", "t", rng.randint(1, 6)) for j in range(5)] for i in range(7)]
    configs = [SearchConfig(iterations=rng.randint(1, 12), exploration=rng.random(), budget=14) for _ in queries]
    together = Pairing(1)
    results = search_policy_trees(queries, candidates, together, configs)
    assert together.calls <= max(config.iterations for config in configs)
    for query, own, config, result in zip(queries, candidates, configs, results, strict=True):
        assert result == search_policy_tree(query, own, RandomScores(1), config)


def test_one_query_with_many_settings_shares_its_scores() -> None:
    reranker = RandomScores(5)
    chunks = chunks_of(a=3, b=4, c=5, d=2)
    configs = [SearchConfig(iterations=8, exploration=c, budget=12) for c in (0.0, 0.1, 1.0, 2.4)]
    results = search_policy_trees(["q"] * 4, [chunks] * 4, reranker, configs)
    assert len(reranker.evaluated) == len(set(reranker.evaluated))
    assert results == [search_policy_tree("q", chunks, RandomScores(5), config) for config in configs]


def test_a_session_is_opened_once_and_used() -> None:
    opened = []

    class WithSession(RandomScores):
        def open(self, query, candidates):
            opened.append(query)
            outer = self

            class Session:
                def score(self, orders):
                    return outer.score(query, [[candidates[i] for i in order] for order in orders])

            return Session()

    chunks = chunks_of(a=3, b=4, c=5)
    result = search_policy_tree("q", chunks, WithSession(2), SearchConfig(budget=12))
    assert opened == ["q"]
    assert result == search_policy_tree("q", chunks, RandomScores(2), SearchConfig(budget=12))


# ---- a reranker's token limit ----


def test_combinations_above_the_rerankers_limit_are_not_made() -> None:
    class Limited(RandomScores):
        max_tokens = 10

        def count_tokens(self, texts):
            return [2 if text == "q" else len(text) for text in texts]

    reranker = Limited(1)
    chunks = [Chunk("a", "x" * 4, 1), Chunk("b", "x" * 4, 1), Chunk("c", "x" * 5, 1), Chunk("d", "x" * 20, 1)]
    with pytest.warns(UserWarning, match=r"reads 10 tokens: 1 of 4 candidates are longer \(the first is 'd'\)"):
        search_policy_tree("q", chunks, reranker, SearchConfig(iterations=99, budget=100))
    # 8 tokens are left beside the query: a + b fit, c fits with neither, d is cut and stands alone.
    assert set(reranker.evaluated) == {("a",), ("b",), ("c",), ("d",), ("a", "b"), ("b", "a")}


# ---- bad input: one line, the value, the remedy ----


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.1, float("nan")], r"scored nan for combination 1 of 2; scores must be finite"),
        ([0.1, float("inf")], r"scored inf for combination 1 of 2"),
        ([0.1, 7.5], r"scored 7\.5; scores must lie in \[0, 1\]: put logits through a sigmoid"),
        ([-0.5, 0.1], r"scored -0\.5; scores must lie in \[0, 1\]"),
        ([0.1], r"returned scores of shape \[1\] for 2 combinations"),
        ([[0.1, 0.2]], r"returned scores of shape \[1, 2\] for 2 combinations"),
        (["high", "low"], r"^reranker '<lambda>' returned \['high', 'low'\] for 2 .* one number each, shape \[2\]$"),
        (["0.1", "0.2"], r"returned \['0\.1', '0\.2'\] for 2 combinations; it must return one number each"),
        ([[0.1], [0.1, 0.2]], r"returned \[\[0\.1\], \[0\.1, 0\.2\]\] for 2 combinations"),
        ([{}, "x" * 200], r"returned \[\{\}, 'x+\.\.\. for 2 combinations"),
    ],
)
def test_unusable_scores_are_refused(scores: list, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search_policy_tree("q", chunks_of(a=1, b=1), lambda q, c: scores, SearchConfig(budget=5))


@pytest.mark.parametrize(
    ("query", "chunks", "budget", "message"),
    [
        ("", chunks_of(a=1), 5, r"query must be a text that is not empty, got ''"),
        (" \n\t", chunks_of(a=1), 5, r"query must be a text that is not empty"),
        ("q", [], 5, r"no candidates to choose from"),
        ("q", chunks_of(a=37, b=40), 20, r"at least the smallest candidate's cost \(37 tokens\), got 20"),
        ("q", [*chunks_of(a=1), *chunks_of(a=1)], 5, r"candidate 'a' is given twice"),
        ("q", ["a text"], 5, r"candidates must be chunks \(corag_search\.Chunk\), got 'a text' among them"),
        (
            "a \ud83d b",
            chunks_of(a=1),
            5,
            r"encoded as UTF-8, got half a surrogate pair at character 2 of 'a \\ud83d b'",
        ),
    ],
)
def test_unusable_searches_are_refused(query: str, chunks: list[Chunk], budget: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        search_policy_tree(query, chunks, Scripted({}, default=0.5), SearchConfig(budget=budget))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"iterations": 0}, r"iterations must be a whole number of expansions, at least 1, got 0"),
        ({"iterations": 1.5}, r"iterations must be .* got 1\.5"),
        ({"iterations": True}, r"iterations must be .* got True"),
        ({"budget": -3}, r"budget must be a whole number of tokens, at least 1, got -3"),
        ({"max_chunks": 0}, r"max_chunks must be .* got 0"),
        ({"exploration": -0.1}, r"exploration must be a finite number, at least 0, got -0\.1"),
        ({"cost_coefficient": float("nan")}, r"cost_coefficient must be a finite number, at least 0, got nan"),
        ({"final_rule": "best"}, r"final_rule must be one of objective, utility, average, reward, got 'best'"),
        ({"time_limit": 0}, r"time_limit must be above 0 seconds, or None for no limit, got 0"),
        ({"time_limit": math.nan}, r"time_limit must be a finite number"),
        ({"expansion_width": 0}, r"expansion_width must be a whole number of children, at least 1, got 0"),
        ({"root_width": 2.5}, r"root_width must be a whole number of children, at least 1, got 2.5"),
        ({"selection": "ucb"}, r"selection must be one of uct, scaled, got 'ucb'"),
    ],
)
def test_unusable_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchConfig(**settings)


def test_counts_of_numpy_are_python_counts() -> None:
    chunk = Chunk("a", "text", np.int64(3))  # type: ignore[arg-type]
    config = SearchConfig(iterations=np.int64(4), budget=np.int32(9), max_chunks=np.uint8(2))  # type: ignore[arg-type]
    assert (chunk, config) == (Chunk("a", "text", 3), SearchConfig(iterations=4, budget=9, max_chunks=2))
    assert {type(n) for n in (chunk.cost, config.iterations, config.budget, config.max_chunks)} == {int}


@pytest.mark.parametrize("config", [{"budget": 5}, {}, 5, [{"budget": 5}]])
def test_settings_that_are_no_search_config_are_refused(config: object) -> None:
    with pytest.raises(InputError, match=r"config must be a SearchConfig, such as .*, got"):
        search_policy_tree("q", chunks_of(a=1), Scripted({}, default=0.1), config)  # type: ignore[arg-type]


def test_unusable_rerankers_are_refused() -> None:
    with pytest.raises(InputError, match=r"got 'bm25'; names are loaded with load_reranker"):
        search_policy_tree("q", chunks_of(a=1), "bm25", SearchConfig(budget=5))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"3 entries for 1 queries"):
        search_policy_trees(["q"], [chunks_of(a=1)], Scripted({}, default=0.1), [SearchConfig()] * 3)


@pytest.mark.parametrize("cost", [0, -1, 1.5, True, None, math.nan, math.inf, "3", [3]])
def test_a_chunk_costs_at_least_one_whole_token(cost: object) -> None:
    with pytest.raises(InputError, match=r"chunk 'a': cost must be a whole number of tokens, at least 1"):
        Chunk("a", "text", cost)  # type: ignore[arg-type]

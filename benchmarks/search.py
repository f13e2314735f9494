"""The figures behind the search: quality per evaluation, expansion by a prior, bookkeeping, lockstep.

    python benchmarks/search.py sets xquad.en.dev.json covidqa.dev.json
    python benchmarks/search.py orders xquad.en.dev.json covidqa.dev.json --scores runs/orders
    python benchmarks/search.py prior xquad.en.dev.json covidqa.dev.json
    python benchmarks/search.py overhead

Each prints its tables as Markdown. The data are files in SQuAD layout.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from corag_search import Chunk, SearchConfig, load_embedder, load_reranker, search_policy_tree, search_policy_trees
from corag_search.baselines import beam, best_single, greedy_climb
from corag_search.pipeline_config import PipelineConfig
from data_prep.corpus import build_store
from data_prep.readers import read_dataset

BUDGET, MAX_CHUNKS, COST_COEFFICIENT = 512, 5, 0.1
RULES = {
    "uct, c = 2.4 (the paper's)": {"selection": "uct", "exploration": 2.4},
    "uct, c = 0.5": {"selection": "uct", "exploration": 0.5},
    "uct, c = 0.1": {"selection": "uct", "exploration": 0.1},
    "uct, c = 0": {"selection": "uct", "exploration": 0.0},
    "scaled, c = 0.5": {"selection": "scaled", "exploration": 0.5},
    "scaled, c = 0.2 (default)": {"selection": "scaled", "exploration": 0.2},
    "scaled, c = 0.1": {"selection": "scaled", "exploration": 0.1},
    "scaled, c = 0": {"selection": "scaled", "exploration": 0.0},
}
Order = tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A question with its candidates, every combination's score, and the optimum.

    Attributes:
        query: The question.
        candidates: Retrieved chunks, best first.
        scores: Benefit of each combination; sets are keyed by their sorted members.
        ordered: Whether permutations differ.
        optimum: Greatest objective.
        best_single: Greatest objective of one chunk.
        several: Whether the optimum has two chunks or more.
    """

    query: str
    candidates: list[Chunk]
    scores: dict[Order, float]
    ordered: bool
    optimum: float
    best_single: float
    several: bool


class Looked:
    """A reranker that looks its scores up."""

    name = "table"
    max_tokens = None

    def __init__(self, problem: Problem) -> None:
        self.order_sensitive = problem.ordered
        self._scores = problem.scores

    def open(self, query: str, candidates: Sequence[Chunk]) -> Looked:
        return self

    def score(self, orders, combinations=None):  # type: ignore[no-untyped-def]
        """As a session: orders of indices."""
        return np.array([self._scores[o if self.order_sensitive else tuple(sorted(o))] for o in orders])


def retrieved(source: str, count: int, k: int) -> Iterator[tuple[str, list[Chunk]]]:
    """A sample of a data set's questions, each with its k nearest chunks of 96 tokens."""
    dataset = read_dataset(f"squad:{source}")
    embedder = load_embedder("minilm")
    store = build_store(dataset, PipelineConfig(chunk_size=96), embedder)
    for question in dataset.select(count, 0).questions:
        yield question.text, store.search(embedder.encode([question.text])[0], k)


def combinations_of(candidates: Sequence[Chunk], ordered: bool) -> list[Order]:
    """Every affordable combination of up to five chunks."""
    choose: Callable = itertools.permutations if ordered else itertools.combinations
    every = (o for length in range(1, MAX_CHUNKS + 1) for o in choose(range(len(candidates)), length))
    return [order for order in every if sum(candidates[i].cost for i in order) <= BUDGET]


def problem_of(query: str, candidates: list[Chunk], scores: dict[Order, float], ordered: bool) -> Problem:
    worth = {
        order: score - COST_COEFFICIENT * sum(candidates[i].cost for i in order) / BUDGET
        for order, score in scores.items()
    }
    best = max(worth, key=worth.__getitem__)
    single = max(worth[order] for order in worth if len(order) == 1)
    return Problem(query, candidates, scores, ordered, worth[best], single, len(best) > 1)


def quality(problems: Sequence[Problem], search: Callable[[Problem], tuple[int, float]]) -> list[str]:
    """Cells of a table's row: evaluations, share of the optimum, share of the gain over the best single chunk."""
    found = [search(problem) for problem in problems]
    evaluations = [count for count, _ in found]
    share = [worth / problem.optimum for problem, (_, worth) in zip(problems, found, strict=True)]
    gain = [
        (worth - problem.best_single) / (problem.optimum - problem.best_single)
        for problem, (_, worth) in zip(problems, found, strict=True)
        if problem.several
    ]
    return [
        f"{statistics.mean(evaluations):.0f}",
        f"{max(evaluations)}",
        f"{100 * statistics.mean(share):.2f}",
        f"{100 * min(share):.1f}",
        f"{100 * statistics.mean(gain):.1f}" if gain else "–",
    ]


def quality_table(problems: Sequence[Problem], iterations: Sequence[int]) -> None:
    print_row(["rule", "iterations", "evaluations", "most", "% of optimum", "least", "% of gain over best single"])
    print_row(["---"] * 7)
    base = SearchConfig(budget=BUDGET, cost_coefficient=COST_COEFFICIENT, max_chunks=MAX_CHUNKS)
    for name, settings in RULES.items():
        for count in iterations:
            config = replace(base, iterations=count, **settings)  # type: ignore[arg-type]

            def tree(problem: Problem, config: SearchConfig = config) -> tuple[int, float]:
                result = search_policy_tree(problem.query, problem.candidates, Looked(problem), config)
                return result.evaluations, result.objective

            print_row([name, str(count), *quality(problems, tree)])
    rivals: dict[str, Callable] = {"best single chunk": best_single, "greedy climb": greedy_climb}
    for width in (1, 2, 4, 6):
        rivals[f"beam, width {width}"] = lambda *given, width=width: beam(*given, width=width)
    for name, method in rivals.items():

        def rival(problem: Problem, method: Callable = method) -> tuple[int, float]:
            result = method(problem.query, problem.candidates, Looked(problem), base)
            return result.evaluations, result.objective

        print_row([name, "", *quality(problems, rival)])


def sets(sources: Sequence[str], count: int) -> None:
    """Rerankers that ignore order, 20 candidates: up to 21,699 sets."""
    for source in sources:
        questions = list(retrieved(source, count, 20))
        for name in ("bm25", "maxsim", "wordllama"):
            reranker = load_reranker(name)
            problems = []
            for query, candidates in questions:
                every = combinations_of(candidates, ordered=False)
                scores = reranker.open(query, candidates).score(every)  # type: ignore[attr-defined]
                problems.append(problem_of(query, candidates, dict(zip(every, scores.tolist(), strict=True)), False))
            several = sum(problem.several for problem in problems)
            print(f"\n{Path(source).stem}, {name}: {count} questions, the optimum has several chunks in {several}\n")
            quality_table(problems, (5, 10, 15, 20))


def orders(sources: Sequence[str], count: int, folder: Path) -> None:
    """The order-sensitive reranker `cosine`, 8 candidates: up to 8,800 orders. Scores are kept in `folder`."""
    reranker = load_reranker("cosine", dtype="bfloat16")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        problems = []
        for number, (query, candidates) in enumerate(retrieved(source, count, 8)):
            every = combinations_of(candidates, ordered=True)
            file = folder / f"{Path(source).stem}.{number}.npy"
            if not file.exists():
                parts = [every[i : i + 512] for i in range(0, len(every), 512)]
                session = reranker.open(query, candidates)  # type: ignore[attr-defined]
                np.save(file, np.concatenate([session.score(part) for part in parts]))
            scores = np.load(file).tolist()
            problems.append(problem_of(query, candidates, dict(zip(every, scores, strict=True)), True))
        several = sum(problem.several for problem in problems)
        print(f"\n{Path(source).stem}, cosine: {count} questions, the optimum has several chunks in {several}\n")
        quality_table(problems, (5, 10, 13))


def overhead() -> None:
    """Processor time of the tree alone, per evaluated combination: 60 candidates, 50 iterations."""

    class Free:
        """Scores from a generator; its own time is taken off."""

        name = "free"
        max_tokens = None

        def __init__(self, ordered: bool) -> None:
            self.order_sensitive = ordered
            self.seconds = 0.0
            self._generator = np.random.default_rng(0)

        def open(self, query: str, candidates: Sequence[Chunk]) -> Free:
            return self

        def score(self, orders, combinations=None):  # type: ignore[no-untyped-def]
            start = time.process_time()
            scores = self._generator.random(len(orders))
            self.seconds += time.process_time() - start
            return scores

    candidates = [Chunk(str(i), f"text {i}", 90 + i % 7) for i in range(60)]
    print_row(["reranker", "rule", "evaluations", "µs per evaluation, median of 25", "least"])
    print_row(["---"] * 5)
    for ordered in (True, False):
        for name in ("uct, c = 2.4 (the paper's)", "scaled, c = 0.2 (default)", "scaled, c = 0"):
            config = SearchConfig(iterations=50, budget=BUDGET, **RULES[name])  # type: ignore[arg-type]
            spent = []
            for _ in range(25):
                reranker = Free(ordered)
                start = time.process_time()
                result = search_policy_tree("q", candidates, reranker, config)
                spent.append((time.process_time() - start - reranker.seconds) / result.evaluations * 1e6)
            kind = "order matters" if ordered else "sets"
            print_row([kind, name, str(result.evaluations), f"{statistics.median(spent):.2f}", f"{min(spent):.2f}"])
    lockstep()


def lockstep() -> None:
    """Batches that 16 searches need, one by one and together."""

    class Counting:
        name = "counting"
        order_sensitive = True
        max_tokens = None
        calls = 0

        def score(self, query, combinations):  # type: ignore[no-untyped-def]
            return self.score_pairs([query] * len(combinations), combinations)

        def score_pairs(self, queries, combinations):  # type: ignore[no-untyped-def]
            self.calls += 1
            return [hash((q, *(c.id for c in own))) % 97 / 97 for q, own in zip(queries, combinations, strict=True)]

    candidates = [Chunk(str(i), f"text {i}", 90) for i in range(20)]
    queries = [f"question {i}" for i in range(16)]
    together, alone = Counting(), Counting()
    config = SearchConfig(iterations=15, budget=BUDGET)
    results = search_policy_trees(queries, [candidates] * 16, together, config)
    same = results == [search_policy_tree(query, candidates, alone, config) for query in queries]
    print(
        f"\n16 searches of 15 iterations: {together.calls} batches in lockstep, {alone.calls} one by one; equal: {same}"
    )


PRIOR_SETTINGS = {  # iterations, root_width, expansion_width
    20: [(10, 20, 4), (6, 12, 4), (6, 12, 3), (5, 10, 3)],
    60: [(10, 60, 8), (6, 30, 4), (5, 20, 3), (5, 16, 3), (4, 16, 3)],
}


def prior(sources: Sequence[str], count: int) -> None:
    """A costly reranker that scores only what a cheap one ranks first."""
    costly, cheap = load_reranker("cosine", dtype="bfloat16"), load_reranker("maxsim")
    full = SearchConfig(budget=BUDGET, cost_coefficient=COST_COEFFICIENT, max_chunks=MAX_CHUNKS)
    for k, narrowed in PRIOR_SETTINGS.items():
        questions = [one for source in sources for one in retrieved(source, count, k)]
        naive = [_seconds(costly.score, query, [[chunk] for chunk in own])[0] for query, own in questions]
        print(f"\n{k} candidates, {len(questions)} questions; reranking all of them takes {np.mean(naive):.2f} s\n")
        print_row(["iterations", "root", "width", "evaluations", "time / NaiveRAG's reranking", "% of full objective"])
        print_row(["---"] * 6)
        reference = [_seconds(search_policy_tree, query, own, costly, full) for query, own in questions]
        _prior_row(full, reference, naive, reference)
        for iterations, root, width in narrowed:
            config = replace(full, iterations=iterations, root_width=root, expansion_width=width)
            found = [_seconds(search_policy_tree, query, own, costly, config, prior=cheap) for query, own in questions]
            _prior_row(config, found, naive, reference)


def _prior_row(config: SearchConfig, found: list, naive: list[float], reference: list) -> None:
    share = [result.objective / best.objective for (_, result), (_, best) in zip(found, reference, strict=True)]
    print_row(
        [
            str(config.iterations),
            str(config.root_width or "all"),
            str(config.expansion_width or "all"),
            f"{statistics.mean(result.evaluations for _, result in found):.0f}",
            f"{sum(seconds for seconds, _ in found) / sum(naive):.2f}",
            f"{100 * statistics.mean(share):.2f}",
        ]
    )


def _seconds(work: Callable, *given: object, **named: object) -> tuple:
    start = time.process_time()
    result = work(*given, **named)
    return time.process_time() - start, result


def print_row(cells: Sequence[str]) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("sets", "orders", "prior", "overhead"))
    parser.add_argument("sources", nargs="*", help="data sets in SQuAD layout")
    parser.add_argument("--questions", type=int, default=None, help="of each data set")
    parser.add_argument("--scores", type=Path, default=Path("runs/orders"), help="where `orders` keeps its scores")
    arguments = parser.parse_args()
    if arguments.part == "overhead":
        overhead()
    elif not arguments.sources:
        parser.error(f"{arguments.part} needs data sets")
    elif arguments.part == "sets":
        sets(arguments.sources, arguments.questions or 60)
    elif arguments.part == "orders":
        orders(arguments.sources, arguments.questions or 6, arguments.scores)
    else:
        prior(arguments.sources, arguments.questions or 10)


if __name__ == "__main__":
    main()

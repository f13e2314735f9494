"""An evaluation in miniature: scripted rerankers and generator, real stores, ledger and caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corag_agent.evaluation.agents import Agents
from corag_agent.evaluation.answering import Answerer, opened_answers
from corag_agent.evaluation.collecting import collect
from corag_agent.evaluation.corpora import SourceData
from corag_agent.evaluation.evaluator import Evaluator
from corag_agent.evaluation.job import ANSWERS, EvaluationOptions, Job, run_job
from corag_agent.evaluation.plan import Experiment, Source, units
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.task import Components
from corag_search import PipelineConfig, SearchConfig
from data_prep.dataset import Dataset, Document, GoldPassage, Question
from tests.corag_search.scripted import RandomScores
from tests.data_prep.test_labelling import FirstWords, HashEmbedder, Words

CONFIG = PipelineConfig(
    tokenizer="words",
    chunk_size=8,
    candidates=5,
    max_answer_tokens=9,
    rerankers={"one": {}, "two": {}},
    search=SearchConfig(budget=16, max_chunks=3, iterations=6),
)


def rerankers() -> dict[str, Any]:
    """One that minds the order and one that does not, under the names of `CONFIG`."""
    made: dict[str, Any] = {"one": RandomScores(1), "two": RandomScores(2, order_sensitive=False)}
    for name, reranker in made.items():
        reranker.name = name
    return made


def tiny_source(name: str = "tiny", questions: int = 6, source: Source | None = None) -> SourceData:
    """Five documents of a dozen words and questions with one gold passage and two human answers."""
    documents = tuple(Document(f"d{i}", " ".join(f"w{(i * j) % 11}" for j in range(12 + i))) for i in range(5))
    asked = tuple(
        Question(
            f"q{i}",
            f"what about w{i} ?",
            (GoldPassage(f"d{i % 5}", 0, 20),),
            answers=(f"w{i} w1", "w0"),
            domain=f"domain {i % 2}",
            kind="compound" if i % 3 == 2 else "",
            language="en",
        )
        for i in range(questions)
    )
    dataset = Dataset(name, documents, asked)
    return SourceData(
        source or Source(name, "none:"), dataset, {q.id: "test" if q.id == "q0" else "train" for q in asked}
    )


@contextmanager
def tiny_job(
    out: Path,
    experiments: Sequence[Experiment],
    *,
    generator: Any = None,
    judges: Mapping[str, Any] | None = None,
    agent: Any = None,
    data: Sequence[SourceData] = (),
    config: PipelineConfig = CONFIG,
    options: EvaluationOptions | None = None,
) -> Iterator[Job]:
    """A job with everything in place but for what a configuration would load."""
    options = options or EvaluationOptions()
    with opened_answers(out / ANSWERS, options.answers) as answers:
        answerer = Answerer(generator or FirstWords(), answers, Words(), config, options.llm_concurrency)  # type: ignore[arg-type]
        components = Components(config, HashEmbedder(), Words(), judges or rerankers(), answerer.cached)  # type: ignore[arg-type]
        plan = [(experiment, tuple(units(experiment, config))) for experiment in experiments]
        sources = data or [tiny_source()]
        yield Job(
            plan,
            {one.source.name: one for one in sources},
            Evaluator(components, answerer, options.reference),
            out,
            options,
            agent if agent is None or isinstance(agent, Agents) else Agents((agent,)),
        )


def evaluated(out: Path, experiments: Sequence[Experiment], **given: Any) -> EvaluationRun:
    """Run a tiny job to its end."""
    with tiny_job(out, experiments, **given) as job:
        ledger = run_job(job)
        return collect(job, ledger.done, ledger.failed)

"""Ray on this machine labels as one process does, and goes on when a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from corag_search import InputError, load_reranker
from corag_search.generators.base import Generation, GeneratorError
from data_prep.answers import AnswerCache, Answers, CachedGenerator
from data_prep.engines import LocalEngine
from data_prep.grid import LabelGrid
from data_prep.label_run import label_questions
from data_prep.labelling import Labeller
from tests.data_prep.test_labelling import FirstWords, make_labeller, without_features

pytest.importorskip("ray", reason="needs the extra `ray`")
from data_prep.ray_engine import RayEngine

GRID = LabelGrid(exploration=(0.5,), cost_coefficient=(0.0, 0.3), iterations=(2, 4))


@dataclass
class Picky(FirstWords):
    """Refuses one question, as an endpoint might."""

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        if "about w4 ?" in prompt:
            raise GeneratorError("http://llm answered 400 (too long)")
        return super().generate(prompt, max_tokens)


def load(pids: Path, answers: Answers) -> Labeller:
    """A worker's labeller, with real rerankers; it notes its process."""
    (pids / str(os.getpid())).touch()
    labeller = make_labeller(rerankers=[load_reranker("bm25"), load_reranker("wordllama")])
    questions = tuple(
        replace(labeller.dataset.questions[i % 6], id=f"q{i}", text=f"what about w{i} ?") for i in range(12)
    )
    dataset = replace(labeller.dataset, questions=questions)
    return replace(labeller, dataset=dataset, grid=GRID, generator=CachedGenerator(Picky(), answers))  # type: ignore[arg-type]


@contextmanager
def ray_engine(pids: Path, answers: Path, **options: int) -> Iterator[RayEngine]:
    pids.mkdir()
    with closing(RayEngine(partial(load, pids), answers, **options)) as engine:
        yield engine


def test_a_killed_worker_costs_its_questions_in_flight_and_the_table_is_that_of_one_process(tmp_path: Path) -> None:
    pids, answers = tmp_path / "pids", tmp_path / "answers.sqlite"
    killed: list[int] = []

    def kill_the_first(_: str) -> None:
        if not killed:
            first = min(pids.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            killed.append(int(first.name))
            os.kill(killed[0], signal.SIGKILL)

    here = tmp_path / "here"
    here.mkdir()
    with AnswerCache(None) as cache:
        alone = load(here, cache)
        expected = label_questions(
            LocalEngine(alone), alone.dataset, alone.dataset.questions, tmp_path / "alone.parquet"
        )
        prompts = len(cache)
    with ray_engine(pids, answers, workers=2, llm_concurrency=4) as engine:
        done = label_questions(
            engine, alone.dataset, alone.dataset.questions, tmp_path / "ray.parquet", progress=kill_the_first
        )
        earlier = tmp_path / "earlier"
        without_features(tmp_path / "ray.ledger.jsonl", earlier.with_suffix(".ledger.jsonl"))
        label_questions(engine, alone.dataset, alone.dataset.questions, earlier.with_suffix(".parquet"))
    assert len(killed) == 1
    assert len(list(pids.iterdir())) >= 2  # another one went on
    assert done.failures == expected.failures == {"q4": "http://llm answered 400 (too long)"}
    assert sorted(done.labelled) == sorted(expected.labelled)
    for run, part in product(("ray", "earlier"), ("", ".questions", ".rivals")):
        ours, theirs = tmp_path / f"{run}{part}.parquet", tmp_path / f"alone{part}.parquet"
        assert ours.read_bytes() == theirs.read_bytes()
    with AnswerCache(answers) as cache:
        assert len(cache) == prompts  # kept by the driver's machine, whoever asked


def test_an_address_without_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot join a Ray cluster at '127\.0\.0\.1:1'"):
        RayEngine(partial(load, tmp_path), None, address="127.0.0.1:1")

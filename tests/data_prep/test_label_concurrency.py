"""Answers of one question and of several are asked for at once, never more than allowed, with the same labels."""

from __future__ import annotations

import threading
import zlib
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from corag_search import InputError, load_generator
from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.engines import LocalEngine
from data_prep.label_run import label_questions
from tests.corag_search.local_server import Reply, serving
from tests.data_prep.test_labelling import make_labeller


class Endpoint:
    """Answers by the prompt alone; counts what is under way, and can wait until so many are."""

    def __init__(self, together: int = 1, refuse_first: int = 0) -> None:
        self.most = 0
        self.refused = 0
        self._now = 0
        self._together = together
        self._refuse_first = refuse_first
        self._changed = threading.Condition()

    def __call__(self, _: str, body: dict) -> Reply:
        with self._changed:
            if self.refused < self._refuse_first:
                self.refused += 1
                return Reply({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0"})
            self._now += 1
            self.most = max(self.most, self._now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._together, timeout=10)
        words = body["messages"][0]["content"].split()
        text = " ".join(words[zlib.crc32(" ".join(words).encode()) % 7 :: 5][:9])
        with self._changed:
            self._now -= 1
        usage = {"prompt_tokens": len(words), "completion_tokens": 9}
        return Reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage})


@contextmanager
def engine(endpoint: Endpoint, workers: int, llm_concurrency: int):
    with serving(endpoint) as (url, requests), AnswerCache(None) as cache:
        generator = load_generator("openai", base_url=f"{url}/v1", model="m", backoff=0.0)
        labeller = replace(make_labeller(), generator=CachedGenerator(generator, cache))
        yield LocalEngine(labeller, workers, llm_concurrency), labeller.dataset, requests
        generator.close()


def label(endpoint: Endpoint, out: Path, workers: int = 1, llm_concurrency: int = 1, questions: int = 6):
    with engine(endpoint, workers, llm_concurrency) as (engine_, dataset, requests):
        done = label_questions(engine_, dataset, dataset.questions[:questions], out)
        return done, len(requests)


@pytest.mark.parametrize(("workers", "llm_concurrency"), [(1, 3), (2, 6)])
def test_so_many_answers_at_once_and_no_more(tmp_path: Path, workers: int, llm_concurrency: int) -> None:
    endpoint = Endpoint(together=llm_concurrency)
    label(endpoint, tmp_path / "l.parquet", workers, llm_concurrency)
    assert endpoint.most == llm_concurrency


def test_one_question_alone_has_several_answers_under_way(tmp_path: Path) -> None:
    endpoint = Endpoint(together=3)
    label(endpoint, tmp_path / "l.parquet", llm_concurrency=3, questions=1)
    assert endpoint.most == 3


def test_by_default_one_answer_at_a_time(tmp_path: Path) -> None:
    endpoint = Endpoint()
    label(endpoint, tmp_path / "l.parquet", workers=3)
    assert endpoint.most == 1


def test_labels_and_work_do_not_depend_on_concurrency_or_rate_limits(tmp_path: Path) -> None:
    # The address is part of no label, but of the fingerprint, so the tables are compared without it.
    one, requests = label(Endpoint(), tmp_path / "one.parquet")
    endpoint = Endpoint(refuse_first=4)
    many, with_refused = label(endpoint, tmp_path / "many.parquet", 3, 4)
    for name in ("scores", "questions", "rivals"):
        assert getattr(one.table, name).to_json() == getattr(many.table, name).to_json()
    assert endpoint.refused == 4 and with_refused == requests + 4
    assert many.failures == {}


@pytest.mark.parametrize(("workers", "llm_concurrency"), [(0, 1), (1, 0), (1, True)])
def test_numbers_below_one_are_refused(workers: int, llm_concurrency: int) -> None:
    with pytest.raises(InputError, match="must be a whole number, at least 1"):
        LocalEngine(make_labeller(), workers, llm_concurrency)

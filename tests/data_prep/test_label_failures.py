"""What happens to questions that fail: recorded, passed over, taken up again; and when all fail, the run stops."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from corag_search import InputError
from corag_search.generators.base import Generation, GeneratorError
from corag_search.rerankers.base import RerankerError
from data_prep.engines import LocalEngine
from data_prep.label_run import (
    PATIENCE,
    PATIENCE_AT_START,
    LabelRun,
    label_questions,
    ledger_path,
    probe_questions,
)
from data_prep.labelling import Labeller
from data_prep.ledger import Ledger
from tests.corag_search.scripted import RandomScores
from tests.data_prep.test_labelling import FirstWords, make_labeller


@dataclass
class Unwilling(FirstWords):
    """Fails on the prompts of some questions, as an endpoint whose retries are used up."""

    questions: set[str] = field(default_factory=set)

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        if any(f"about {name} ?" in prompt for name in self.questions):
            raise GeneratorError("http://llm answered 500\n (after 6 attempts)")
        return super().generate(prompt, max_tokens)


def labeller(*failing: str, count: int = 6) -> Labeller:
    made = make_labeller()
    questions = tuple(
        replace(made.dataset.questions[i % 6], id=f"q{i}", text=f"what about w{i} ?") for i in range(count)
    )
    return replace(
        made,
        dataset=replace(made.dataset, questions=questions),
        generator=Unwilling(questions=set(failing)),  # type: ignore[arg-type]
    )


def run(labeller: Labeller, out: Path, workers: int = 1, **options: bool) -> LabelRun:
    return label_questions(LocalEngine(labeller, workers), labeller.dataset, labeller.dataset.questions, out, **options)


def test_a_failed_question_is_recorded_and_the_run_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    done = run(labeller("w2", "w5"), out)
    assert done.failures == dict.fromkeys(("q2", "q5"), "http://llm answered 500 (after 6 attempts)")
    assert done.labelled == ("q0", "q1", "q3", "q4") == tuple(done.table.questions["question_id"])
    with Ledger(ledger_path(out), labeller().fingerprint()) as ledger:
        assert set(ledger.failed) == {"q2", "q5"} and set(ledger.done) == {"q0", "q1", "q3", "q4"}


def test_failed_questions_are_passed_over_until_they_are_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    run(labeller("w2", "w5"), out)
    healthy = labeller()
    again = run(healthy, out)
    assert set(again.failures) == {"q2", "q5"} and again.labelled == () and healthy.generator.calls == 0  # type: ignore[attr-defined]
    retried = run(labeller("w5"), out, retry_failed=True)
    assert set(retried.failures) == {"q5"} and retried.labelled == ("q2",)
    last = run(labeller(), out, retry_failed=True)
    assert last.failures == {} and last.labelled == ("q5",)
    run(labeller(), tmp_path / "whole.parquet")
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_there_is_nothing_to_retry_before_anything_was_labelled(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no question is labelled yet, so none can have failed"):
        run(labeller(), tmp_path / "l.parquet", retry_failed=True)
    assert list(tmp_path.iterdir()) == []


def test_retrying_takes_up_just_the_failed_ones(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    first = labeller("w1")
    label_questions(LocalEngine(first), first.dataset, first.dataset.questions[:3], out)
    assert run(labeller(), out, retry_failed=True).labelled == ("q1",)
    assert run(labeller(), out, retry_failed=True).labelled == ()
    assert run(labeller(), out).labelled == ("q3", "q4", "q5")


def test_a_reranker_that_fails_costs_its_question(tmp_path: Path) -> None:
    class Moody(RandomScores):
        def score(self, query, combinations):
            if "w3" in query:
                raise RerankerError("http://rerank answered 503")
            return super().score(query, combinations)

    done = run(replace(labeller(), rerankers=[Moody(1)]), tmp_path / "l.parquet")
    assert done.failures == {"q3": "http://rerank answered 503"} and len(done.table) == 5


def test_an_endpoint_that_is_down_stops_the_run_early_and_blames_no_question(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    names = [f"w{i}" for i in range(12)]
    down = labeller(*names, count=12)
    with pytest.raises(InputError, match=rf"{PATIENCE_AT_START} questions failed in a row, the last, 'q4', .* 500"):
        run(down, out)
    assert list(tmp_path.iterdir()) == []
    assert len(run(labeller(count=12), out).labelled) == 12  # the same command takes all of them up


def test_an_endpoint_that_goes_down_later_stops_the_run_and_keeps_what_was_finished(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    count = 3 + PATIENCE + 2
    down = labeller(*(f"w{i}" for i in range(3, count)), count=count)
    with pytest.raises(InputError, match=rf"{PATIENCE} questions failed in a row") as error:
        run(down, out)
    assert "\n" not in str(error.value)
    done = run(labeller(count=count), out)
    assert done.labelled == tuple(f"q{i}" for i in range(3, count)) and done.failures == {}


def test_a_few_questions_of_which_none_succeeds_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="3 questions failed in a row"):
        run(labeller("w0", "w1", "w2", count=3), tmp_path / "l.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_a_fault_of_ours_ends_the_run(tmp_path: Path, workers: int) -> None:
    broken = replace(labeller(), generator=FirstWords(fail_after=25))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="killed"):
        run(broken, tmp_path / "l.parquet", workers)
    assert not (tmp_path / "l.parquet").exists() and ledger_path(tmp_path / "l.parquet").exists()


def test_a_ledger_keeps_errors_apart_from_records(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with Ledger(path, {}) as ledger:
        ledger.fail("a", "first")
        ledger.fail("a", "second")
        ledger.fail("b", "once")
        ledger.append("b", {"x": 1})
        ledger.append("c", None)
        ledger.fail("c", "too late")
    with Ledger(path, {}) as ledger:
        assert ledger.failed == {"a": "second"} and ledger.done == {"b": {"x": 1}, "c": None}
    path.write_bytes(path.read_bytes() + b'{"key": "d", "error": 3}\n')
    with pytest.raises(InputError, match="line 8 is damaged"):
        Ledger(path, {})


def test_an_estimate_of_a_retry_is_of_the_failed_ones(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    run(labeller("w2", "w5"), out)
    healthy = labeller()
    engine, questions = LocalEngine(healthy), healthy.dataset.questions
    assert probe_questions(engine, questions, out, 4)[1] == 0
    records, left = probe_questions(engine, questions, out, 4, retry_failed=True)
    assert (len(records), left) == (4, 2) and healthy.generator.calls == 0  # type: ignore[attr-defined]
    assert probe_questions(engine, questions, out, 5, retry_failed=True)[1] == 1


def test_an_empty_ledger_goes_while_it_is_still_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    close = Ledger.close
    monkeypatch.setattr(Ledger, "close", lambda ledger: (held.append(ledger.path.exists()), close(ledger))[1])
    with pytest.raises(InputError, match="3 questions failed in a row"):
        run(labeller("w0", "w1", "w2", count=3), tmp_path / "l.parquet")
    assert held[0] is False  # else another run could begin it, and lose it


def test_more_workers_than_anything_can_count_label_as_one_does(tmp_path: Path) -> None:
    many, one = tmp_path / "many.parquet", tmp_path / "one.parquet"
    run(labeller(), many, workers=10**30)
    run(labeller(), one)
    assert many.read_bytes() == one.read_bytes()

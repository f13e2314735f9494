"""An evaluation that is resumed, shares work, goes on past failures, and tells beforehand what it will take."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corag_agent.evaluation.collecting import collect
from corag_agent.evaluation.corpora import open_corpus, read_source, with_distractors
from corag_agent.evaluation.estimate import estimate_job
from corag_agent.evaluation.evaluator import Evaluator, Outcome
from corag_agent.evaluation.job import LEDGER, EvaluationOptions, ledger_state, run_job
from corag_agent.evaluation.plan import Experiment, Source
from corag_agent.evaluation.scoring import exact_match, gold_recall, token_f1
from corag_agent.evaluation.task import Corpus
from corag_search import Chunk, InputError, search_policy_tree
from corag_search.generators.base import Generation, GeneratorError
from corag_search.rerankers.base import RerankerError
from data_prep.answers import AnswerCache
from data_prep.dataset import Question
from data_prep.rouge import rouge_scores
from tests.corag_agent.evaluation import tiny_evaluation
from tests.corag_agent.evaluation.tiny_evaluation import CONFIG, evaluated, rerankers, tiny_job, tiny_source
from tests.corag_search.scripted import RandomScores
from tests.data_prep.test_labelling import FirstWords, HashEmbedder

MAIN = Experiment("main", methods=["naive_rag", "tree"])


class Failing(FirstWords):
    """Fails for prompts that hold a text."""

    def __init__(self, about: str) -> None:
        super().__init__()
        self.about = about

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        if self.about and self.about in prompt:
            raise GeneratorError("the model\nis busy; ask later")
        return super().generate(prompt, max_tokens)


def test_every_record_equals_the_plain_loop(tmp_path: Path) -> None:
    run = evaluated(tmp_path, [MAIN])
    data, naive = tiny_source(), FirstWords()
    answers = run.answers.set_index(["question_id", "method", "reranker"])["answer"]
    with tiny_job(tmp_path / "plain", [MAIN]) as job:
        store = job.corpus(data, 8).store
    for question in data.questions:
        found = store.search(HashEmbedder().encode([question.text])[0], 5)
        gold = [data.dataset.passage_text(g) for g in question.gold_passages]
        reference = naive.generate(CONFIG.prompt.fill(question.text, gold), 9).text
        shown = run.questions.set_index("question_id").loc[question.id]
        assert (shown["reference"], list(shown["gold"]), list(shown["documents"])) == (
            reference,
            gold,
            [question.gold_passages[0].document],
        )
        for name, judge in rerankers().items():
            result = search_policy_tree(question.text, found, judge, CONFIG.search)
            answer = naive.generate(CONFIG.prompt.fill(question.text, [c.text for c in result.chunks]), 9).text
            rows = run.records.set_index(["question_id", "method", "reranker"])
            row = rows.loc[(question.id, "tree", name)]
            assert answers[question.id, "tree", name] == answer
            assert (row["rouge1"], row["rouge2"], row["rougeL"]) == tuple(rouge_scores(reference, answer))
            assert row["token_f1"] == token_f1(question.answers, answer)
            assert row["exact_match"] == exact_match(question.answers, answer)
            assert row["human_rougeL"] == max(rouge_scores(h, answer).rougeL for h in question.answers)
            assert row["gold_recall"] == gold_recall(question.gold_passages, result.chunks)
            assert row["answer_tokens"] == 9


def test_a_second_run_does_only_what_is_new(tmp_path: Path) -> None:
    generator = FirstWords()
    first = evaluated(tmp_path, [replace(MAIN, limit=3)], generator=generator)
    made = generator.calls
    again = evaluated(tmp_path, [replace(MAIN, limit=3)], generator=generator)
    assert generator.calls == made
    pd.testing.assert_frame_equal(again.records, first.records)
    more = evaluated(tmp_path, [MAIN], generator=generator)
    keys = (tmp_path / LEDGER).read_bytes().count(b"\n") - 1
    assert len(more) == 24 and keys == 24 + 6  # a reference each besides
    kept = more.records[more.records["question_id"].isin(first.records["question_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, first.records)  # a smaller sample is part of the greater one
    # Another method is added, and another run that shares what the first has: only the new method is worked on.
    evaluated(
        tmp_path, [replace(MAIN, methods=["best_single", "tree"]), replace(MAIN, name="same")], generator=generator
    )
    assert (tmp_path / LEDGER).read_bytes().count(b"\n") - 1 == keys + 12


def test_another_budget_is_other_work_and_another_generator_another_ledger(tmp_path: Path) -> None:
    evaluated(tmp_path, [MAIN])
    lines = (tmp_path / LEDGER).read_bytes().count(b"\n")
    run = evaluated(tmp_path, [replace(MAIN, budgets=[16, 24])])
    assert (tmp_path / LEDGER).read_bytes().count(b"\n") == lines + 24
    assert run.records.groupby("budget")["prompt_tokens"].max().le([16, 24]).all()
    with pytest.raises(InputError, match=r"belongs to another run \(generator was"):
        evaluated(tmp_path, [MAIN], generator=FirstWords(fingerprint="other"))


def test_answers_of_other_runs_are_read_and_never_written(tmp_path: Path) -> None:
    generator = FirstWords()
    evaluated(tmp_path / "first", [MAIN], generator=generator)
    made, other = generator.calls, tmp_path / "first/answers.sqlite"
    with AnswerCache(other) as cache:
        count = len(cache)
    options = EvaluationOptions(answers=(other,))
    run = evaluated(tmp_path / "second", [replace(MAIN, methods=["naive_rag"])], generator=generator, options=options)
    assert generator.calls == made and run.records["seconds_generate"].isna().all()
    evaluated(tmp_path / "second", [replace(MAIN, methods=["beam"])], generator=generator, options=options)
    assert generator.calls > made
    with AnswerCache(other) as cache:
        assert len(cache) == count
    with pytest.raises(InputError, match="there is no answer cache"):
        evaluated(tmp_path / "third", [MAIN], options=EvaluationOptions(answers=(tmp_path / "none.sqlite",)))


def test_failures_are_recorded_and_taken_up_again(tmp_path: Path) -> None:
    generator = Failing("what about w4 ?")
    run = evaluated(tmp_path, [MAIN], generator=generator)
    failed = run.records[run.records["error"] != ""]
    assert set(failed["question_id"]) == {"q4"} and len(failed) == 4
    assert failed["error"].iloc[0] == "its reference failed: the model is busy; ask later"
    assert failed["rougeL"].isna().all() and len(run.succeeded) == 20
    generator.about = ""
    assert len(evaluated(tmp_path, [MAIN], generator=generator).succeeded) == 20  # passed over
    run = evaluated(tmp_path, [MAIN], generator=generator, options=EvaluationOptions(retry_failed=True))
    assert len(run.succeeded) == 24


def test_one_answer_that_fails_leaves_the_others(tmp_path: Path) -> None:
    with tiny_job(tmp_path, [MAIN]) as job:
        ledger = run_job(job)
        texts = {record["answer"]: key for key, record in ledger.done.items() if isinstance(record, dict)}
        run = collect(job, ledger.done, ledger.failed)
    assert texts
    row = run.records[(run.records["method"] == "tree") & (run.records["question_id"] == "q2")].iloc[0]
    chunks = run.chunks.set_index("chunk_id")["text"]
    passages = CONFIG.prompt.fill("what about w2 ?", [chunks[name] for name in row["chunk_ids"]])
    again = evaluated(tmp_path / "failing", [MAIN], generator=Failing(passages))
    failed = again.records[again.records["error"] != ""]
    same = run.records["chunk_ids"].map(list).map(tuple) == tuple(row["chunk_ids"])
    expected = run.records[same & (run.records["question_id"] == "q2")]
    keys = ["question_id", "method", "reranker"]
    assert set(map(tuple, failed[keys].to_numpy())) == set(map(tuple, expected[keys].to_numpy()))
    assert set(failed["error"]) == {"the model is busy; ask later"}


def test_a_run_in_which_all_fails_stops_and_blames_nothing(tmp_path: Path) -> None:
    generator = Failing("about")
    with pytest.raises(InputError, match=r"stopped, since 5 question\(s\) failed in a row, .*the model is busy"):
        evaluated(tmp_path, [MAIN], generator=generator)
    generator.about = ""
    assert len(evaluated(tmp_path, [MAIN], generator=generator).succeeded) == 24


@pytest.mark.parametrize("options", [EvaluationOptions(workers=3), EvaluationOptions(workers=2, llm_concurrency=4)])
def test_workers_change_nothing(tmp_path: Path, options: EvaluationOptions) -> None:
    experiment = Experiment("all", methods=["naive_rag", "naive_matched", "mmr", "tree"], structure=True)
    one = evaluated(tmp_path / "one", [experiment])
    several = evaluated(tmp_path / "several", [experiment], options=options)
    spent = [name for name in one.records if name.startswith("seconds_")]
    pd.testing.assert_frame_equal(several.records.drop(columns=spent), one.records.drop(columns=spent))
    for part in ("questions", "answers", "chunks", "structure"):
        pd.testing.assert_frame_equal(getattr(several, part), getattr(one, part))


def test_human_references_need_no_generator_for_them(tmp_path: Path) -> None:
    generator = FirstWords()
    run = evaluated(
        tmp_path, [replace(MAIN, methods=["best_single"])], generator=generator, options=EvaluationOptions("human")
    )
    assert generator.calls <= 12 and list(run.questions["reference"]) == [f"w{i} w1" for i in range(6)]
    # ROUGE takes the better of the two human answers, as human_rougeL does.
    np.testing.assert_array_equal(run.records["rougeL"], run.records["human_rougeL"])


def test_the_estimate_is_what_the_run_then_does(tmp_path: Path) -> None:
    generator = FirstWords()
    experiments = [MAIN, Experiment("timed", methods=["best_single"], timing=True), Experiment("s", structure=True)]
    options = EvaluationOptions()
    with tiny_job(tmp_path, experiments, generator=generator, options=options) as job:
        estimates = {estimate.run: estimate for estimate in estimate_job(job, probe=99)}
        timed = generator.calls
    assert 0 < timed <= 3 and not (tmp_path / LEDGER).exists()
    assert [estimates[name].searches for name in ("main", "timed", "s")] == [24, 12, 12]
    main = estimates["main"]
    assert main.questions == 6 and main.cached == 0 and estimates["timed"].answers == 12 + 6
    evaluated(tmp_path, [MAIN], generator=generator)
    assert generator.calls - timed == main.answers - timed  # those that were timed are in the cache
    with tiny_job(tmp_path, experiments, generator=generator) as job:
        left = {estimate.run: estimate for estimate in estimate_job(job, probe=2)}
    assert "main" not in left and left["timed"].cached == 6


def test_every_store_is_read_before_anything_is_timed_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, int]] = []

    class Noted(Evaluator):
        def warm_up(self, corpus: Corpus, question: Question) -> None:
            done.append(("warm", len(corpus.store)))
            super().warm_up(corpus, question)

        def evaluate(self, corpus: Corpus, *given: Any) -> Iterator[Outcome]:
            done.append(("timed", len(corpus.store)))
            yield from super().evaluate(corpus, *given)

    monkeypatch.setattr(tiny_evaluation, "Evaluator", Noted)
    data = [tiny_source("one", 2), tiny_source("more", 2, Source("more", "none:", distractors=7))]
    timed = Experiment("timed", methods=["naive_rag"], chunk_sizes=[8, 12], timing=True)
    evaluated(tmp_path, [MAIN, replace(timed, data=["one"], limit=1)], data=data)
    with tiny_job(tmp_path / "sizes", [timed], data=data) as job:
        sizes = {(one.source.name, size): len(job.corpus(one, size).store) for one in data for size in (8, 12)}
    assert len(set(sizes.values())) == 4
    first = done.index(("warm", sizes["one", 8]))  # untimed work before it reads its stores itself
    assert done[first : first + 2] == [("warm", sizes["one", size]) for size in (8, 12)]
    assert [kind for kind, _ in done[first + 2 :]] == ["timed"] * 2 and "warm" not in dict(done[:first])
    done.clear()
    evaluated(tmp_path, [MAIN, timed], data=data)
    # The first question of "one" is done, so the first that waits for its stores is the second.
    assert done[:4] == [("warm", sizes[name, size]) for name in ("more", "one") for size in (8, 12)]
    assert [kind for kind, _ in done[4:]] == ["timed"] * 6


class Loading(FirstWords):
    """Notes how many tokens it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.asked.append(max_tokens)
        return super().generate(prompt, max_tokens)


def test_the_generator_has_answered_before_it_is_timed(tmp_path: Path) -> None:
    """Also where all references are there already."""
    evaluated(tmp_path, [MAIN])
    timed = Experiment("timed", methods=["naive_rag"], rerankers=["one"], timing=True, limit=2)
    generator = Loading()
    evaluated(tmp_path, [timed], generator=generator)
    assert generator.asked == [1, 9, 9]
    evaluated(tmp_path, [timed], generator=generator)
    assert generator.asked == [1, 9, 9]  # nothing is left to be timed


class FailingOnce(RandomScores):
    """Fails when it is first asked."""

    def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
        if not self.evaluated:
            self.evaluated.append(())
            raise RerankerError("the server is loading its model")
        return super().score(query, combinations)


def test_what_fails_before_the_timing_ends_no_run(tmp_path: Path) -> None:
    judge = FailingOnce(1)
    timed = Experiment("timed", methods=["naive_rag"], rerankers=["one"], timing=True)
    run = evaluated(tmp_path, [timed], judges={"one": judge, "two": rerankers()["two"]})
    assert len(run) == 6 and (run.records["error"] == "").all()


def test_an_estimate_starts_its_clock_when_the_models_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which only the first score of a reranker takes time."""
    clock = [0.0]

    class Slow(RandomScores):
        def score(self, query: str, combinations: Sequence[Sequence[Chunk]]) -> np.ndarray:
            clock[0] += 0 if self.evaluated else 1000
            return super().score(query, combinations)

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    with tiny_job(tmp_path, [replace(MAIN, rerankers=["one"])], judges={"one": Slow(1), "two": Slow(2)}) as job:
        (estimate,) = estimate_job(job, probe=1)
    assert clock[0] == 2000 and estimate.seconds == 0


def test_structure_is_what_brute_force_finds(tmp_path: Path) -> None:
    experiment = Experiment("s", structure=True, candidates=3)
    run = evaluated(tmp_path, [experiment, replace(MAIN, candidates=3)])
    assert run.structure is not None and len(run.structure) == 12
    with tiny_job(tmp_path / "x", [experiment]) as job:
        store = job.corpus(tiny_source(), 8).store
    for _, row in run.structure.iterrows():
        query, judge = f"what about w{row['question_id'][1:]} ?", rerankers()[row["reranker"]]
        found = store.search(HashEmbedder().encode([query])[0], 3)
        pairs = [(a, b) for a in found for b in found if a is not b and a.cost + b.cost <= 16]
        of = lambda *chunks, q=query, j=judge: j.of(q, [chunk.id for chunk in chunks])  # noqa: E731
        assert row["pairs"] == len(pairs)
        assert row["additive"] == sum(abs(of(a, b) - of(a) - of(b)) <= 0.01 for a, b in pairs)
        assert row["worse_than_best"] == sum(of(a, b) < max(of(a), of(b)) - 0.01 for a, b in pairs)
        assert row["order_matters"] == sum(abs(of(a, b) - of(b, a)) > 0.01 for a, b in pairs)
        every = [c for c in _orders(found) if sum(chunk.cost for chunk in c) <= 16]
        best = max(of(*c) for c in every)
        least = min((sum(x.cost for x in c), len(c)) for c in every if of(*c) == best)
        assert row["best_chunks"] == least[1]
        longer = [c for c in every if len(c) == least[1] + 1]
        if not longer:
            assert row["best_is_largest"]


def test_questions_that_are_only_measured_belong_to_the_run(tmp_path: Path) -> None:
    run = evaluated(tmp_path, [replace(MAIN, limit=1), Experiment("s", structure=True, candidates=3)])
    assert run.structure is not None and len(run.structure) == 12
    assert run.records["question_id"].nunique() == 1 and len(run.questions) == 6
    for part in (run.of_datasets(set(run.questions["dataset"])), run.of_splits(["train", "val", "test"])):
        assert part.structure is not None and len(part.structure) == 12


def _orders(chunks: list[Chunk]) -> Iterator[list[Chunk]]:
    for a in chunks:
        yield [a]
        for b in chunks:
            if b is not a:
                yield [a, b]
                yield from ([a, b, c] for c in chunks if c is not a and c is not b)


def test_what_is_done_can_be_collected_while_the_rest_is_left(tmp_path: Path) -> None:
    with tiny_job(tmp_path, [MAIN]) as job, pytest.raises(InputError, match="there is no ledger"):
        ledger_state(job)
    evaluated(tmp_path, [replace(MAIN, limit=2)])
    with tiny_job(tmp_path, [MAIN]) as job:
        ledger = ledger_state(job)
        run = collect(job, ledger.done, ledger.failed)
    assert len(run) == 8 and set(run.questions["question_id"]) == {"q0", "q1"}


def test_settings_name_no_folder(tmp_path: Path) -> None:
    source = Source("tiny", f"squad:{tmp_path}/dev.json", stores={96: str(tmp_path)})
    config = replace(CONFIG, agent=str(tmp_path / "agent"), generator={"name": "openai", "base_url": "http://h:1/v1"})
    run = evaluated(tmp_path, [MAIN], data=[tiny_source(source=source)], config=config)
    text = json.dumps(run.settings)
    assert str(tmp_path) not in text
    assert run.settings["data"]["tiny"]["data"] == "squad:dev.json" and run.settings["pipeline"]["agent"] == "agent"
    assert run.settings["pipeline"]["generator"]["base_url"] == "http://h:1/v1"
    assert run.settings["runs"][0]["methods"] == ["naive_rag", "tree"] and run.settings["seed"] == 0


def test_questions_are_the_labelled_ones_first(tmp_path: Path) -> None:
    whole = read_source(Source("demo", "demo"), "llm", 0)
    few = read_source(Source("demo", "demo", limit=5, domain="own"), "llm", 0)
    assert [q.id for q in few.questions] == [q.id for q in whole.questions[:5]]
    labelled = whole.dataset.select(5, 0).questions  # as `corag label --limit 5`
    assert {q.id for q in labelled} == {q.id for q in few.questions}
    assert {q.domain for q in few.questions} == {"own"} and len(few.dataset.documents) == len(whole.dataset.documents)
    test = read_source(Source("demo", "demo", splits=["test"]), "llm", 0)
    assert {whole.split_of[q.id] for q in test.questions} == {"test"}
    composed = read_source(Source("c", "demo", compose=4), "llm", 0)
    assert len(composed.questions) == 4 and all("+" in q.id for q in composed.questions)


def test_a_store_of_other_texts_is_refused(tmp_path: Path) -> None:
    data = tiny_source()
    with tiny_job(tmp_path, [MAIN]) as job:
        components = job.evaluator.components
        made = job.corpus(data, 8).store
        made.save(tmp_path / "own")
        given = replace(
            data, source=Source("tiny", "none:", stores={8: str(tmp_path / "own"), 9: str(tmp_path / "own")})
        )
        assert len(open_corpus(given, 8, components, tmp_path).store) == len(made)
        with pytest.raises(InputError, match="was built with chunk_size 8, needed is 9"):
            open_corpus(given, 9, components, tmp_path)
        document = data.dataset.documents[0]
        changed = replace(
            data.dataset, documents=(replace(document, text="x" + document.text[1:]), *data.dataset.documents[1:])
        )
        with pytest.raises(InputError, match="is not what document 'd0' of tiny holds there"):
            open_corpus(replace(given, dataset=changed), 8, components, tmp_path)


def test_distractors_surround_the_real_chunks(tmp_path: Path) -> None:
    with tiny_job(tmp_path, [MAIN]) as job:
        store = job.corpus(tiny_source(), 8).store
        larger = with_distractors(store, 50)
        assert len(larger) == len(store) + 50 and list(larger.chunks[: len(store)]) == list(store.chunks)
        np.testing.assert_allclose(np.linalg.norm(larger.embeddings(), axis=1), 1, rtol=1e-5)
        assert not {c.metadata["document"] for c in larger.chunks[len(store) :]} & {f"d{i}" for i in range(5)}
        again = with_distractors(store, 50)
        np.testing.assert_array_equal(again.embeddings(), larger.embeddings())
    run = evaluated(tmp_path / "d", [MAIN], data=[tiny_source(source=Source("tiny", "none:", distractors=20))])
    assert (run.records["error"] == "").all()
    assert run.settings["data"]["tiny"]["chunks"] == {"8": len(store) + 20}


def test_settings_have_the_size_of_every_store(tmp_path: Path) -> None:
    twin = replace(tiny_source(), source=Source("twin", "none:"))  # has the same store
    run = evaluated(tmp_path, [replace(MAIN, chunk_sizes=[8, 11], limit=1)], data=[tiny_source(), twin])
    lengths = [12 + i for i in range(5)]  # of the documents, in words
    sizes = {str(size): sum(-(-length // size) for length in lengths) for size in (8, 11)}
    assert [run.settings["data"][name]["chunks"] for name in ("tiny", "twin")] == [sizes, sizes]
    with_costs = run.records.explode("chunk_ids").merge(
        run.chunks, left_on=["dataset", "chunk_size", "chunk_ids"], right_on=["dataset", "chunk_size", "chunk_id"]
    )
    spent = with_costs.groupby(["dataset", "question_id", "method", "reranker", "chunk_size"])
    assert (spent["cost"].sum() == spent["prompt_tokens"].first()).all()


def test_a_negative_seed_is_refused_before_the_work() -> None:
    with pytest.raises(InputError, match="seed must be a whole number, at least 0, got -1"):
        EvaluationOptions(seed=-1)

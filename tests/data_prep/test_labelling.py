"""Labels equal those of one search and one answer per grid point, whatever interrupts the run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from corag_search import InputError, PipelineConfig, SearchConfig, VectorStore, chunk_documents, search_policy_tree
from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag
from corag_search.generators import load_generator
from corag_search.generators.base import Generation
from corag_search.query_features import STATISTICS, query_features
from corag_search.store import HNSWIndex
from data_prep.dataset import Dataset, Document, GoldPassage, Question
from data_prep.demo_corpus import LABELS
from data_prep.engines import LocalEngine
from data_prep.grid import LabelGrid
from data_prep.label_job import JobOptions, run_label_job
from data_prep.label_run import LabelRun, label_questions
from data_prep.labelling import RIVALS, Labeller
from data_prep.record_table import document_names
from data_prep.rouge import rouge_scores
from data_prep.table import LabelTable
from tests.corag_search.scripted import RandomScores

GRID = LabelGrid(exploration=(0.0, 1.0), cost_coefficient=(0.0, 0.3), iterations=(1, 3, 6))


class Words:
    """A tokenizer whose tokens are the words."""

    name, fingerprint = "words", "w"

    def offsets(self, text: str) -> np.ndarray:
        spans, start = [], 0
        for word in text.split():
            start = text.index(word, start)
            spans.append((start, start + len(word)))
            start += len(word)
        return np.array(spans, np.intp).reshape(-1, 2)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class HashEmbedder:
    name, dimension, fingerprint = "hash", 8, "f"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=8) for text in texts]
        return (np.array(rows) / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@dataclass
class FirstWords:
    """Answers with words of the prompt that depend on the order of its passages."""

    name: str = "first words"
    fingerprint: str = "g"
    context_length: int | None = None
    calls: int = 0
    fail_after: int | None = None
    shift: int = 0

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.calls += 1
        if self.fail_after is not None and self.calls > self.fail_after:
            raise RuntimeError("killed")
        words = prompt.split()
        start = zlib.crc32(prompt.encode()) % 7 + self.shift
        return Generation(" ".join(words[start::5][:max_tokens]), len(words), max_tokens)


def make_labeller(rerankers: Sequence | None = None, **generator: object) -> Labeller:
    documents = [Document(f"d{i}", " ".join(f"w{(i * j) % 11}" for j in range(12 + i))) for i in range(5)]
    questions = [
        Question(f"q{i}", f"what about w{i} ?", (GoldPassage(f"d{i % 5}", 0, 20),), domain=f"domain {i % 2}")
        for i in range(6)
    ]
    config = PipelineConfig(
        tokenizer="words", candidates=5, max_answer_tokens=9, search=SearchConfig(budget=16, max_chunks=3)
    )
    embedder = HashEmbedder()
    store = VectorStore.build(chunk_documents(documents, Words(), 8), embedder, tokenizer="words", chunk_size=8)  # type: ignore[arg-type]
    return Labeller(
        dataset=Dataset("tiny", tuple(documents), tuple(questions)),
        store=store,
        embedder=embedder,
        rerankers=rerankers or [RandomScores(1), RandomScores(2, order_sensitive=False)],
        generator=FirstWords(**generator),  # type: ignore[arg-type]
        tokenizer=Words(),  # type: ignore[arg-type]
        config=config,
        grid=GRID,
    )


def run(labeller: Labeller, out: Path, questions: Sequence[Question] | None = None, workers: int = 1) -> LabelRun:
    wanted = labeller.dataset.questions if questions is None else questions
    return label_questions(LocalEngine(labeller, workers), labeller.dataset, wanted, out)


def test_labels_equal_those_of_the_naive_loop(tmp_path: Path) -> None:
    labeller = make_labeller()
    table = run(labeller, tmp_path / "l.parquet").table
    rows = {tuple(r[:5]): r[5:] for r in table.scores.itertuples(index=False, name=None)}
    assert len(rows) == 6 * 2 * len(GRID)
    naive = FirstWords()
    for question in labeller.dataset.questions:
        candidates = labeller.store.search(labeller.embedder.encode([question.text])[0], 5)
        gold = [labeller.dataset.passage_text(g) for g in question.gold_passages]
        reference = naive.generate(labeller.config.prompt.fill(question.text, gold), 9).text
        for reranker in labeller.rerankers:
            for point in GRID:
                config = replace(labeller.config.search, **point._asdict())
                result = search_policy_tree(question.text, candidates, reranker, config)
                prompt = labeller.config.prompt.fill(question.text, [chunk.text for chunk in result.chunks])
                order, tokens, value, *rouge = rows[(question.id, reranker.name, *point)]
                assert (tuple(order), tokens) == (result.order, result.cost)
                assert value == pytest.approx(result.value, abs=1e-6)
                assert tuple(rouge) == tuple(rouge_scores(reference, naive.generate(prompt, 9).text))
    assert labeller.generator.calls < naive.calls / 3


def test_rivals_equal_the_baselines(tmp_path: Path) -> None:
    labeller = make_labeller()
    table = run(labeller, tmp_path / "l.parquet").table
    assert table.rivals is not None
    assert set(table.rivals["method"]) == set(RIVALS)
    config = replace(labeller.config.search, **GRID.defaults._asdict())
    for _, row in table.rivals.iterrows():
        question = next(q for q in labeller.dataset.questions if q.id == row["question_id"])
        reranker = next(r for r in labeller.rerankers if r.name == row["reranker"])
        candidates = labeller.store.search(labeller.embedder.encode([question.text])[0], 5)
        spent = search_policy_tree(question.text, candidates, reranker, config).cost
        expected = {
            "naive_rag": lambda *a: naive_rag(*a),
            "best_single": lambda *a: best_single(*a),
            "greedy_climb": lambda *a: greedy_climb(*a),
            "naive_matched": lambda *a, spent=spent: naive_matched(*a, tokens=spent),
        }[row["method"]](question.text, candidates, reranker, config)
        assert (tuple(row["order"]), row["prompt_tokens"]) == (expected.order, expected.cost)


def test_each_combination_is_scored_once_and_each_order_answered_once(tmp_path: Path) -> None:
    labeller = make_labeller()
    record = labeller.label(labeller.dataset.questions[0])
    for reranker in labeller.rerankers:
        assert len(reranker.evaluated) == len(set(reranker.evaluated)) == record["evaluations"][reranker.name]
    assert labeller.generator.calls == len(record["scores"]) + 1 == record["answers"] + 1


def test_an_interrupted_run_goes_on_and_ends_in_the_same_table(tmp_path: Path) -> None:
    whole = make_labeller()
    expected = run(whole, tmp_path / "whole.parquet").table
    out = tmp_path / "cut.parquet"
    broken = make_labeller(fail_after=25)
    with pytest.raises(RuntimeError, match="killed"):
        run(broken, out)
    assert not out.exists()
    resumed = make_labeller()
    table = run(resumed, out).table
    assert 0 < resumed.generator.calls < whole.generator.calls
    again = make_labeller()
    run(again, out)
    assert again.generator.calls == 0
    for name in ("scores", "questions", "rivals"):
        for other in (table, LabelTable.read(out)):
            assert getattr(other, name).to_json() == getattr(expected, name).to_json()
    for suffix in ("", ".questions", ".rivals"):
        ours, theirs = tmp_path / f"cut{suffix}.parquet", tmp_path / f"whole{suffix}.parquet"
        assert ours.read_bytes() == theirs.read_bytes()


def without_features(ledger: Path, target: Path) -> None:
    """Write a ledger as it was before records had features."""
    entries = list(map(json.loads, ledger.read_text().splitlines()))
    for record in (entry["record"] for entry in entries if "record" in entry):
        del record["statistics"], record["chunk_mean"]
    target.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def test_features_are_those_of_question_and_candidates(tmp_path: Path) -> None:
    labeller = make_labeller()
    table = run(labeller, tmp_path / "l.parquet").table
    assert table.statistic_names == STATISTICS and table.fingerprint["statistics"] == list(STATISTICS)
    assert table.statistics is not None and table.chunk_means is not None
    for row, question in enumerate(labeller.dataset.questions):
        embedding = labeller.embedder.encode([question.text])[0]
        candidates = labeller.store.search(embedding, 5)
        vectors = labeller.embedder.encode([chunk.text for chunk in candidates])
        features = query_features(question.text, embedding, candidates, vectors)
        np.testing.assert_allclose(table.statistics[row], features.statistics, atol=1e-6)
        np.testing.assert_allclose(table.chunk_means[row], vectors.mean(axis=0), atol=1e-6)
    assert table.documents == [("tiny/d0",), ("tiny/d1",), ("tiny/d2",), ("tiny/d3",), ("tiny/d4",), ("tiny/d0",)]
    assert table.groups is not None and table.groups.tolist() == [0, 1, 2, 3, 4, 0]


def test_a_ledger_of_an_earlier_version_gets_the_features_without_any_work(tmp_path: Path) -> None:
    run(make_labeller(), tmp_path / "new.parquet")
    ledger = tmp_path / "old.ledger.jsonl"
    without_features(tmp_path / "new.ledger.jsonl", ledger)
    labeller = make_labeller(fail_after=0)
    done = run(labeller, tmp_path / "old.parquet")
    assert done.labelled == () and labeller.generator.calls == 0
    assert not any(reranker.evaluated for reranker in labeller.rerankers)
    for part in ("", ".questions", ".rivals"):
        ours, theirs = tmp_path / f"old{part}.parquet", tmp_path / f"new{part}.parquet"
        assert ours.read_bytes() == theirs.read_bytes()
    once = ledger.read_bytes()
    run(labeller, tmp_path / "old.parquet")
    assert ledger.read_bytes() == once


def test_a_record_whose_chunks_are_gone_is_refused(tmp_path: Path) -> None:
    labeller = make_labeller()
    question = labeller.dataset.questions[0]
    record = labeller.label(question)
    with pytest.raises(InputError, match="question 'q0' was labelled with the chunk 'd9:0', which the store does not"):
        labeller.complete(question, {**record, "candidates": ["d0:0", "d9:0"]})


def test_documents_are_named_so_that_languages_meet_and_data_sets_do_not() -> None:
    documents = (
        Document("1", "text", title="Oxygen"),
        Document("2", "text"),
        Document("3", "text", title="Part one"),
        Document("4", "text", title="Part one"),
    )
    assert document_names(Dataset("wiki", documents, ())) == {
        "1": "Oxygen",
        "2": "wiki/2",
        "3": "wiki/3",
        "4": "wiki/4",
    }


def test_more_questions_later_join_the_same_table(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    labeller = make_labeller()
    assert len(run(labeller, out, labeller.dataset.questions[:2]).table) == 2
    assert len(run(labeller, out, labeller.dataset.questions[1:4]).table) == 4


def test_another_configuration_does_not_mix_in(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    labeller = make_labeller()
    run(labeller, out, labeller.dataset.questions[:1])
    other = replace(labeller, config=replace(labeller.config, candidates=4))
    with pytest.raises(InputError, match="search"):
        run(other, out)
    options = replace(labeller, config=replace(labeller.config, rerankers={"random 1": {"k1": 9}}))
    with pytest.raises(InputError, match="reranker_options"):
        run(options, out)


@pytest.mark.parametrize("workers", [2, 5])
def test_the_table_does_not_depend_on_the_number_of_workers(tmp_path: Path, workers: int) -> None:
    one, many = make_labeller(), make_labeller()
    run(one, tmp_path / "one.parquet")
    run(many, tmp_path / "many.parquet", workers=workers)
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "many.parquet").read_bytes()


def test_a_store_of_another_corpus_is_refused() -> None:
    labeller = make_labeller()
    bees = VectorStore.build(
        chunk_documents([Document("bees", "bees make honey of nectar")], Words(), 8),  # type: ignore[arg-type]
        labeller.embedder,
        tokenizer="words",
        chunk_size=8,
    )
    with pytest.raises(InputError, match="gold passage of question 'q0' is in document 'd0', which the store does not"):
        replace(labeller, store=bees)
    changed = replace(labeller.dataset.documents[0], text="other words " * 8)
    with pytest.raises(InputError, match="chunk 'd0:0' is not what document 'd0' of tiny holds there"):
        replace(labeller, dataset=replace(labeller.dataset, documents=(changed, *labeller.dataset.documents[1:])))
    with pytest.raises(InputError, match="cut with the tokenizer 'words', the configured one is 'smollm2'"):
        replace(labeller, config=replace(labeller.config, tokenizer="smollm2"))
    with pytest.raises(InputError, match=r"smallest chunk's cost \(\d tokens\), got 1"):
        replace(labeller, config=replace(labeller.config, search=SearchConfig(budget=1)))


def test_the_fingerprint_names_how_candidates_were_found_where_that_is_not_dense_and_exact() -> None:
    labeller = make_labeller()
    plain = labeller.fingerprint()["search"]
    assert not {"retrieval", "index"} & set(plain)
    hybrid = replace(labeller, config=replace(labeller.config, retrieval="hybrid"))
    assert hybrid.fingerprint()["search"] == {**plain, "retrieval": "hybrid"}
    old = labeller.store
    graph = VectorStore.from_embeddings(
        old.chunks,
        old.embeddings(),
        old.embedder,
        tokenizer=old.tokenizer,
        chunk_size=old.chunk_size,
        index=HNSWIndex(),
    )
    assert replace(labeller, store=graph).fingerprint()["search"]["index"]["kind"] == "hnsw"


def test_the_fingerprint_names_no_folder_of_this_machine() -> None:
    labeller = make_labeller()
    name = labeller.rerankers[0].name
    config = replace(labeller.config, rerankers={name: {"path": "/home/somebody/models/judge", "batch_size": 4}})
    options = replace(labeller, config=config).fingerprint()["reranker_options"][name]["options"]
    assert options == {"path": "judge", "batch_size": 4}


@pytest.mark.parametrize(("name", "value"), [("expansion_width", 4), ("root_width", 4), ("time_limit", 2.0)])
def test_searches_that_leave_something_out_are_refused(name: str, value: float) -> None:
    labeller = make_labeller()
    with pytest.raises(InputError, match=rf"search.{name} must be left out for labels, got {value}"):
        replace(labeller, config=replace(labeller.config, search=replace(labeller.config.search, **{name: value})))


def test_what_cannot_be_labelled_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    labeller = make_labeller()
    out = tmp_path / "l.parquet"
    with pytest.raises(InputError, match="no questions to label"):
        run(labeller, out, [])
    with pytest.raises(InputError, match=r"must end in \.parquet, got .*labels\.csv"):
        run(labeller, tmp_path / "labels.csv")
    no_gold = [*labeller.dataset.questions[:2], Question("q9", "why ?", ())]
    with pytest.raises(InputError, match=r"1 of 3 questions have no gold passage .* the first is 'q9'"):
        run(labeller, out, no_gold)
    with pytest.raises(InputError, match="each named once, got random 1, random 1"):
        make_labeller(rerankers=[RandomScores(1), RandomScores(1)])
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_fails_is_recorded_and_the_others_are_labelled(tmp_path: Path) -> None:
    class Nan(RandomScores):
        def score(self, query, combinations):
            return np.where("w3" in query, np.nan, super().score(query, combinations))

    labeller = make_labeller(rerankers=[Nan(1)])
    done = run(labeller, tmp_path / "l.parquet")
    assert list(done.failures) == ["q3"] and "reranker 'random 1' scored nan" in done.failures["q3"]
    assert list(done.table.questions["question_id"]) == ["q0", "q1", "q2", "q4", "q5"] == sorted(done.records)


def test_nothing_but_failures_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    labeller = make_labeller(context_length=60)
    message = r"questions failed .* with: the prompt of about \d+ tokens .* first words \(60 tokens\)"
    with pytest.raises(InputError, match=message):
        run(labeller, tmp_path / "l.parquet")
    assert list(tmp_path.iterdir()) == []


ANSWERED = tuple(
    replace(question, answers=(f"w{i} w{i + 1}", f"{question.text} w7 w3"))
    for i, question in enumerate(make_labeller().dataset.questions)
)


def repeated_labeller() -> Labeller:
    """Three samples, scored against the model's reference and two human answers."""
    labeller = make_labeller()
    return replace(
        labeller,
        dataset=replace(labeller.dataset, questions=ANSWERED),
        references=("llm", "human"),
        samplers=(FirstWords(fingerprint="g1", shift=1), FirstWords(fingerprint="g2", shift=2)),
    )


def test_scores_are_means_over_references_and_samples(tmp_path: Path) -> None:
    labeller = repeated_labeller()
    table = run(labeller, tmp_path / "l.parquet").table
    assert table.fingerprint["scoring"] == {"references": ["llm", "human"], "samples": 3}
    repeated = table.repeated("rouge1")
    assert repeated is not None and repeated.shape == (6, *table.rouge().shape)
    np.testing.assert_allclose(repeated.mean(axis=0), table.rouge("rouge1"), atol=1e-12)
    assert (repeated.std(axis=0) > 0).any()
    plain = [FirstWords(shift=shift) for shift in range(3)]
    for position, question in enumerate(ANSWERED):
        candidates = labeller.store.search(labeller.embedder.encode([question.text])[0], 5)
        gold = [labeller.dataset.passage_text(g) for g in question.gold_passages]
        reference = plain[0].generate(labeller.config.prompt.fill(question.text, gold), 9).text
        own = table.scores[table.scores["question_id"] == question.id]
        for row, (_, at) in zip(own.itertuples(), np.ndenumerate(np.arange(len(own))), strict=True):
            prompt = labeller.config.prompt.fill(question.text, [candidates[i].text for i in row.order])
            answers = [generator.generate(prompt, 9).text for generator in plain]
            llm = [rouge_scores(reference, answer).rouge1 for answer in answers]
            human = [max(rouge_scores(text, answer).rouge1 for text in question.answers) for answer in answers]
            found = repeated[:, position].reshape(6, -1)[:, at]
            assert found.tolist() == [*human, *llm]  # by reference, alphabetically


def test_one_answer_against_one_reference_leaves_no_repeats(tmp_path: Path) -> None:
    labeller = make_labeller()
    table = run(labeller, tmp_path / "l.parquet").table
    assert table.repeats is None and table.repeated() is None and "scoring" not in table.fingerprint
    assert not (tmp_path / "l.repeats.parquet").exists()


def test_human_references_need_no_gold_and_no_call(tmp_path: Path) -> None:
    labeller = make_labeller()
    questions = tuple(replace(question, gold_passages=()) for question in ANSWERED)
    labeller = replace(labeller, dataset=replace(labeller.dataset, questions=questions), references=("human",))
    done = run(labeller, tmp_path / "l.parquet")
    assert done.table.fingerprint["scoring"] == {"references": ["human"], "samples": 1}
    assert done.table.repeats is None
    assert list(done.table.questions["reference"]) == [question.answers[0] for question in questions]
    assert labeller.generator.calls == done.answers
    unanswered = (*questions, Question("q9", "why ?", ()))
    with pytest.raises(InputError, match=r"1 of 7 questions have no human answer .* the first is 'q9'"):
        run(labeller, tmp_path / "l.parquet", unanswered)


@pytest.mark.parametrize("references", [(), ("model",), ("llm", "llm")])
def test_unknown_references_are_refused(references: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="references must be llm, human or llm,human"):
        replace(make_labeller(), references=references)


def test_the_demo_table_is_of_this_version_s_settings() -> None:
    """What labels depend on is told as when the shipped table was made, so old ledgers go on."""
    assert set(make_labeller().fingerprint()) == set(LabelTable.read(LABELS).fingerprint) - {"statistics"}


@pytest.mark.parametrize(
    ("generator", "message"),
    [
        ({"name": "smollm2"}, "2 samples of one answer would be equal at temperature 0"),
        ({"name": "openai", "temperature": 0.7, "seed": None}, "2 samples need seeds to be repeatable"),
    ],
)
def test_samples_that_would_be_equal_or_not_repeat_are_refused(
    tmp_path: Path, generator: dict[str, object], message: str
) -> None:
    labeller = make_labeller()
    config = replace(labeller.config, generator=generator)
    questions = labeller.dataset.questions
    with pytest.raises(InputError, match=message):
        run_label_job(labeller.dataset, questions, config, GRID, tmp_path / "l.parquet", JobOptions(samples=2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.models
def test_samples_of_the_embedded_model_differ_and_repeat() -> None:
    """The generator of each sample has a seed of its own, and so its own place in the cache."""
    prompt = "Name one animal and say in a sentence what it eats."
    answers = []
    for seed in (5, 6, 5):
        generator = load_generator("smollm2", threads=1, temperature=1.2, seed=seed)
        answers.append((generator.fingerprint, generator.generate(prompt, 12).text))
        generator.close()
    first, other, again = answers
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]

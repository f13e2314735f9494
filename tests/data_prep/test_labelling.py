"""Labels equal those of one search and one answer per grid point, whatever interrupts the run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from corag_search import InputError, PipelineConfig, SearchConfig, VectorStore, chunk_documents, search_policy_tree
from corag_search.baselines import best_single, greedy_climb, naive_matched, naive_rag
from corag_search.generators.base import Generation
from data_prep.dataset import Dataset, Document, GoldPassage, Question
from data_prep.grid import LabelGrid
from data_prep.labelling import RIVALS, Labeller, label_questions, ledger_path
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

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.calls += 1
        if self.fail_after is not None and self.calls > self.fail_after:
            raise RuntimeError("killed")
        words = prompt.split()
        start = zlib.crc32(prompt.encode()) % 7
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


def test_labels_equal_those_of_the_naive_loop(tmp_path: Path) -> None:
    labeller = make_labeller()
    table = label_questions(labeller, labeller.dataset.questions, tmp_path / "l.parquet")
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
    table = label_questions(labeller, labeller.dataset.questions, tmp_path / "l.parquet")
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
    expected = label_questions(whole, whole.dataset.questions, tmp_path / "whole.parquet")
    out = tmp_path / "cut.parquet"
    broken = make_labeller(fail_after=25)
    with pytest.raises(RuntimeError, match="killed"):
        label_questions(broken, broken.dataset.questions, out)
    assert not out.exists()
    resumed = make_labeller()
    table = label_questions(resumed, resumed.dataset.questions, out)
    assert 0 < resumed.generator.calls < whole.generator.calls
    again = make_labeller()
    label_questions(again, again.dataset.questions, out)
    assert again.generator.calls == 0
    for name in ("scores", "questions", "rivals"):
        for other in (table, LabelTable.read(out)):
            assert getattr(other, name).to_json() == getattr(expected, name).to_json()
    for suffix in ("", ".questions", ".rivals"):
        ours, theirs = tmp_path / f"cut{suffix}.parquet", tmp_path / f"whole{suffix}.parquet"
        assert ours.read_bytes() == theirs.read_bytes()


def test_more_questions_later_join_the_same_table(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    labeller = make_labeller()
    assert len(label_questions(labeller, labeller.dataset.questions[:2], out)) == 2
    assert len(label_questions(labeller, labeller.dataset.questions[1:4], out)) == 4


def test_another_configuration_does_not_mix_in(tmp_path: Path) -> None:
    out = tmp_path / "l.parquet"
    labeller = make_labeller()
    label_questions(labeller, labeller.dataset.questions[:1], out)
    other = replace(labeller, config=replace(labeller.config, candidates=4))
    with pytest.raises(InputError, match="search"):
        label_questions(other, other.dataset.questions, out)
    options = replace(labeller, config=replace(labeller.config, rerankers={"random 1": {"k1": 9}}))
    with pytest.raises(InputError, match="reranker_options"):
        label_questions(options, options.dataset.questions, out)


@pytest.mark.parametrize("workers", [2, 5])
def test_the_table_does_not_depend_on_the_number_of_workers(tmp_path: Path, workers: int) -> None:
    one, many = make_labeller(), make_labeller()
    label_questions(one, one.dataset.questions, tmp_path / "one.parquet")
    label_questions(many, many.dataset.questions, tmp_path / "many.parquet", workers=workers)
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


def test_what_cannot_be_labelled_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    labeller = make_labeller()
    out = tmp_path / "l.parquet"
    with pytest.raises(InputError, match="no questions to label"):
        label_questions(labeller, [], out)
    with pytest.raises(InputError, match=r"must end in \.parquet, got .*labels\.csv"):
        label_questions(labeller, labeller.dataset.questions, tmp_path / "labels.csv")
    no_gold = [*labeller.dataset.questions[:2], Question("q9", "why ?", ())]
    with pytest.raises(InputError, match=r"1 of 3 questions have no gold passage .* the first is 'q9'"):
        label_questions(labeller, no_gold, out)
    with pytest.raises(InputError, match="each named once, got random 1, random 1"):
        make_labeller(rerankers=[RandomScores(1), RandomScores(1)])
    assert list(tmp_path.iterdir()) == []


def test_a_reranker_that_scores_nan_ends_the_run_and_keeps_what_was_finished(tmp_path: Path) -> None:
    class Nan(RandomScores):
        def score(self, query, combinations):
            return np.where("w3" in query, np.nan, super().score(query, combinations))

    out = tmp_path / "l.parquet"
    labeller = make_labeller(rerankers=[Nan(1)])
    with pytest.raises(InputError, match=r"reranker 'random 1' scored nan"):
        label_questions(labeller, labeller.dataset.questions, out)
    assert not out.exists()
    assert len(ledger_path(out).read_text().splitlines()) == 1 + 3
    with pytest.raises(InputError, match="scored nan"):
        label_questions(labeller, labeller.dataset.questions[3:], tmp_path / "first.parquet")
    assert not ledger_path(tmp_path / "first.parquet").exists()  # nothing was finished, nothing is left


def test_a_prompt_beyond_the_context_names_the_question(tmp_path: Path) -> None:
    labeller = make_labeller(context_length=60)
    with pytest.raises(InputError, match=r"question 'q0': the prompt of about \d+ tokens .* first words \(60 tokens\)"):
        label_questions(labeller, labeller.dataset.questions, tmp_path / "l.parquet")

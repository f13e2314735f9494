"""Questions that a model writes: what is kept of its answers, and what they become."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from corag_agent.cli import main
from corag_search import chunk_documents
from corag_search.errors import InputError
from corag_search.generators import load_generator
from corag_search.generators.base import Generation
from corag_search.pipeline_config import PipelineConfig
from corag_search.tokenizers import load_tokenizer
from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.dataset import SYNTHETIC, Dataset, Document
from data_prep.readers import read_dataset
from data_prep.synthesise import synthesise_for_job, synthesise_questions, usable_question

PASSAGE = "The Eiffel tower is 330 metres tall and was built by the company of Gustave Eiffel for the fair of 1889."


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("How tall is the Eiffel tower?", "How tall is the Eiffel tower?"),
        ("  Question: How tall is the Eiffel tower? Answer: 330 metres.", "How tall is the Eiffel tower?"),
        ("1. **Question 1:** How  tall is\tthe *Eiffel* tower?", "How tall is the Eiffel tower?"),
        ("“Who built the Eiffel tower?”", "Who built the Eiffel tower?"),
        ("Sure! Here it is:\n\n- When was the tower built?\n- Who built it?", "When was the tower built?"),
        ("Which fair was the tower built for", ""),
        ("", ""),
        ("?", ""),
        ("How tall?", ""),
        ("What does the passage say about the tower?", ""),
        ("What is mentioned above?", ""),
        ("The tower is tall, isn't it?", ""),
        ("What is the answer to this question?", ""),
        ("Which ocean separates Africa from America?", ""),
        ("What is the height of the Eiffel tower " + "and the tower " * 20 + "?", ""),
    ],
)
def test_what_is_kept_of_an_answer(written, kept):
    assert usable_question(written, PASSAGE) == kept


def test_chinese_and_a_question_that_the_passage_itself_asks():
    passage = "埃菲尔铁塔高330米，由居斯塔夫·埃菲尔的公司为1889年的博览会建造。"
    assert usable_question("问题：埃菲尔铁塔有多高？\n答案：330米", passage) == "埃菲尔铁塔有多高？"
    assert usable_question("文章主要讲了什么？", passage) == ""
    assert usable_question("How tall is the tower?", PASSAGE + " How tall is the tower?") == ""


class Words:
    """A tokenizer whose tokens are the words."""

    name, fingerprint = "words", "w"

    def offsets(self, text: str) -> np.ndarray:
        return np.array([match.span() for match in re.finditer(r"\S+", text)], np.intp).reshape(-1, 2)

    def count(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]


class Scripted:
    """A generator that answers from a list, and remembers what it was asked."""

    name, fingerprint, context_length = "scripted", "0" * 16, 200

    def __init__(self, *answers: str) -> None:
        self.answers = answers
        self.prompts: list[str] = []

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        self.prompts.append(prompt)
        return Generation(self.answers[(len(self.prompts) - 1) % len(self.answers)], 0, 0)

    def close(self) -> None: ...


def towers(count: int) -> Dataset:
    text = PASSAGE.replace("Eiffel", "{}")
    documents = tuple(Document(f"d{n}", text.format(f"N{n}", f"N{n}"), domain="towers") for n in range(count))
    return Dataset("towers", (*documents, Document("heading", "A heading")), ())


def written(data: Dataset, generator: Scripted, count: int, seed: int = 0):
    chunks = chunk_documents(data.documents, Words(), 40)
    return synthesise_questions(data, chunks, generator, Words(), count, seed=seed)


def test_a_question_has_its_chunk_as_gold():
    data = towers(1)
    (made,) = written(data, generator := Scripted("Q: How tall is the N0 tower?"), 1)
    assert (made.id, made.text, made.kind) == ("synthetic:d0:0", "How tall is the N0 tower?", SYNTHETIC)
    assert (made.domain, made.answers) == ("towers", ())
    assert data.passage_text(made.gold_passages[0]) == data.documents[0].text
    assert len(generator.prompts) == 1 and data.documents[0].text in generator.prompts[0]
    assert replace(data, questions=(made,)).questions  # ids and offsets pass the data set's own checks


def test_repeated_questions_are_dropped_and_fewer_are_told(caplog):
    generator = Scripted("How tall is the tower?", "nothing", "how tall is the tower ?", "Who built the tower in 1889?")
    made = written(towers(12), generator, 5)
    assert [q.text for q in made] == ["How tall is the tower?", "Who built the tower in 1889?"]
    assert len(generator.prompts) == 12, "every chunk once, but the heading"
    assert "only 2 of 5 synthetic questions, from 12 chunks" in caplog.text
    known = replace(towers(12), questions=made)
    with pytest.raises(InputError, match="no usable question about 12 chunks"):
        written(known, Scripted("How tall is the tower?"), 1)


def test_the_seed_decides_the_chunks_and_fewer_are_the_first_of_more():
    data = towers(30)
    answers = [f"How tall is the tower number {n} of 1889?" for n in range(30)]
    made = [written(data, Scripted(*answers), count, seed) for count, seed in ((6, 0), (3, 0), (6, 1))]
    assert made[0][:3] == made[1] and made[0] != made[2]


def test_a_model_that_writes_nothing_usable_is_given_up():
    generator = Scripted("I cannot help with that.\n\x1b")
    with pytest.raises(InputError) as error:
        written(towers(100), generator, 10)
    assert "scripted wrote no usable question about 25 chunks of towers" in str(error.value)
    assert "\n" not in str(error.value) and len(generator.prompts) == 25
    with pytest.raises(InputError, match=r"no chunk of .* has the 20 words that a question is asked about"):
        written(Dataset("short", (Document("d", "A heading"),), ()), generator, 1)
    for count in (0, -1):
        with pytest.raises(InputError, match="synthesise must be a whole number of questions, at least 1"):
            written(towers(1), generator, count)


def test_a_file_that_is_no_answer_cache_is_refused_and_stays(tmp_path):
    theirs = tmp_path / "labels.answers.sqlite"
    theirs.write_text("my notes, of more than the hundred bytes that a database begins with\n" * 20)
    config = PipelineConfig(generator={"name": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m"})
    with pytest.raises(InputError, match="is no answer cache"):
        synthesise_for_job(towers(1), config, 1, theirs)
    assert theirs.read_text().startswith("my notes")


@pytest.mark.models
def test_the_embedded_model_writes_the_same_questions_from_the_cache():
    demo = read_dataset("demo")
    documents = tuple(d for d in demo.documents if d.domain == "history")
    data = Dataset("history", documents, ())
    tokenizer = load_tokenizer("smollm2")
    chunks = chunk_documents(data.documents, tokenizer, 96)
    generator = load_generator("smollm2")
    try:
        with AnswerCache(None) as cache:
            first = CachedGenerator(generator, cache)
            made = synthesise_questions(data, chunks, first, tokenizer, 1)
            again = CachedGenerator(generator, cache)
            assert synthesise_questions(data, chunks, again, tokenizer, 1) == made
            assert (again.calls, again.hits) == (0, first.calls)
    finally:
        generator.close()
    by_id = {chunk.id: chunk for chunk in chunks}
    for question in made:
        assert question.text.endswith("?") and question.kind == SYNTHETIC
        assert data.passage_text(question.gold_passages[0]) == by_id[question.id.removeprefix("synthetic:")].text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--synthesise", "3", "--out", "l.csv"], "must end in .parquet, got 'l.csv'"),
        (["--synthesise", "0", "--out", "l.parquet"], "synthesise must be a whole number of questions, at least 1"),
        (["--synthesise", "3", "--compose", "3", "--out", "l.parquet"], "compose and synthesise were both given"),
        (["--reader.columns", "{question: q}", "--reader.sample", "0", "--out", "l.parquet"], "sample must be a whole"),
        (["--reader.strict", "true", "--out", "l.parquet"], "documents.jsonl, line 2: two documents have the id 'd'"),
    ],
)
def test_bad_options_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys, arguments, message):
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "documents.jsonl").write_text(2 * '{"id": "d", "text": "One tower."}\n')
    (tmp_path / "c" / "questions.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["label", "--data", "jsonl:c", *arguments]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]

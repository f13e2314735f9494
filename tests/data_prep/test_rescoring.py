"""A table that is scored anew equals one labelled from the start, and nothing is searched for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from corag_search import InputError, PipelineConfig, VectorStore, chunk_documents
from corag_search.prompt import PromptTemplate
from data_prep.dataset import Document
from data_prep.engines import LocalEngine
from data_prep.label_run import LabelRun, label_questions
from data_prep.labelling import Labeller
from data_prep.merge import merge_tables
from data_prep.rescoring import Rescorer, candidate_chunks, questions_of
from data_prep.table import LabelTable
from tests.data_prep.test_labelling import ANSWERED, FirstWords, HashEmbedder, Words, make_labeller, run

PARTS = ("", ".questions", ".rivals", ".repeats")


def answered(references: Sequence[str] = ("llm",), samples: int = 1) -> Labeller:
    """A labeller of questions that have human answers too."""
    labeller = make_labeller()
    return replace(
        labeller,
        dataset=replace(labeller.dataset, questions=ANSWERED),
        config=replace(labeller.config, chunk_size=8),
        references=tuple(references),
        samplers=tuple(FirstWords(fingerprint=f"g{shift}", shift=shift) for shift in range(1, samples)),
    )


def rescorer(labeller: Labeller, table: LabelTable, config: PipelineConfig | None = None) -> Rescorer:
    """What scores a table's orders as the labeller would, without its store, embedder and rerankers."""
    config = config or labeller.config
    return Rescorer(
        dataset=labeller.dataset,
        generator=labeller.generator,
        tokenizer=labeller.tokenizer,
        config=config,
        references=labeller.references,
        samplers=labeller.samplers,
        table=table,
        chunks=candidate_chunks(table, labeller.dataset, config, labeller.tokenizer),
    )


def rescore(labeller: Labeller, table: LabelTable, out: Path) -> LabelRun:
    return label_questions(LocalEngine(rescorer(labeller, table)), labeller.dataset, labeller.dataset.questions, out)


def labelled(labeller: Labeller, out: Path) -> LabelTable:
    run(labeller, out)
    return LabelTable.read(out)


def assert_same_files(one: Path, other: Path) -> None:
    for part in PARTS:
        ours, theirs = (path.with_name(f"{path.stem}{part}.parquet") for path in (one, other))
        assert ours.exists() == theirs.exists()
        assert not ours.exists() or ours.read_bytes() == theirs.read_bytes()
    headers = [path.with_suffix(".ledger.jsonl").read_text().splitlines()[0] for path in (one, other)]
    assert json.loads(headers[0]) == json.loads(headers[1])


@pytest.mark.parametrize(("references", "samples"), [(("llm", "human"), 1), (("human",), 1), (("llm", "human"), 3)])
def test_equals_labels_from_the_start_both_ways(tmp_path: Path, references: tuple[str, ...], samples: int) -> None:
    plain, other = tmp_path / "plain.parquet", tmp_path / "other.parquet"
    first = labelled(answered(), plain)
    wanted = answered(references, samples)
    second = labelled(wanted, other)
    fresh = answered(references, samples)
    done = rescore(fresh, first, tmp_path / "there.parquet")
    assert_same_files(tmp_path / "there.parquet", other)
    assert fresh.generator.calls == wanted.generator.calls  # type: ignore[attr-defined]
    assert done.evaluations == 0 and not any(reranker.evaluated for reranker in fresh.rerankers)  # type: ignore[attr-defined]
    rescore(answered(), second, tmp_path / "back.parquet")
    assert_same_files(tmp_path / "back.parquet", plain)


def test_another_prompt_and_generator_are_those_of_the_new_run(tmp_path: Path) -> None:
    first = labelled(answered(), tmp_path / "plain.parquet")

    def changed() -> Labeller:
        labeller = answered()
        prompt = PromptTemplate(prompt="About {question}:\n{passages}")
        return replace(
            labeller,
            generator=FirstWords(fingerprint="another", shift=2),
            config=replace(labeller.config, prompt=prompt, max_answer_tokens=7),
        )

    labelled(changed(), tmp_path / "start.parquet")
    rescore(changed(), first, tmp_path / "anew.parquet")
    assert_same_files(tmp_path / "anew.parquet", tmp_path / "start.parquet")


def test_an_interrupted_run_goes_on_and_labelling_goes_on_from_it(tmp_path: Path) -> None:
    first = labelled(answered(), tmp_path / "plain.parquet")
    expected = tmp_path / "expected.parquet"
    whole = answered(("llm", "human"))
    labelled(whole, expected)
    out = tmp_path / "cut.parquet"
    broken = replace(answered(("llm", "human")), generator=FirstWords(fail_after=25))
    with pytest.raises(RuntimeError, match="killed"):
        rescore(broken, first, out)
    assert not out.exists()
    resumed = answered(("llm", "human"))
    rescore(resumed, first, out)
    assert 0 < resumed.generator.calls < whole.generator.calls  # type: ignore[attr-defined]
    assert_same_files(out, expected)
    labels = answered(("llm", "human"))
    run(labels, out)  # the ledger is that of a labelling run
    assert labels.generator.calls == 0 and not any(reranker.evaluated for reranker in labels.rerankers)  # type: ignore[attr-defined]
    assert_same_files(out, expected)


def test_questions_of_a_later_run_join_in_and_others_fail(tmp_path: Path) -> None:
    labeller, out = answered(), tmp_path / "part.parquet"
    run(labeller, out, labeller.dataset.questions[:2])
    assert [question.id for question in questions_of(LabelTable.read(out), labeller.dataset.questions)] == ["q0", "q1"]
    with pytest.raises(InputError, match="has none of these questions"):
        questions_of(LabelTable.read(out), labeller.dataset.questions[3:])
    done = rescore(labeller, LabelTable.read(out), tmp_path / "anew.parquet")
    assert list(done.table.questions["question_id"]) == ["q0", "q1"]
    assert "question 'q2' is not in the label table" in done.failures["q2"]


def test_features_of_earlier_records_are_the_table_s(tmp_path: Path) -> None:
    labeller = answered()
    table = labelled(labeller, tmp_path / "l.parquet")
    question = labeller.dataset.questions[3]
    record = labeller.label(question)
    bare = {key: value for key, value in record.items() if key not in ("statistics", "chunk_mean")}
    assert rescorer(labeller, table).complete(question, bare) == record


def store_of(labeller: Labeller, size: int = 8, embedder: HashEmbedder | None = None) -> VectorStore:
    chunks = chunk_documents(labeller.dataset.documents, Words(), size)  # type: ignore[arg-type]
    return VectorStore.build(chunks, embedder or HashEmbedder(), tokenizer="words", chunk_size=size)  # type: ignore[arg-type]


def test_chunks_come_out_of_the_store_where_there_is_one(tmp_path: Path) -> None:
    labeller = answered()
    table = labelled(labeller, tmp_path / "l.parquet")

    def chunks(name: str, store: VectorStore) -> dict:
        store.save(tmp_path / name)
        config = replace(labeller.config, store=str(tmp_path / name))
        return candidate_chunks(table, labeller.dataset, config, labeller.tokenizer)

    cut = candidate_chunks(table, labeller.dataset, labeller.config, labeller.tokenizer)
    assert chunks("store", store_of(labeller)) == cut
    assert set(cut) == {name for own in table.questions["candidates"] for name in own}
    with pytest.raises(InputError, match=r'chunking was .*"chunk_size": 8.* is now .*"chunk_size": 9'):
        chunks("coarse", store_of(labeller, size=9))

    class Other(HashEmbedder):
        fingerprint = "other"

    with pytest.raises(InputError, match=r'embedder was .*"f".* is now .*"other"'):
        chunks("vectors", store_of(labeller, embedder=Other()))
    names = [name for own in table.questions["candidates"] for name in own]
    with pytest.raises(InputError, match=r"has the candidate 'd[0-9]:[0-9]', which the store does not hold"):
        chunks("smaller", store_of(labeller).remove([names[0].split(":")[0]]))


def test_other_data_and_other_tables_are_refused_with_what_differs(tmp_path: Path) -> None:
    labeller = answered()
    table = labelled(labeller, tmp_path / "l.parquet")
    more = replace(labeller.dataset, documents=(*labeller.dataset.documents, Document("new", "some text")))
    with pytest.raises(InputError, match=r'\(data was \{"fingerprint": "\w+", "name": "tiny"\}, is now \{'):
        rescorer(replace(labeller, dataset=more, store=store_of(replace(labeller, dataset=more))), table)
    with pytest.raises(InputError, match=r"chunking was .* is now .*96"):
        rescorer(labeller, table, replace(labeller.config, chunk_size=96))
    elsewhere = LabelTable(
        table.scores, table.questions, {**table.fingerprint, "data": {"name": "b", "fingerprint": "1"}}, table.rivals
    )
    with pytest.raises(InputError, match="data was"):
        rescorer(labeller, merge_tables([table, elsewhere]))
    bare = table.questions.drop(columns="candidates")
    with pytest.raises(InputError, match="has no candidates, so it is not as `corag label` writes it"):
        rescorer(labeller, LabelTable(table.scores, bare, table.fingerprint, table.rivals))
    with pytest.raises(InputError, match="has no rivals"):
        rescorer(labeller, LabelTable(table.scores, table.questions, table.fingerprint))
    old = {key: value for key, value in table.fingerprint.items() if key != "statistics"}
    first_version = table.questions.drop(columns=["statistics", "chunk_mean"])
    with pytest.raises(
        InputError, match="lacks statistics or chunk_mean of this version; run the command that made it"
    ):
        rescorer(labeller, LabelTable(table.scores, first_version, old, table.rivals))


def test_orders_that_cost_otherwise_are_refused(tmp_path: Path) -> None:
    labeller = answered()
    table = labelled(labeller, tmp_path / "l.parquet")
    dearer = table.scores.assign(prompt_tokens=table.scores["prompt_tokens"] + (table.scores["question_id"] == "q4"))
    other = rescorer(labeller, LabelTable(dearer, table.questions, table.fingerprint, table.rivals))
    other.search(labeller.dataset.questions[3])
    with pytest.raises(InputError, match=r"order \[.*\] of question 'q4' does not cost the \d+ tokens"):
        other.search(labeller.dataset.questions[4])

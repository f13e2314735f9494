"""Every method does what its name says, and a new one is a function."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from corag_agent.evaluation import methods
from corag_agent.evaluation.methods import find_method, list_methods, method
from corag_agent.evaluation.plan import Experiment, Source, check_plan, units
from corag_agent.evaluation.records import EvaluationRun
from corag_agent.evaluation.task import Task
from corag_search import InputError, search_policy_tree
from corag_search import baselines as b
from corag_search.agent import Prediction
from tests.corag_agent.evaluation.tiny_evaluation import CONFIG, evaluated, rerankers, tiny_job, tiny_source

ALL = [
    *("naive_rag", "naive_matched", "best_single", "greedy_climb", "mmr", "adagres", "beam", "upper", "hyde", "tree"),
    *("order_reversed", "order_random", "order_document"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> EvaluationRun:
    experiment = Experiment("main", methods=ALL, options={"upper": {"candidates": 3}, "mmr": {"trade_off": 0.9}})
    return evaluated(tmp_path_factory.mktemp("run"), [experiment])


def rows_of(run: EvaluationRun, name: str) -> pd.DataFrame:
    rows = run.records[run.records["method"] == name]
    assert len(rows) == 6 * (1 if name == "hyde" else 2) and (rows["error"] == "").all()
    return rows


def test_each_chooses_as_the_baseline_called_by_itself(run: EvaluationRun, tmp_path: Path) -> None:
    judges = rerankers()
    with tiny_job(tmp_path, [Experiment("main", methods=["tree"])]) as job:
        data = job.data["tiny"]
        corpus = job.corpus(data, 8)
        for question in data.questions:
            vector = corpus.components.embedder.encode([question.text])[0]
            found = corpus.store.search(vector, 5)
            embeddings = corpus.components.embedder.encode([chunk.text for chunk in found])
            for name, judge in judges.items():
                problem = (question.text, found, judge, CONFIG.search)
                tree = search_policy_tree(*problem)
                expected = {
                    "naive_rag": b.naive_rag(*problem),
                    "naive_matched": b.naive_matched(*problem, tokens=tree.cost),
                    "best_single": b.best_single(*problem),
                    "greedy_climb": b.greedy_climb(*problem),
                    "mmr": b.mmr(*problem, embeddings=embeddings, trade_off=0.9),
                    "adagres": b.adagres(*problem, embeddings=embeddings),
                    "beam": b.beam(*problem),
                    "upper": b.upper_bound(question.text, found[:3], judge, CONFIG.search),
                    "tree": tree,
                }
                for called, result in expected.items():
                    rows = rows_of(run, called)
                    row = rows[(rows["question_id"] == question.id) & (rows["reranker"] == name)].iloc[0]
                    assert tuple(row["order"]) == result.order, called
                    assert list(row["chunk_ids"]) == [chunk.id for chunk in result.chunks]
                    assert row["prompt_tokens"] == result.cost <= 16
                    assert row["evaluations"] == result.evaluations, called
                    assert (row["value"], row["objective"]) == pytest.approx((result.value, result.objective), abs=1e-6)


def test_orders_are_of_the_same_chunks(run: EvaluationRun) -> None:
    keys = ["question_id", "reranker"]
    tree = rows_of(run, "tree").set_index(keys)
    assert tree["order"].map(len).max() > 1
    for name in ("order_reversed", "order_random", "order_document"):
        for key, row in rows_of(run, name).set_index(keys).iterrows():
            assert sorted(row["order"]) == sorted(tree.loc[key, "order"])
            assert row["prompt_tokens"] == tree.loc[key, "prompt_tokens"]
            if name == "order_reversed":
                assert list(row["order"]) == list(tree.loc[key, "order"])[::-1]
            if name == "order_document":
                places = [tuple(map(int, chunk.lstrip("d").split(":")[:1])) for chunk in row["chunk_ids"]]
                runs = [place for i, place in enumerate(places) if i == 0 or places[i - 1] != place]
                assert len(runs) == len(set(runs))  # a document's chunks stand together
            judge = rerankers()[key[1]]
            chunks = list(row["chunk_ids"])
            assert row["value"] == pytest.approx(judge.of(f"what about w{key[0][1:]} ?", chunks), abs=1e-6)


def test_settings_tell_what_shaped_the_choice(run: EvaluationRun) -> None:
    upper = json.loads(rows_of(run, "upper")["settings"].iloc[0])
    assert upper["options"] == {"candidates": 3} and upper["candidates"] == 5
    assert (upper["iterations"], upper["budget"], upper["selection"]) == (6, 16, "scaled")


def test_raptor_may_choose_summaries_whose_texts_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    experiment = Experiment("r", methods=["raptor"], options={"raptor": {"summary_tokens": 3, "cluster_tokens": 40}})
    run = evaluated(tmp_path, [experiment])
    assert (run.records["error"] == "").all() and set(run.records["reranker"]) == {""}
    used = {name for own in run.records["chunk_ids"] for name in own}
    texts, costs = (run.chunks.set_index("chunk_id")[name] for name in ("text", "cost"))
    assert any(name.startswith("summary/") for name in used)
    assert all(texts[name] for name in used)
    assert list(run.records["prompt_tokens"]) == [sum(costs[list(names)]) for names in run.records["chunk_ids"]]


class FixedAgent:
    """The reranker "two" with settings of its own."""

    selection = "uct"
    needs_features = False
    config: ClassVar = {"sha256": "abc", "labels": {"search": {"budget": 16}, "chunking": {"chunk_size": 8}}}

    def check_embedder(self, *_: object) -> None:
        pass

    def predict(self, *_: object) -> Prediction:
        return Prediction("two", 2, 0.7, 0.3, {"one": 0.2, "two": 0.8}, 0.8)


def test_the_agent_decides_unless_a_sweep_does(tmp_path: Path) -> None:
    experiment = Experiment("a", methods=["agent"], sweep={"cost_coefficient": [0.0, 0.05]})
    run = evaluated(tmp_path, [experiment], agent=FixedAgent())
    assert set(run.records["variant"]) == {"cost_coefficient=0.0", "cost_coefficient=0.05"}
    assert set(run.records["reranker"]) == {""} and len(run) == 12
    with tiny_job(tmp_path / "other", [experiment]) as job:
        corpus = job.corpus(job.data["tiny"], 8)
        for _, row in run.records.iterrows():
            settings = json.loads(row["settings"])
            assert settings["reranker"] == "two" and settings["selection"] == "uct" and settings["iterations"] == 2
            question = f"what about w{row['question_id'][1:]} ?"
            found = corpus.store.search(corpus.components.embedder.encode([question])[0], 5)
            config = replace(
                CONFIG.search,
                iterations=2,
                exploration=0.7,
                selection="uct",
                cost_coefficient=float(row["variant"].split("=")[1]),
            )
            expected = search_policy_tree(question, found, rerankers()["two"], config)
            assert tuple(row["order"]) == expected.order
            # Its labels name no tokenizer, so nothing vouches for it.
            assert not row["on_distribution"]


def test_rows_off_the_labels_of_the_agent_are_marked_and_not_warned_of(tmp_path: Path) -> None:
    experiment = Experiment("a", methods=["agent", "naive_rag"], rerankers=["one"])
    with tiny_job(tmp_path / "job", [experiment]) as job:
        generator = job.evaluator.components.generator.fingerprint
    labels: dict[str, Any] = {
        "search": {"budget": 16, "max_chunks": CONFIG.search.max_chunks, "candidates": 5},
        "chunking": {"chunk_size": 8, "tokenizer": CONFIG.tokenizer},
        "prompt": CONFIG.prompt.fingerprint,
        "generator": {"fingerprint": generator},
    }
    others: list[dict[str, Any]] = [
        {"search": labels["search"] | {name: 2}} for name in ("budget", "max_chunks", "candidates", "retrieval")
    ]
    others += [{"search": {}}, {"prompt": "other"}, {"generator": {"fingerprint": "other"}}, {"generator": {}}]
    others += [{"chunking": labels["chunking"] | {name: "other"}} for name in ("chunk_size", "tokenizer")]
    for number, change in enumerate([{}, *others]):
        agent = type("Labelled", (FixedAgent,), {"config": {"sha256": "abc", "labels": labels | change}})()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            run = evaluated(tmp_path / str(number), [experiment], agent=agent, data=[tiny_source(questions=1)])
        followed = run.records["method"] == "agent"
        assert followed.any() and run.records.loc[~followed, "on_distribution"].all()
        assert set(run.records.loc[followed, "on_distribution"]) == {not change}


def test_the_agents_rivals_have_its_reranker_settings_and_tokens(tmp_path: Path) -> None:
    experiment = Experiment("a", methods=["agent", "agent_matched", "agent_climb"])
    run = evaluated(tmp_path, [experiment], agent=FixedAgent())
    rows = {key: part.iloc[0] for key, part in run.records.groupby(["question_id", "method"])}
    assert len(rows) == len(run) == 18
    config = replace(CONFIG.search, iterations=2, exploration=0.7, selection="uct", cost_coefficient=0.3)
    with tiny_job(tmp_path / "other", [experiment]) as job:
        corpus = job.corpus(job.data["tiny"], 8)
        for question in job.data["tiny"].questions:
            found = corpus.store.search(corpus.components.embedder.encode([question.text])[0], 5)
            problem = (question.text, found, rerankers()["two"], config)
            spent = search_policy_tree(*problem).cost
            for name, expected in (
                ("agent_matched", b.naive_matched(*problem, tokens=spent)),
                ("agent_climb", b.greedy_climb(*problem)),
            ):
                row = rows[question.id, name]
                assert (tuple(row["order"]), row["prompt_tokens"]) == (expected.order, expected.cost)
                assert (row["evaluations"], row["objective"]) == (
                    expected.evaluations,
                    pytest.approx(expected.objective),
                )
                assert json.loads(row["settings"])["cost_coefficient"] == 0.3
            assert rows[question.id, "agent_matched"]["prompt_tokens"] <= spent


@pytest.fixture
def toy() -> Iterator[None]:
    yield
    methods._METHODS.pop("last_chunk", None)


def test_a_method_is_a_function(tmp_path: Path, toy: None) -> None:
    @method("last_chunk", reranks=False)
    def _last(task: Task, places: int = 1) -> b.naive_rag:  # type: ignore[valid-type]
        last = len(task.candidates) - places
        return b.best_single(task.query, task.candidates[last:], rerankers()["one"], task.config)

    assert "last_chunk" in list_methods()
    experiment = Experiment("toy", methods=["last_chunk"], options={"last_chunk": {"places": 1}})
    run = evaluated(tmp_path, [experiment])
    assert len(run) == 6 and all(list(order) == [0] for order in run.records["order"])
    with pytest.raises(InputError, match="there is a method 'last_chunk' already"):
        method("last_chunk")(lambda task: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InputError, match="method 'last_chunk' has no option 'speed'; it has: places"):
        Experiment("toy", methods=["last_chunk"], options={"last_chunk": {"speed": 2}})


def test_unknown_methods_are_named() -> None:
    with pytest.raises(InputError, match="unknown method 'magic'; there are: naive_rag"):
        find_method("magic")


def test_an_experiment_becomes_units() -> None:
    experiment = Experiment(
        "e",
        methods=["tree", "hyde"],
        chunk_sizes=[64, 128],
        budgets=[100, 200],
        sweep={"exploration": [0.0, 1.0], "iterations": [2, 3]},
        settings={"cost_coefficient": 0.25},
    )
    made = units(experiment, CONFIG)
    assert len(made) == 2 * 2 * 4 * (2 + 1)
    assert {unit.variant for unit in made} == {f"exploration={c},iterations={i}" for c in (0.0, 1.0) for i in (2, 3)}
    assert {(u.chunk_size, u.budget) for u in made} == {(s, n) for s in (64, 128) for n in (100, 200)}
    assert all(u.config.cost_coefficient == 0.25 and u.config.max_chunks == 3 for u in made)
    assert {u.reranker for u in made if u.method == "hyde"} == {""}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"methods": []}, "names no method"),
        ({"methods": ["tree", "tree"]}, "methods names one twice"),
        ({"methods": ["tree"], "budgets": []}, "budgets is empty; name at least one, or leave it out"),
        ({"methods": ["tree"], "rerankers": []}, "rerankers is empty"),
        ({"methods": ["tree"], "sweep": {"exploration": []}}, "sweep: exploration has no values"),
        ({"methods": ["tree"], "limit": 0}, "limit must be a whole number, at least 1"),
        ({"methods": ["tree"], "settings": {"speed": 1}}, "unknown setting 'speed'"),
        ({"methods": ["tree"], "sweep": {"budget": [1]}}, "unknown setting 'budget'"),
        ({"methods": ["tree"], "options": {"mmr": {}}}, "options are for 'mmr', which is none"),
    ],
)
def test_unusable_experiments_are_refused(given: dict, message: str) -> None:
    with pytest.raises(InputError, match=f"runs: e: .*{message}|{message}"):
        Experiment("e", **given)


def test_unusable_plans_are_refused() -> None:
    tree, data = Experiment("e", methods=["tree"]), Source("d", "demo")
    with pytest.raises(InputError, match="data is empty"):
        check_plan([], [tree])
    with pytest.raises(InputError, match="runs: the names must be distinct, got e, e"):
        check_plan([data], [tree, tree])
    with pytest.raises(InputError, match="there is no data set 'x'; data has d"):
        check_plan([data], [replace(tree, data=["x"])])
    with pytest.raises(InputError, match="the reranker 'three' is not among those configured"):
        units(replace(tree, rerankers=["three"]), CONFIG)
    with pytest.raises(InputError, match="data d: limit must be a whole number, at least 1"):
        Source("d", "demo", limit=0)
    with pytest.raises(InputError, match="splits are train, val, test, got 'dev'"):
        Source("d", "demo", splits=["dev"])


def test_timings_are_measured_where_nothing_is_shared(tmp_path: Path) -> None:
    timed = Experiment("timed", methods=["tree", "naive_rag", "agent"], rerankers=["one"], timing=True)
    plain = replace(timed, name="plain", timing=False)
    run = evaluated(tmp_path, [timed, plain], agent=FixedAgent(), data=[tiny_source(questions=2)])
    seconds = run.records.set_index("run")[[f"seconds_{s}" for s in ("search", "generate", "retrieve", "agent")]]
    assert np.isfinite(seconds.loc["timed", ["seconds_search", "seconds_generate", "seconds_retrieve"]]).all(axis=None)
    assert seconds.loc["plain", "seconds_search"].isna().all()
    assert np.isfinite(seconds.loc["plain", "seconds_retrieve"]).all()
    measured = run.records[run.records["method"] == "agent"].set_index("run")["seconds_agent"]
    assert not math.isnan(measured["timed"].iloc[0])

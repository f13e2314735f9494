"""`corag evaluate` with an endpoint: the dry run, the run, its output, failures and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main
from corag_agent.commands.evaluate import EXAMPLE, _chosen, add_arguments
from corag_agent.commands.parser import make_parser, pipeline_of
from corag_agent.evaluation.plan import check_plan, units
from corag_agent.evaluation.records import EvaluationRun
from corag_search.shipped import shipped
from tests.corag_search.local_server import Reply, serving

DOCS = (Path(__file__).parents[3] / "docs/evaluation.md").read_text(encoding="utf-8")
TOPICS = ("tower", "river", "glacier", "harbour", "castle", "bridge")


class Endpoint:
    """Answers with the first sentence of the first passage; refuses some topics."""

    def __init__(self) -> None:
        self.refused: set[str] = set()

    def __call__(self, _: str, body: dict) -> Reply:
        prompt = body["messages"][0]["content"]
        if any(f"How old is the {topic}?" in prompt for topic in self.refused):
            return Reply({"error": {"message": "too hot"}}, status=400)
        text = prompt.partition("[1] ")[2].split(".")[0] or "It is very old"  # without passages: HyDE's
        usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(text) // 4}
        return Reply({"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": usage})


def write_corpus(folder: Path) -> None:
    documents = [
        {"id": topic, "text": f"The {topic} is {n}00 years old. " + f"Much of the {topic} is stone. " * 5}
        for n, topic in enumerate(TOPICS, 1)
    ]
    questions = [
        {
            "id": topic,
            "question": f"How old is the {topic}?",
            "answers": [f"{n}00 years"],
            "gold_passages": [{"document": topic, "text": f"The {topic} is {n}00 years old."}],
        }
        for n, topic in enumerate(TOPICS, 1)
    ]
    for name, rows in (("documents", documents), ("questions", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


CONFIG = """
tokenizer: minilm
candidates: 4
chunk_size: 32
rerankers: {{bm25: {{}}, wordllama: {{}}, cosine: {{}}, maxsim: {{}}}}
generator: {{name: openai, base_url: "{url}/v1", model: m, retries: 0}}
search: {{budget: 80, max_chunks: 2, iterations: 3}}
data:
  - {{name: old, data: "jsonl:{folder}"}}
runs:
  - {{name: main, methods: [naive_rag, best_single, tree, order_reversed], rerankers: [bm25, wordllama]}}
  - {{name: agent, methods: [agent, hyde], budgets: [60, 80], limit: 2}}
  - {{name: sweep, methods: [tree], rerankers: [bm25], sweep: {{exploration: [0.0, 2.4]}}, limit: 3}}
  - {{name: structure, structure: true, rerankers: [bm25, wordllama], candidates: 3, limit: 2}}
  - {{name: latency, methods: [naive_rag, tree], rerankers: [bm25], timing: true, limit: 3}}
"""


@pytest.mark.models
def test_from_the_estimate_to_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_corpus(tmp_path)
    endpoint, out = Endpoint(), tmp_path / "evaluation"
    with serving(endpoint) as (url, requests):
        config = tmp_path / "evaluate.yaml"
        config.write_text(CONFIG.format(url=url, folder=tmp_path))

        def evaluate(*options: str) -> tuple[int, str]:
            fixed = ["--config", str(config), "--agent", "demo", "--out", str(out), "--resamples", "100"]
            code = main(["evaluate", *fixed, *options])
            captured = capsys.readouterr()
            assert code < 2, captured.err
            return code, captured.out

        code, printed = evaluate("--dry-run", "--json")
        estimate = {row["run"]: row for row in json.loads(printed)["estimate"]}
        assert code == 0 and not (out / "records.parquet").exists()
        assert (estimate["main"]["questions"], estimate["main"]["searches"]) == (6, 6 * 4 * 2)
        assert estimate["latency"]["answers"] >= 3 * 2 and estimate["structure"]["searches"] == 2 * 2

        endpoint.refused = {"glacier"}
        code, printed = evaluate("--only", "main", "structure")
        assert code == 1 and "its reference failed: " in printed and "answered 400 (too hot)" in printed
        assert "main: means" in printed and "rerankers' benefits" in printed
        assert "6 questions, 48 records, 8 failed (--retry-failed takes them up)" in printed

        endpoint.refused = set()
        code, printed = evaluate("--retry-failed", "--json")
        result = json.loads(printed)
        assert code == 0 and result["failed"] == 0
        assert result["records"] == 48 + 2 * 2 * 2 + 6 + 6
        assert set(result["tables"]) == {"main", "agent", "sweep", "latency"} and len(result["structure"]) == 2
        asked = len(requests)
        assert evaluate("--collect", "--baseline", "best_single", "--by-document")[0] == 0
        assert len(requests) == asked

    run = EvaluationRun.read(out)
    assert (run.records["error"] == "").all() and (run.records["prompt_tokens"] <= 80).all()
    assert not run.records.loc[run.records["method"] == "agent", "on_distribution"].any()
    timed = run.records[run.records["run"] == "latency"]
    assert timed[["seconds_search", "seconds_generate", "seconds_prompt"]].gt(0).all(axis=None)
    found = run.records[run.records["gold_recall"] == 1]
    assert len(found) and found["token_f1"].max() > 0.3  # "The tower is 100 years old" against "100 years"
    assert url not in (out / "records.parquet").read_bytes().decode("latin-1")
    assert str(tmp_path) not in (out / "run.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "data is empty"),
        (("--data", "[{name: d, data: demo}]"), "runs is empty"),
        (("--data", "[{name: d, data: demo}]", "--runs", "[{name: r, methods: [magic]}]"), "unknown method 'magic'"),
        (
            ("--data", "[{name: d, data: demo}]", "--runs", "[{name: r, methods: [tree], data: [e]}]"),
            "there is no data set 'e'",
        ),
        (("--data", "[{name: d, data: demo}]", "--runs", "[{name: r, methods: [agent]}]"), "needs a checkpoint"),
        (("--only", "r"), "there is no run 'r'"),
        (("--store", "x"), "store belongs to a data set here"),
        (("--reference", "gold"), "reference must be llm or human"),
        (("--workers", "0"), "workers must be a whole number, at least 1"),
        (("--resamples", "0"), "resamples must be a whole number, at least 1"),
        (("--data", "[{name: d, data: demo}]", "--take", "e=5"), "take: there is no data set 'e'; there are: d"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    assert main(["evaluate", "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_output_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate"]) == 2 and "--out is required" in capsys.readouterr().err


def test_the_shipped_configuration_makes_a_plan() -> None:
    parser = make_parser("corag evaluate", "evaluate", EXAMPLE)
    add_arguments(parser)
    given = parser.instantiate(parser.parse_args(["--config", str(shipped("configs") / "evaluate.yaml")]))
    check_plan(given.data, given.runs)
    planned = {experiment.name: units(experiment, pipeline_of(given)) for experiment in given.runs}
    assert len(planned["rerankers"]) == 5 * 4 + 3  # five methods with each reranker, and the agent's
    assert {unit.budget for unit in planned["budgets"]} == {128, 300, 600, 1024}
    assert {unit.chunk_size for unit in planned["chunk_sizes"]} == {64, 128, 256}
    assert {unit.candidates for unit in (*planned["upper"], *planned["upper_time"])} == {8}
    # What the labels' answers were made with, so that they come out of the labels' cache.
    settings = planned["main"][0].settings()
    wanted = {"budget": 300, "max_chunks": 5, "selection": "scaled", "candidates": 20, "iterations": 10}
    assert {name: settings[name] for name in wanted} == wanted
    assert next(iter(given.runs)).name == "rerankers" and not planned["structure"]


def test_a_first_run_of_the_shipped_configuration_needs_no_other_file() -> None:
    """The command of docs/evaluation.md: some runs, on a few questions of some data sets, without an agent."""
    parser = make_parser("corag evaluate", "evaluate", EXAMPLE)
    add_arguments(parser)
    lines = DOCS.replace("\\\n", " ").splitlines()
    (command,) = (line for line in lines if line.startswith("corag evaluate") and "--take xquad.en=40" in line)
    arguments = command.partition("#")[0].replace("configs/", f"{shipped('configs')}/").split()[2:]
    sources, experiments = _chosen(parser.instantiate(parser.parse_args(arguments)))
    assert [(one.name, one.limit) for one in sources] == [("xquad.en", 40), ("covidqa", 40), ("xquad.zh", 10)]
    assert [one.name for one in experiments] == ["rerankers", "main", "order", "structure"]
    assert all(set(one.data or []) == {"xquad.en", "covidqa", "xquad.zh"} for one in experiments)
    assert all((one.limit or 99) >= 40 and not [name for name in one.methods if "agent" in name] for one in experiments)
    check_plan(sources, experiments)

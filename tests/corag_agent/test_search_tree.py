"""`corag search --tree`, and the search's settings from the command line and from YAML, over a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from corag_agent.cli import main

DOCUMENTS = {
    "tower": "The tower is 330 metres tall. It was built by Gustave Eiffel's company from 1887 to 1889.",
    "bridge": "The bridge is 227 metres long. It was built by a company </script> of masons.",
    "river": "Metres of water flow below the bridge and past the tower, 光合作用.",
}
QUERY = "How many metres tall is the tower and who built it?"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [json.dumps({"id": name, "text": text}, ensure_ascii=False) for name, text in DOCUMENTS.items()]
    (folder / "documents.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (folder / "questions.jsonl").write_text("", encoding="utf-8")
    target = folder / "store"
    assert main(["index", "--data", f"jsonl:{folder}", "--out", str(target), "--chunk_size", "16", "--json"]) == 0
    return target


def search(capsys: pytest.CaptureFixture[str], store: Path, *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()  # what the fixture wrote
    code = main(["search", "--store", str(store), *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.models
def test_the_tree_as_data(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "tree.json"
    code, out, err = search(capsys, store, "--query", QUERY, "--json", "--tree", target)
    assert (code, err) == (0, "")
    found, tree = json.loads(out), json.loads(target.read_text(encoding="utf-8"))
    assert tree["query"] == QUERY
    assert tree["order"] == found["order"]
    assert sorted(tree["nodes"][tree["chosen"]]["order"]) == sorted(found["order"])
    assert len(tree["nodes"]) == found["evaluations"]
    assert [file.name for file in target.parent.iterdir()] == ["tree.json"]


@pytest.mark.models
def test_the_tree_as_a_page(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    target = tmp_path / "tree.html"
    without = search(capsys, store, "--query", QUERY)
    assert search(capsys, store, "--query", QUERY, "--tree", target) == without
    page = target.read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert f"<title>{QUERY}" in page
    assert page.count("<script") == page.count("</script>"), "none comes from the bridge's text"


@pytest.mark.models
def test_each_query_of_a_file_has_its_tree(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    queries = tmp_path / "queries.txt"
    second = "How long\u2028is the bridge?"  # one line, as JSON and editors have it
    queries.write_bytes(f"{QUERY}\r\n\r\n{second}\r\n".encode())
    code, _, err = search(capsys, store, "--queries", queries, "--tree", tmp_path / "trees" / "t.v2.json")
    assert (code, err) == (0, "")
    files = sorted((tmp_path / "trees").iterdir())
    assert [file.name for file in files] == ["t.v2-1.json", "t.v2-2.json"]
    assert [json.loads(file.read_text(encoding="utf-8"))["query"] for file in files] == [
        QUERY,
        second,
    ]


@pytest.mark.parametrize("name", ["tree.svg", "tree", "tree.HTML", "html"])
def test_another_format_is_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = search(capsys, tmp_path / "nowhere", "--query", QUERY, "--tree", name)
    assert (code, out) == (2, "")
    assert err == f"corag search: tree must end in .html or .json, got '{name}'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.models
def test_a_folder_is_not_replaced(capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    (tmp_path / "tree.html").mkdir()
    code, out, err = search(capsys, store, "--query", QUERY, "--tree", tmp_path / "tree.html")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "tree.html" in err
    assert [file.name for file in tmp_path.iterdir()] == ["tree.html"]


# ---- settings of the search ----

WIDTHS = ["--search.selection", "uct", "--search.time_limit", "2", "--search.expansion_width", "2", "--prior", "maxsim"]
YAML = """
prior: maxsim
search:
  selection: uct
  time_limit: 2
  expansion_width: 2
"""


def tree_of(capsys: pytest.CaptureFixture[str], store: Path, target: Path, *arguments: object) -> dict:
    code, _, err = search(capsys, store, "--query", QUERY, "--search.budget", 300, "--tree", target, *arguments)
    assert (code, err) == (0, "")
    return json.loads(target.read_text(encoding="utf-8"))


@pytest.mark.models
def test_a_prior_narrows_from_the_command_line_and_from_yaml(
    capsys: pytest.CaptureFixture[str], store: Path, tmp_path: Path
) -> None:
    (tmp_path / "search.yaml").write_text(YAML, encoding="utf-8")
    narrow = tree_of(capsys, store, tmp_path / "a.json", *WIDTHS)
    by_file = tree_of(capsys, store, tmp_path / "b.json", "--config", tmp_path / "search.yaml")
    assert narrow == by_file
    config = narrow["config"]
    assert (config["selection"], config["time_limit"], config["expansion_width"]) == ("uct", 2, 2)

    def children(tree: dict) -> list[int]:
        parents = [parent for node in tree["nodes"] for parent in node["parents"]]
        return [parents.count(parent) for parent in set(parents) - {-1}]

    assert max(children(narrow)) == 2
    assert max(children(tree_of(capsys, store, tmp_path / "c.json"))) > 2


@pytest.mark.models
def test_a_prior_is_loaded_only_where_it_is_needed(capsys: pytest.CaptureFixture[str], store: Path) -> None:
    assert search(capsys, store, "--query", QUERY, "--prior", "nope")[0] == 0
    code, _, err = search(capsys, store, "--query", QUERY, "--prior", "nope", "--search.root_width", 2)
    assert (code, err.count("\n")) == (2, 1)
    assert "unknown reranker 'nope'" in err


@pytest.mark.models
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--search.expansion_width", "2"], "expansion_width and root_width need a prior"),
        (["--search.expansion_width", "0", "--prior", "maxsim"], "expansion_width must be a whole number of children"),
        (["--search.time_limit", "0"], "time_limit must be above 0 seconds, or None for no limit, got 0"),
        (["--search.time_limit", "soon"], "time_limit"),
        (["--search.selection", "ucb"], "ucb"),
        (["--prior", ""], "prior must be a name, or null, got ''"),
        (["--search.expansion_width", "2", "--prior", "cosine"], "prior must be a reranker without a token limit"),
    ],
)
def test_bad_settings_are_one_line(
    capsys: pytest.CaptureFixture[str], store: Path, arguments: list[str], message: str
) -> None:
    code, out, err = search(capsys, store, "--query", QUERY, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.models
@pytest.mark.parametrize("given", [["--search.iterations", "3"], ["--search", "{iterations: 3}"]])
def test_what_the_command_line_names_is_not_left_to_the_agent(
    capsys: pytest.CaptureFixture[str], store: Path, given: list[str]
) -> None:
    code, out, _ = search(capsys, store, "--query", QUERY, "--agent", "demo", "--json", *given)
    assert code == 0 and json.loads(out)["iterations"] == 3
    _, out, _ = search(capsys, store, "--query", QUERY, "--agent", "demo", "--json")
    assert json.loads(out)["iterations"] != 3

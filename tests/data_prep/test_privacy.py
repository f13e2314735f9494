from pathlib import Path
from types import MappingProxyType

import pytest

from data_prep.privacy import recordable, without_folders

URL = "http://localhost:8000/v1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/data/x/labels.parquet", "labels.parquet"),
        ("~/labels.parquet", "labels.parquet"),
        ("~\\x\\labels.parquet", "labels.parquet"),
        ("C:\\Users\\somebody\\labels.parquet", "labels.parquet"),
        ("\\\\server\\share\\x\\labels.parquet", "labels.parquet"),
        ("jsonl:/home/somebody/corpus", "jsonl:corpus"),
        ("jsonl:~/corpus", "jsonl:corpus"),
        ("jsonl:C:\\Users\\somebody\\corpus", "jsonl:corpus"),
        ("/data/a:b/corpus", "corpus"),
        ("runs in /home/somebody/x: all", "runs in ~/x: all"),
        ("jsonl:runs/corpus", "jsonl:runs/corpus"),
        ("runs/agent", "runs/agent"),
        ("Context: {chunks}", "Context: {chunks}"),
        (URL, URL),
    ],
)
def test_folders_are_cut(monkeypatch: pytest.MonkeyPatch, given: str, told: str) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert without_folders(given) == told


def test_all_plain_values_are_looked_through() -> None:
    given = {"a": ["/x/1", ("/x/2", 1)], "b": MappingProxyType({"c": {"d": "/x/3"}}), "e": [0.5, None, True]}
    assert without_folders(given) == {"a": ["1", ["2", 1]], "b": {"c": {"d": "3"}}, "e": [0.5, None, True]}


@pytest.mark.parametrize(
    ("path", "recorded"),
    [
        ("runs", "runs"),
        ("/{here}/runs", "runs"),
        ("../other/runs", "../other/runs"),
        ("/srv/homes/somebody/runs", None),
        ("/scratch/runs", "{up}scratch/runs"),
    ],
)
def test_what_may_be_recorded_of_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, recorded: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/srv/homes/somebody")
    here = Path.cwd().relative_to("/")
    expected = recorded and Path(recorded.format(up="../" * len(here.parts)))
    assert recordable(Path(path.format(here=here))) == expected

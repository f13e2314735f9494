"""What is installed, what an import costs, and which way the packages depend on each other."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("corag_search", "corag_agent", "data_prep")


def test_every_package_is_listed_for_the_wheel() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    there = {
        ".".join(file.parent.relative_to(ROOT).parts)
        for package in PACKAGES
        for file in (ROOT / package).rglob("__init__.py")
    }
    assert listed == there | {"corag_search.configs", "corag_search.checkpoints"}


def test_import_takes_nothing_heavy_into_memory() -> None:
    code = (
        "import sys, corag_search; from corag_search import *; from corag_search.baselines import naive_rag; "
        "heavy = {'torch', 'transformers', 'lightning', 'faiss', 'pandas', 'sklearn'} & set(sys.modules); "
        "sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_there() -> None:
    import corag_search

    assert all(getattr(corag_search, name) is not None for name in corag_search.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = corag_search.nonsense


@pytest.mark.parametrize(
    ("package", "forbidden"), [("corag_search", {"data_prep", "corag_agent"}), ("data_prep", {"corag_agent"})]
)
def test_dependencies_point_one_way(package: str, forbidden: set[str]) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & {name.split(".")[0] for name in names}, file


def test_nothing_is_unpickled() -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            assert "pickle.load" not in text and "allow_pickle=True" not in text, file
            assert "weights_only=False" not in text, file

"""The pages in docs/ run as they stand; the frameworks stay out until an adapter is imported."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = {"llamaindex": "llama_index", "langchain": "langchain_core", "haystack": "haystack"}


@pytest.mark.models
@pytest.mark.parametrize("page", MODULES)
def test_the_examples_of_a_page_print_what_it_says(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(examples) == text.count("```python") >= 2
    names: dict = {}
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"docs/{page}.md", "exec"), names)
        assert printed.getvalue() == expected


def test_importing_corag_search_imports_no_framework() -> None:
    code = (
        "import sys, corag_search, corag_search.integrations; from corag_search import *; "
        f"sys.exit(' '.join({set(MODULES.values())} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("extra", "module"), MODULES.items())
def test_a_missing_extra_is_named_in_one_line(extra: str, module: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; import corag_search.integrations.{extra}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"corag_search.errors.InputError: corag_search.integrations.{extra} needs the package")
    assert last.endswith(f"which is not installed: pip install 'corag[{extra}]'")

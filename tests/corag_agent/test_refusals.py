"""What mistyped options and values are answered with: one line that names them, and what would do."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Literal

import pytest

from corag_agent.cli import main
from corag_agent.commands.refusals import expected
from corag_search import SearchConfig

PLAN = "data: [{name: a, data: demo%s}]\nruns: [{name: x, methods: [tree]%s}]\n"
FILES = {
    "unknown.yaml": "bugdet: 3\n",
    "nested.yaml": "search:\n  bugdet: 3\n",
    "value.yaml": "search:\n  budget: few\n",
    "scalar.yaml": "search: 5\n",
    "empty.yaml": "chunk_size: 96\nsearch:\n",
    "nothing.yaml": "",
    "list.yaml": "chunk_size: [1, 2]\n",
    "broken.yaml": "a: [1\nb: 2",
    "items.yaml": "- a\n- b\n",
    "names.yaml": "rerankers: [bm25, maxsim]\n",
    "flag.yaml": "json: maybe\n",
    "quoted.yaml": "dry_run: 'no'\n" + PLAN % ("", ""),
    "only.yaml": "only: main\n" + PLAN % ("", ""),
    "plan.yaml": PLAN % ("", ", budgets: 96"),
    "method.yaml": PLAN % ("", ", method: [tree]"),
    "limit.yaml": PLAN % (", limit: many", ""),
    "nameless.yaml": "data: [{data: demo}]\n",
    "words.yaml": "data: [demo]\n",
    "group.yaml": "budget: few\n",
    "epoch.yaml": "trainer:\n  max_epoch: 3\n",
    "epochs.yaml": "trainer:\n  max_epochs: many\n",
    "stopping.yaml": "early_stopping: 5\n",
    "class.yaml": "model:\n  optimizer:\n    class_path: torch.optim.SDG\n",
    "rate.yaml": "model:\n  optimizer: {class_path: torch.optim.SGD, init_args: {lrr: 3}}\n",
}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("search --query q --quary x", "there is no option --quary; did you mean --query?"),
        ("search --query q --search.bugdet=3", "there is no option --search.bugdet; did you mean --search.budget?"),
        ("search --query q --budget 3", "there is no option --budget; did you mean --search.budget?"),
        ("search --query q --zzz", "there is no option --zzz; `corag search --help` shows all"),
        ("search --query q -q", "there is no option -q; `corag search --help` shows all"),
        ("search --query q --prompt.zzz x", "there is no option --prompt.zzz; there are: --prompt.passage, "),
        ("label --iterations 5", "no option --iterations; did you mean --grid.iterations or --search.iterations?"),
        ("label --worker 3", "there is no option --worker; did you mean --workers?"),
        ("label --dry-runn", "there is no option --dry_runn; did you mean --dry_run?"),
        ("report --question 3", "there is no option --question; did you mean --questions?"),
        ("index --data d --out s --ad", "there is no option --ad; did you mean --add?"),
        ("search --query a b", "'b' belongs to no option: flags take no value, and a text with spaces needs quotes; "),
        ("search --query q --json true", "'true' belongs to no option: flags take no value"),
        ("search --query q --json=true", "--json is a flag and takes no value, got 'true'"),
        ("search --query --json", "--query needs a value; one that begins with a dash is written --query=VALUE"),
        ("index --out s --remove", "--remove needs a value"),
        ("index --data d", "the following arguments are required: --out"),
        ("search --query q --candidates many", "candidates must be a whole number, got 'many'"),
        ("search --query q --candidates [1,2]", "candidates must be a whole number, got [1, 2]"),
        ("search --query q --rerankers bm25", "rerankers must be names with values, as in {name: value}, got 'bm25'"),
        ("search --query q --search 5", "search must be a group of options, as in {name: value}, or the name of such"),
        ("search --query q --search group.yaml", "search.budget must be a whole number, got 'few'"),
        ("index --data d --out s --token_vectors int4", "token_vectors must be int8 or float16, got 'int4'"),
        ("label --limit four", "limit must be a whole number or null, got 'four'"),
        ("label --grid.iterations [a]", "grid.iterations must be a list of whole numbers, got 'a'"),
        ("label --price.prompt cheap", "price.prompt must be a number, got 'cheap'"),
        ("evaluate --resamples 1e4", "resamples must be a whole number, got 10000.0"),
        ("evaluate --runs x", "runs must be a list of groups of options, got 'x'"),
        ("search --query q --config nowhere.yaml", "config: there is no file "),
        ("search --query q --config unknown.yaml", "unknown.yaml: there is no option bugdet; did you mean search.bud"),
        ("search --query q --config nested.yaml", "nested.yaml: search has no option bugdet; did you mean search.bud"),
        ("search --query q --config value.yaml", "value.yaml: search.budget must be a whole number, got 'few'"),
        ("search --query q --config scalar.yaml", "search must be a group of options, as in {name: value}, or the "),
        ("search --query q --config empty.yaml", "or the name of such a file, got null"),
        ("search --query q --config list.yaml", "list.yaml: chunk_size must be a whole number, got [1, 2]"),
        (
            "search --query q --config broken.yaml",
            "broken.yaml: not readable as YAML: did not find expected ',' or ']'",
        ),
        ("search --query q --config items.yaml", "items.yaml: a configuration must be options by name"),
        ("search --query q --config nothing.yaml", "nothing.yaml: it is empty; it must hold options by name"),
        ("search --query q --embedder null", "got null"),
        ("search --query q --config names.yaml", "names.yaml: rerankers must be names with values"),
        ("search --query q --config flag.yaml", "json must be true or false, got 'maybe'"),
        ("evaluate --config quoted.yaml", "dry_run must be true or false, got 'no'"),
        ("evaluate --config only.yaml", "only.yaml: only must be a list, got 'main'"),
        ("evaluate --config plan.yaml", "plan.yaml: runs: budgets must be a list of whole numbers or null, got 96"),
        ("evaluate --config method.yaml", "method.yaml: runs: there is no option method; did you mean methods?"),
        ("evaluate --config limit.yaml", "limit.yaml: data: limit must be a whole number or null, got 'many'"),
        ("evaluate --config nameless.yaml", "data: name is missing"),
        ("fit --data.labels l --modle.margin 3", "there is no option --modle.margin; did you mean --model.margin?"),
        (
            "fit --data.labels l --trainer.max_epoch 3",
            "no option --trainer.max_epoch; did you mean --trainer.max_epochs?",
        ),
        (
            "fit --data.labels l --trainer.max_epochs many",
            "trainer.max_epochs must be a whole number or null, got 'many'",
        ),
        (
            "fit --data.labels l --early_stopping 5",
            "early_stopping must be a group of options, as in {name: value}, or",
        ),
        ("fit --data.labels l --model.optimizer Adamm", "optimizer must be a class {class_path: NAME}, got 'Adamm'"),
        (
            "fit --data.labels l --model.optimizer.lr much",
            "model.optimizer: lr must be a number or a class {class_path: ",
        ),
        (
            "fit --data.labels l --trainer.logger nope",
            "a class {class_path: NAME} or a list of classes or true or false ",
        ),
        (
            "fit --data.labels l --trainer.logger CSVLogger --trainer.logger.nmae x",
            "no option nmae; did you mean name?",
        ),
        (
            "fit --data.labels l m",
            "'m' belongs to no option: flags take no value, and a text with spaces needs quotes; ",
        ),
        ("fit --data.labels", "--data.labels needs a value"),
        ("fit --data.labels l --zzz", "there is no option --zzz; `corag fit --help` shows all"),
        ("fit --data.labels l --model.zzz", "there is no option --model.zzz; `corag fit --help` shows all"),
        ("fit --data.labels l --config nowhere.yaml", "config: there is no file "),
        (
            "fit --data.labels l --config epoch.yaml",
            "epoch.yaml: trainer has no option max_epoch; did you mean trainer.m",
        ),
        (
            "fit --data.labels l --config epochs.yaml",
            "epochs.yaml: trainer.max_epochs must be a whole number or null, ",
        ),
        (
            "fit --data.labels l --config stopping.yaml",
            "early_stopping must be a group of options, as in {name: value}",
        ),
        ("fit --data.labels l --config nothing.yaml", "nothing.yaml: it is empty; it must hold options by name"),
        (
            "fit --data.labels l --config class.yaml",
            "class.yaml: model.optimizer: module 'torch.optim' has no attribute ",
        ),
        (
            "fit --data.labels l --config rate.yaml",
            "rate.yaml: model.optimizer: there is no option lrr; did you mean lr?",
        ),
        ("test --data.labels l --ckpt-pth best", "there is no option --ckpt_pth; did you mean --ckpt_path?"),
        (
            "tune --data.labels l --set trainer.max_epoch=3",
            "tune: trainer has no option max_epoch; did you mean trainer.",
        ),
        (
            "tune --data.labels l --fit-config epochs.yaml",
            "tune: epochs.yaml: trainer.max_epochs must be a whole number ",
        ),
        (
            "crossfit --data.labels l --set trainer.max_epochs=many",
            "crossfit: trainer.max_epochs must be a whole number",
        ),
        ("evaluate --config words.yaml", "words.yaml: data must be a list of groups of options, got 'demo'"),
    ],
)
def test_a_mistake_is_one_short_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    code = main(shlex.split(line))
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"corag {line.split()[0]}: ") and told in err
    assert len(err) < 200 and "<class" not in err and "Parser key" not in err


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (int, "a whole number"),
        (float | None, "a number or null"),
        (list[Path], "a list of paths"),
        (tuple[float, ...], "a list of numbers"),
        (list[SearchConfig], "a list of groups of options"),
        (list, "a list"),
        (dict[str, Any], "names with values, as in {name: value}"),
        (Literal["a", "b"] | int, "a or b or a whole number"),
        (SearchConfig, "a group of options"),
        (ArgumentParser | None, "a class {class_path: NAME} or null"),
        (list[ArgumentParser], "a list of classes"),
        (Literal[1, 2] | Literal[2] | None, "1 or 2 or null"),
    ],
)
def test_kinds_of_values_have_names(kind: Any, told: str) -> None:
    assert expected(kind) == told

import math
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from corag_agent.fit_config import differences, overridden
from corag_agent.tuning.space import SearchSpace
from corag_search.errors import InputError

CONFIG = {"model": {"hidden": [8], "margin": 1.0, "optimizer": {"init_args": {"lr": 0.1}}}, "seed_everything": 0}


def test_what_optuna_draws_from() -> None:
    space = SearchSpace(
        {
            "a": {"type": "float", "low": 1, "high": 2},
            "b": {"type": "float", "low": 0.01, "high": 1.0, "log": True},
            "c": {"type": "float", "low": 0.0, "high": 1.0, "step": 0.25},
            "d": {"type": "int", "low": 2, "high": 8, "step": 2},
            "e": {"type": "int", "low": 1, "high": 64, "log": True},
            "f": {"type": "categorical", "choices": ["relative", None, True, 3]},
        }
    )
    assert space.distributions == {
        "a": FloatDistribution(1.0, 2.0),
        "b": FloatDistribution(0.01, 1.0, log=True),
        "c": FloatDistribution(0.0, 1.0, step=0.25),
        "d": IntDistribution(2, 8, step=2),
        "e": IntDistribution(1, 64, log=True),
        "f": CategoricalDistribution(["relative", None, True, 3]),
    }


def test_choices_may_be_lists_and_mappings() -> None:
    choices = [[512, 256], [64], {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1}}, "[64, 2]", None]
    space = SearchSpace({"model.hidden": {"type": "categorical", "choices": choices}})
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [space.values(study.ask(space.distributions).params)["model.hidden"] for _ in range(60)]
    assert all(choice in drawn for choice in choices)
    assert all(value in choices for value in drawn)


def test_probes_hold_every_choice_and_both_ends() -> None:
    space = SearchSpace(
        {
            "a": {"type": "float", "low": 0.5, "high": 2.5},
            "b": {"type": "categorical", "choices": [[1], [2], [3]]},
        }
    )
    assert space.probes() == [{"a": 0.5, "b": [1]}, {"a": 2.5, "b": [2]}, {"a": 0.5, "b": [3]}]


def test_overriding_makes_a_copy() -> None:
    changed = overridden(CONFIG, {"model.optimizer.init_args.lr": 0.2, "model.hidden": [4], "data.labels": "a"})
    assert changed == {
        "model": {"hidden": [4], "margin": 1.0, "optimizer": {"init_args": {"lr": 0.2}}},
        "seed_everything": 0,
        "data": {"labels": "a"},
    }
    assert CONFIG["model"] == {"hidden": [8], "margin": 1.0, "optimizer": {"init_args": {"lr": 0.1}}}
    assert differences(CONFIG, changed) == ["model.hidden", "model.optimizer.init_args.lr", "data.labels"]
    assert differences({"a": {}}, {"a": {}, "b": None}) == ["b"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("model.margins", "did you mean model.margin"),
        ("model.optimizer.init_args.rate", "did you mean model.optimizer.init_args"),
        ("zzz", "`corag fit --print_config` shows them"),
    ],
)
def test_a_key_that_fit_does_not_have(key: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"space: {key} is no option of `corag fit`.*{hint}"):
        SearchSpace({key: {"type": "int", "low": 0, "high": 1}}).check_keys(CONFIG)


def test_keys_that_fit_has() -> None:
    keys = ("model.margin", "model.optimizer", "model.optimizer.init_args.lr", "seed_everything")
    SearchSpace({key: {"type": "categorical", "choices": [1]} for key in keys}).check_keys(CONFIG)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "a needs a type, one of float, int, categorical, got None"),
        ({"low": 0, "high": 1}, "a needs a type"),
        ({"type": "loguniform", "low": 1, "high": 2}, "a needs a type"),
        ({"type": "float", "low": 0, "high": 1, "choices": [1]}, "a has 'choices'; a float takes type, low, high, log"),
        ({"type": "categorical", "choices": [1], "low": 1}, "a has 'low'; a categorical takes type, choices"),
        ({"type": "float", "low": 2, "high": 1}, "low of a must be at most high, got 2 and 1"),
        ({"type": "float", "low": "0", "high": 1}, "low of a must be a finite number, got '0'"),
        ({"type": "float", "low": 0, "high": math.inf}, "high of a must be a finite number, got inf"),
        ({"type": "float", "high": 1}, "low of a must be a finite number, got None"),
        ({"type": "int", "low": 0, "high": 1.5}, "high of a must be a whole number, got 1.5"),
        ({"type": "int", "low": False, "high": 1}, "low of a must be a whole number, got False"),
        ({"type": "float", "low": 0, "high": 1, "log": True}, "low of a must be positive for a logarithmic scale"),
        ({"type": "float", "low": 0, "high": 1, "log": "yes"}, "log of a must be true or false, got 'yes'"),
        ({"type": "float", "low": 1, "high": 2, "log": True, "step": 0.1}, "step of a must be left out on a"),
        ({"type": "float", "low": 1, "high": 2, "step": 0}, "step of a must be a positive number of its type, got 0"),
        ({"type": "int", "low": 1, "high": 2, "step": 0.5}, "step of a must be a positive number of its type, got 0.5"),
        ({"type": "categorical"}, "a needs choices, a list of at least one, got None"),
        ({"type": "categorical", "choices": []}, r"a needs choices, a list of at least one, got \[\]"),
        ({"type": "categorical", "choices": "abc"}, "a needs choices, a list of at least one, got 'abc'"),
        ({"type": "categorical", "choices": [1, True]}, "two choices of a are equal"),
        ({"type": "categorical", "choices": [[1], [1]]}, "two choices of a are equal"),
    ],
)  # fmt: skip
def test_unusable_parameters(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^space: .*{message}"):
        SearchSpace({"a": given})


def test_a_key_that_is_no_text() -> None:
    with pytest.raises(InputError, match="space: 1 is no option of `corag fit`; name one, such as"):
        SearchSpace({1: {"type": "int", "low": 0, "high": 1}})  # type: ignore[dict-item]


def test_an_empty_space() -> None:
    with pytest.raises(InputError, match="space is empty: name at least one option of `corag fit`"):
        SearchSpace({})

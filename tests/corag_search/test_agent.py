import hashlib
import json
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from corag_search.agent import ConfigurationAgent
from corag_search.agent_format import SETTINGS
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS, QueryFeatures

Tensors = dict[str, np.ndarray]


def make_tensors() -> Tensors:
    """An agent of widths 4 → 3 → 2, whose features are max(0, x₀) and max(0, x₁)."""
    return {
        "layers.0.weight": np.eye(3, 4, dtype=np.float32),
        "layers.0.bias": np.zeros(3, np.float32),
        "layers.1.weight": np.eye(2, 3, dtype=np.float32),
        "layers.1.bias": np.zeros(2, np.float32),
        "reranker_head.weight": np.eye(2, dtype=np.float32),
        "reranker_head.bias": np.zeros(2, np.float32),
        "settings_head.weight": np.array([[1, 0], [0, 1], [-1, 0]], np.float32),
        "settings_head.bias": np.array([0, 0, 1], np.float32),
    }


def make_config() -> dict[str, Any]:
    return {
        "format": "corag-agent",
        "format_version": 1,
        "rerankers": ["bm25", "maxsim"],
        "settings": list(SETTINGS),
        "ranges": {"iterations": [5, 25], "cost_coefficient": [0, 0.3], "exploration": [0, 2.4]},
        "layers": [4, 3, 2],
        "embedder": {"name": "toy", "dimension": 4, "fingerprint": "abc"},
    }


def second_version(**changes: Any) -> tuple[Tensors, dict[str, Any]]:
    """The same agent in the present format: half of everything is taken off the input and doubled again."""
    tensors = {**make_tensors(), "input_shift": np.full(4, 0.5, np.float32), "input_scale": np.full(4, 2.0, np.float32)}
    config = {
        **make_config(), "format_version": 2, "inputs": ["embedding"], "settings_heads": "shared",
        "calibration": {"temperature": 1.0}, "fallback": None, **changes,
    }  # fmt: skip
    return tensors, config


FALLBACK = {"threshold": 0.6, "reranker": "bm25", "iterations": 15, "exploration": 0.5, "cost_coefficient": 0.1}


def write(directory: Path, tensors: Tensors, config: dict[str, Any]) -> Path:
    directory.mkdir(exist_ok=True)
    weights = save(tensors)
    (directory / "model.safetensors").write_bytes(weights)
    config = {"sha256": hashlib.sha256(weights).hexdigest(), **config}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write(tmp_path / "agent", make_tensors(), make_config())


@pytest.mark.parametrize(
    ("labels", "selection"), [({"search": {"selection": "scaled"}}, "scaled"), ({"search": {}}, "uct"), (None, "uct")]
)
def test_the_selection_rule_is_that_of_the_labels(directory: Path, labels: Any, selection: str) -> None:
    write(directory, make_tensors(), {**make_config(), "labels": labels})
    assert ConfigurationAgent.load(directory).selection == selection


def test_prediction_by_hand(directory: Path) -> None:
    agent = ConfigurationAgent.load(directory)
    assert agent.input_dim == 4
    assert agent.rerankers == ("bm25", "maxsim")
    assert agent.embedder["name"] == "toy"
    # Features 0.2 and 0.5: iterations 5 + 0.2·20 = 9, λ = 0.5·0.3, c = (1 − 0.2)·2.4; logits 0.2 and 0.5.
    prediction = agent.predict([0.2, 0.5, -1.0, 9.0])
    assert prediction.reranker == "maxsim"
    assert prediction.iterations == 9 and type(prediction.iterations) is int
    assert prediction.cost_coefficient == pytest.approx(0.15)
    assert prediction.exploration == pytest.approx(1.92)
    assert prediction.confidence == pytest.approx(1 / (1 + np.exp(-0.3)))
    assert prediction.probabilities == pytest.approx(
        {"bm25": 1 - prediction.confidence, "maxsim": prediction.confidence}
    )
    assert sum(prediction.probabilities.values()) == pytest.approx(1)


def test_inputs_are_shifted_and_scaled(tmp_path: Path) -> None:
    first = ConfigurationAgent.load(write(tmp_path / "one", make_tensors(), make_config()))
    second = ConfigurationAgent.load(write(tmp_path / "two", *second_version()))
    # (0.6 − 0.5) · 2 = 0.2 and so on
    one, two = first.predict([0.2, 0.5, -1.0, 9.0]), second.predict([0.6, 0.75, 0.0, 5.0])
    assert (two.reranker, two.iterations) == (one.reranker, one.iterations)
    assert two.probabilities == pytest.approx(one.probabilities)
    assert (two.exploration, two.cost_coefficient) == pytest.approx((one.exploration, one.cost_coefficient))


def test_the_temperature_divides_the_logits(tmp_path: Path) -> None:
    agent = ConfigurationAgent.load(write(tmp_path / "agent", *second_version(calibration={"temperature": 0.1})))
    # Logits 0.2 and 0.5, as in the test by hand above.
    assert agent.predict([0.6, 0.75, 0.0, 5.0]).confidence == pytest.approx(1 / (1 + np.exp(-3.0)))


@pytest.mark.parametrize(("threshold", "falls"), [(0.57, False), (0.58, True), (0.0, False), (2.0, True)])
def test_below_the_threshold_the_fallback_is_used(tmp_path: Path, threshold: float, falls: bool) -> None:
    fallback = {**FALLBACK, "threshold": threshold}
    agent = ConfigurationAgent.load(write(tmp_path / "agent", *second_version(fallback=fallback)))
    prediction = agent.predict([0.6, 0.75, 0.0, 5.0])  # confidence 0.5744
    assert prediction.fallback is falls
    settings = (prediction.reranker, prediction.iterations, prediction.exploration, prediction.cost_coefficient)
    assert settings == (("bm25", 15, 0.5, 0.1) if falls else ("maxsim", 9, pytest.approx(1.92), pytest.approx(0.15)))
    assert prediction.confidence == prediction.probabilities["maxsim"] == pytest.approx(1 / (1 + np.exp(-0.3)))


def fused(tmp_path: Path, inputs: list[str]) -> ConfigurationAgent:
    """An agent that shows its input: logits 0 and the sum of the input, all settings at their least."""
    width = sum(2 if name in ("embedding", "chunk_mean") else 1 for name in inputs)
    tensors = {
        "input_shift": np.zeros(width, np.float32), "input_scale": np.ones(width, np.float32),
        "layers.0.weight": 10.0 ** np.arange(width, dtype=np.float32)[None], "layers.0.bias": np.zeros(1, np.float32),
        "reranker_head.weight": np.array([[0], [1]], np.float32), "reranker_head.bias": np.zeros(2, np.float32),
        "settings_head.weight": np.zeros((3, 1), np.float32), "settings_head.bias": np.zeros(3, np.float32),
    }  # fmt: skip
    config = second_version(inputs=inputs, layers=[width, 1], embedder={"name": "toy", "dimension": 2})[1]
    return ConfigurationAgent.load(write(tmp_path / "agent", tensors, {**config, "calibration": {"temperature": 1e4}}))


def test_features_beside_the_embedding(tmp_path: Path) -> None:
    inputs = ["embedding", "chunk_mean", STATISTICS[1], STATISTICS[3]]
    agent = fused(tmp_path, inputs)
    assert agent.inputs == tuple(inputs) and agent.needs_features and agent.input_dim == 2
    features = QueryFeatures(np.array([3, 4], np.float32), np.arange(5, 5 + len(STATISTICS), dtype=np.float32))
    # Digits from the right: 1, 2 (embedding), 3, 4 (chunk mean), 6 and 8 (the statistics).
    odds = agent.predict([1, 2], features).probabilities
    assert np.log(odds["maxsim"] / odds["bm25"]) == pytest.approx(864321 / 1e4, rel=1e-5)
    with pytest.raises(InputError, match=f"trained with chunk_mean, {STATISTICS[1]}, .* give features"):
        agent.predict([1, 2])
    for short in (
        QueryFeatures(features.chunk_mean[:1], features.statistics),
        QueryFeatures(features.chunk_mean, features.statistics[:3]),
    ):
        with pytest.raises(InputError, match=r"features must have a chunk_mean of 2 and \d+ statistics, got shapes"):
            agent.predict([1, 2], short)
    bad = QueryFeatures(np.array([np.nan, 4], np.float32), features.statistics)
    with pytest.raises(InputError, match="the query's features must be finite"):
        agent.predict([1, 2], bad)


def test_an_embedding_that_overflows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="too large to compute with"):
        fused(tmp_path, ["embedding"]).predict([3e38, 3e38])
    tensors, config = second_version()
    for name, values in (("settings_head.weight", [[3e38, -3e38]] * 3), ("input_scale", [3e38] * 4)):
        huge = ConfigurationAgent({**tensors, name: np.array(values, np.float32)}, config)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match="too large to compute with"):
                huge.predict([9.0, 9.0, 0.0, 0.0])


def test_settings_of_the_chosen_reranker(tmp_path: Path) -> None:
    tensors, config = second_version(settings_heads="per_reranker")
    tensors["settings_head.weight"] = np.zeros((6, 2), np.float32)
    tensors["settings_head.bias"] = np.array([0, 0, 0, 0.5, 1.0, 0.25], np.float32)
    agent = ConfigurationAgent.load(write(tmp_path / "agent", tensors, config))
    for embedding, name, settings in (([5, 0, 0, 0], "bm25", (5, 0.0, 0.0)), ([0, 5, 0, 0], "maxsim", (15, 0.3, 0.6))):
        prediction = agent.predict(embedding)
        assert prediction.reranker == name
        got = (prediction.iterations, prediction.cost_coefficient, prediction.exploration)
        assert got == pytest.approx(settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": None}, "inputs must be a list"),
        ({"inputs": ["chunk_mean"]}, "inputs must be embedding and any of chunk_mean"),
        ({"inputs": ["embedding", "mood"]}, "use the version of corag that exported it"),
        ({"inputs": ["embedding", STATISTICS[2], STATISTICS[1]]}, "in this order"),
        ({"inputs": ["embedding", "chunk_mean"]}, "as wide as its inputs"),
        ({"settings_heads": "own"}, "settings_heads must be shared or per_reranker, got 'own'"),
        ({"settings_heads": "per_reranker"}, r"settings_head.weight must be float32 \[6, 2\]"),
        ({"calibration": {}}, "calibration.temperature must be a finite number above 0, got None"),
        ({"calibration": {"temperature": 0}}, "above 0, got 0"),
        ({"fallback": {"threshold": 0.5}}, "fallback must be null or give a threshold"),
        ({"fallback": {**FALLBACK, "reranker": "other"}}, "one of the rerankers"),
        ({"fallback": {**FALLBACK, "iterations": 500}}, "within the ranges"),
        ({"fallback": {**FALLBACK, "threshold": -1.0}}, "at least 0"),
    ],
)
def test_unusable_entries_of_the_second_version(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConfigurationAgent.load(write(tmp_path / "agent", *second_version(**change)))


def test_predictions_stay_within_the_ranges(directory: Path) -> None:
    prediction = ConfigurationAgent.load(directory).predict(np.full(4, 1e6))
    assert (prediction.iterations, prediction.cost_coefficient, prediction.exploration) == (25, 0.3, 0.0)
    assert np.isfinite(prediction.confidence)


def test_iterations_are_rounded(directory: Path) -> None:
    agent = ConfigurationAgent.load(directory)
    assert [agent.predict([x, 0, 0, 0]).iterations for x in (0.02, 0.03, 0.98)] == [5, 6, 25]


@pytest.mark.parametrize(
    ("embedding", "message"),
    [
        (np.zeros(1024), "was trained for embeddings of 4, got 1024"),
        (np.zeros((1, 4)), r"got an array of shape \[1, 4\]; embed one query at a time"),
        (np.array([0, 0, np.nan, 0]), "must be finite, got NaN"),
        (np.array([0, 0, np.inf, 0]), "must be finite"),
    ],
)
def test_unusable_embeddings(directory: Path, embedding: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConfigurationAgent.load(directory).predict(embedding)


def test_another_embedder_is_refused(directory: Path) -> None:
    agent = ConfigurationAgent.load(directory)
    agent.check_embedder("toy", 4, "abc")
    agent.check_embedder("toy", 4)
    for other in (("other", 4, "abc"), ("toy", 8, "abc"), ("toy", 4, "abd")):
        with pytest.raises(InputError, match=r"trained for embeddings of 4 by toy \(abc\), got"):
            agent.check_embedder(*other)


def without(name: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("layers.1.bias"), r"tensors missing: \['layers.1.bias'\]"),
        (lambda t: t.update(extra=np.zeros(1, np.float32)), r"unexpected: \['extra'\]"),
        (lambda t: t.update({"layers.0.bias": np.zeros(5, np.float32)}), r"layers.0.bias must be float32 \[3\], got"),
        (lambda t: t.update({"layers.0.bias": np.zeros(3)}), "got float64"),
        (lambda t: t["layers.0.bias"].fill(np.nan), r"layers.0.bias must be finite"),
    ],
)
def test_unusable_tensors(tmp_path: Path, change: Callable[[Tensors], Any], message: str) -> None:
    tensors = make_tensors()
    change(tensors)
    with pytest.raises(InputError, match=message):
        ConfigurationAgent.load(write(tmp_path / "agent", tensors, make_config()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "bert"}, "not that of a corag-agent"),
        ({"format_version": 3}, "format version 3, readable are 1, 2"),
        ({"format_version": None}, "format version None"),
        ({"sha256": "0" * 64}, "damaged or of another export"),
        ({"rerankers": []}, "rerankers must be at least one name, each once"),
        ({"rerankers": ["bm25", "bm25"]}, "rerankers must be at least one name, each once"),
        ({"rerankers": [{"name": "bm25"}, "maxsim"]}, "rerankers must be at least one name, each once"),
        ({"rerankers": None}, "rerankers must be a list"),
        ({"settings": ["exploration", "iterations", "cost_coefficient"]}, "settings must be"),
        ({"ranges": {"iterations": [5, 25]}}, r"ranges.cost_coefficient must be"),
        ({"ranges": {**make_config()["ranges"], "iterations": [25, 5]}}, "rise from low to high"),
        ({"ranges": {**make_config()["ranges"], "iterations": "15"}}, r"ranges.iterations must be \[low, high\], got"),
        ({"ranges": {**make_config()["ranges"], "iterations": ["5", "25"]}}, r"must be \[low, high\]"),
        ({"ranges": {**make_config()["ranges"], "iterations": [0, 25]}}, "ranges.iterations holds 0, which no search"),
        ({"ranges": {**make_config()["ranges"], "iterations": [5, 10**9]}}, "holds 1000000000, which no search takes"),
        ({"ranges": {**make_config()["ranges"], "exploration": [0, 10**400]}}, "ranges.exploration holds 1000"),
        ({"ranges": {**make_config()["ranges"], "exploration": [0, math.inf]}}, "ranges.exploration holds inf"),
        ({"ranges": {**make_config()["ranges"], "cost_coefficient": [-1, 0.3]}}, "ranges.cost_coefficient holds -1"),
        ({"layers": [4]}, "at least two widths"),
        ({"layers": [4, True, 2]}, "at least two widths"),
        ({"layers": [5, 3, 2]}, "as wide as its inputs"),
        ({"embedder": {"name": "toy", "dimension": 8}}, "as wide as its inputs"),
    ],
)
def test_unusable_configs(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ConfigurationAgent.load(write(tmp_path / "agent", make_tensors(), {**make_config(), **change}))


@pytest.mark.parametrize("temperature", [0, -1, 10**400, math.nan, math.inf, True, "1", None])
def test_unusable_temperatures(tmp_path: Path, temperature: object) -> None:
    agent = second_version(calibration={"temperature": temperature})
    with pytest.raises(InputError, match=r"calibration\.temperature must be a finite number above 0, got"):
        ConfigurationAgent.load(write(tmp_path / "agent", *agent))


def test_a_temperature_too_small_to_divide_by(tmp_path: Path) -> None:
    agent = ConfigurationAgent.load(write(tmp_path / "agent", *second_version(calibration={"temperature": 1e-310})))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="too large to compute with"):
            agent.predict([1.0, 0.0, 0.0, 0.0])


def test_configs_and_weights_that_cannot_be_read(directory: Path) -> None:
    config = (directory / "config.json").read_bytes()
    for broken in (b"[" * 100_000, b'{"a":' * 100_000, b"\xff"):
        (directory / "config.json").write_bytes(broken)
        with pytest.raises(InputError, match=r"config\.json is not JSON"):
            ConfigurationAgent.load(directory)
    header = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'  # sound, of a type that NumPy does not have
    weights = len(header).to_bytes(8, "little") + header + b"\0\0"
    changed = json.loads(config) | {"sha256": hashlib.sha256(weights).hexdigest()}
    (directory / "config.json").write_text(json.dumps(changed))
    (directory / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match=r"model.safetensors cannot be read \('BF16'\); export it again"):
        ConfigurationAgent.load(directory)


@pytest.mark.parametrize("embedding", ["text", None, ["a"] * 4, [[1], [1, 2]], [10**400] * 4, [1j] * 4, object()])
def test_an_embedding_is_numbers(directory: Path, embedding: Any) -> None:
    with pytest.raises(InputError, match="the query's embedding must be numbers, got"):
        ConfigurationAgent.load(directory).predict(embedding)


def test_an_agent_that_is_replaced_while_it_is_read_is_read_anew(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its configuration and its weights another process puts another export in its place."""
    from corag_search import weights_directory

    waiting = [
        write(
            directory.parent / "other", {**make_tensors(), "settings_head.bias": np.ones(3, np.float32)}, make_config()
        )
    ]
    loads = json.loads

    def replaced_after(text: str) -> Any:
        found = loads(text)
        if waiting:
            directory.rename(directory.parent / "old")
            waiting.pop().rename(directory)
        return found

    monkeypatch.setattr(weights_directory.json, "loads", replaced_after)
    agent = ConfigurationAgent.load(directory)
    assert agent.predict(np.zeros(4)).iterations == 25  # the bias of the other export, 1 of the range


def test_a_flipped_byte_is_refused(directory: Path) -> None:
    weights = bytearray((directory / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (directory / "model.safetensors").write_bytes(weights)
    with pytest.raises(InputError, match="damaged"):
        ConfigurationAgent.load(directory)


def test_not_safetensors_is_refused(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"junk")
    config = {**make_config(), "sha256": hashlib.sha256(b"junk").hexdigest()}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"checkpoint .*agent: "):
        ConfigurationAgent.load(directory)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_missing_files(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(InputError, match=f"has no {name}"):
        ConfigurationAgent.load(directory)


def test_unreadable_config(directory: Path) -> None:
    (directory / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json is not JSON"):
        ConfigurationAgent.load(directory)


def test_torch_is_never_imported(directory: Path) -> None:
    program = (
        "import sys; from corag_search import ConfigurationAgent; "
        f"ConfigurationAgent.load({str(directory)!r}).predict([0.0] * 4); "
        "print({'torch', 'lightning', 'transformers', 'faiss', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")

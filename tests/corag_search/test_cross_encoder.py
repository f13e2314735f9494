"""The paper's rerankers: the real loading code on tiny random checkpoints of the real architecture."""

from __future__ import annotations

import json
import sys
import threading
import warnings

import numpy as np
import pytest

from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.rerankers import Reranker, list_rerankers, load_reranker

pytest.importorskip("FlagEmbedding")
pytest.importorskip("sentence_transformers")

from corag_search.rerankers.cross_encoder import CROSS_ENCODERS, sigmoid
from corag_search.rerankers.pair_model import PairTemplate
from tests.corag_search.tiny_models import build_reranker, build_tokenizer

QUERY = "What limits photosynthesis?"
CHUNKS = [
    Chunk("0", "Photosynthesis turns light into sugar.", 6),
    Chunk("1", "The tower was built in 1889.", 7),
    Chunk("2", "光合作用把光能转化为化学能。", 9),
]
COMBINATIONS = [[CHUNKS[0]], [CHUNKS[1], CHUNKS[0]], [CHUNKS[0], CHUNKS[1]], [], CHUNKS]
LIBRARIES = ["bge-reranker-base", "gte-multilingual-reranker-base"]  # one through each library


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(build_reranker(tmp_path_factory.mktemp("reranker"), limit=512))


def plain_logits(checkpoint, pairs, limit=512):
    """Pair by pair through transformers."""
    import torch
    from transformers import AutoTokenizer, XLMRobertaForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = XLMRobertaForSequenceClassification.from_pretrained(checkpoint).eval()
    logits = []
    for query, text in pairs:
        batch = tokenizer(query, text, return_tensors="pt", truncation="only_second", max_length=limit)
        with torch.inference_mode():
            logits.append(float(model(batch["input_ids"], batch["attention_mask"]).logits))
    return np.array(logits)


def joined(combination):
    return " ".join(chunk.text for chunk in combination)


def test_the_six_of_the_paper_are_there():
    assert set(CROSS_ENCODERS) == set(list_rerankers()[4:-2])
    limits = {name: model.max_tokens for name, model in CROSS_ENCODERS.items()}
    assert limits == {
        "jina-reranker-v1-turbo-en": 8192,
        "jina-reranker-v2-base-multilingual": 1024,
        "bge-reranker-v2-m3": 8192,
        "bge-reranker-large": 512,
        "bge-reranker-base": 512,
        "gte-multilingual-reranker-base": 8192,
    }


def test_sigmoid_once_in_double_precision():
    logits = np.array([-40.0, -1.0, 0.0, 2.5, 40.0])
    np.testing.assert_allclose(sigmoid(logits), 1 / (1 + np.exp(-logits)), rtol=1e-9, atol=1e-16)
    assert sigmoid(np.array([-1e6, 1e6])).tolist() == [0, 1]


@pytest.mark.parametrize("name", LIBRARIES)
def test_scores_are_the_sigmoid_of_the_model(name, checkpoint):
    reranker = load_reranker(name, path=checkpoint, devices="cpu", batch_size=2)
    assert isinstance(reranker, Reranker) and reranker.name == name and reranker.order_sensitive
    filled = [combination for combination in COMBINATIONS if combination]
    logits = plain_logits(checkpoint, [(QUERY, joined(combination)) for combination in filled])
    scores = reranker.score(QUERY, COMBINATIONS)
    assert scores[3] == 0
    np.testing.assert_allclose(np.delete(scores, 3), 1 / (1 + np.exp(-logits)), atol=1e-5)
    assert abs(scores[1] - scores[2]) > 1e-4
    assert reranker.score(QUERY, []).shape == (0,)


@pytest.mark.parametrize("name", LIBRARIES)
def test_pairs_are_the_single_scores(name, checkpoint):
    reranker = load_reranker(name, path=checkpoint, devices="cpu")
    queries = [QUERY, "Who built the tower?", "光", QUERY, ""]
    expected = [reranker.score(query, [c])[0] for query, c in zip(queries, COMBINATIONS, strict=True)]
    np.testing.assert_allclose(reranker.score_pairs(queries, COMBINATIONS), expected, atol=1e-5)
    with pytest.raises(InputError, match="one query per combination"):
        reranker.score_pairs([QUERY], COMBINATIONS)


def test_the_logits_are_those_of_the_libraries(checkpoint):
    """Through their own ways of scoring, a passage beyond the limit included."""
    import torch
    from FlagEmbedding import FlagReranker
    from sentence_transformers import CrossEncoder

    long = Chunk("long", "carbon dioxide " * 400, 800)
    combinations = [COMBINATIONS[0], COMBINATIONS[1], [long]]
    pairs = [(QUERY, joined(combination)) for combination in combinations]
    flag = FlagReranker(checkpoint, use_fp16=False, devices="cpu", max_length=512).compute_score(pairs)
    other = CrossEncoder(checkpoint, device="cpu", max_length=512, activation_fn=torch.nn.Identity()).predict(pairs)
    for name, expected in (("bge-reranker-base", flag), ("gte-multilingual-reranker-base", other)):
        reranker = load_reranker(name, path=checkpoint, devices="cpu", batch_size=2)
        reranker._limit = 512  # gte's own is above what this checkpoint has positions for
        with pytest.warns(UserWarning, match="was cut"):
            np.testing.assert_allclose(reranker.score(QUERY, combinations), sigmoid(np.array(expected)), atol=1e-5)


def test_a_template_with_token_types():
    """BERT: [CLS] q [SEP] p [SEP], the passage and what closes it of type 1."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["[UNK]", "[CLS]", "[SEP]", "[PAD]", "light", "tower"])}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    template = PairTemplate.of(fast)
    assert template == PairTemplate((1,), (2,), (2,), (0, 0, 0, 1, 1)) and template.special_tokens == 3
    for query, passage in (("light", "tower light"), ("", "tower"), ("light tower", "")):
        encoded = {name: rows[0] for name, rows in fast([query], [passage]).items()}
        own = [np.array(fast(text, add_special_tokens=False)["input_ids"], np.int32) for text in (query, passage)]
        assert template.ids(*own).tolist() == encoded["input_ids"]
        assert template.types_of(*own).tolist() == encoded["token_type_ids"]


def test_a_model_with_token_types_gets_them(tmp_path):
    import torch
    from tokenizers import processors
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = build_tokenizer(tmp_path, 512)
    backend = tokenizer.backend_tokenizer
    backend.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    fast = type(tokenizer)(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip
    fast.save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    model = BertForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    expected = []
    for combination in COMBINATIONS[:3]:
        batch = fast(QUERY, joined(combination), return_tensors="pt")
        assert batch["token_type_ids"].any()
        with torch.inference_mode():
            expected.append(float(model(**batch).logits))
    found = load_reranker("bge-reranker-base", path=str(tmp_path), devices="cpu").score(QUERY, COMBINATIONS[:3])
    np.testing.assert_allclose(found, sigmoid(np.array(expected)), atol=1e-5)


@pytest.mark.parametrize("name", ["bge-reranker-base", "jina-reranker-v2-base-multilingual"])
def test_windows_are_scored_and_the_best_counts(name, tmp_path):
    """A window is the same tokens as a text of its own, so its score can be had without the option."""
    limit = CROSS_ENCODERS[name].max_tokens
    path = str(build_reranker(tmp_path, limit, seed=3))
    words = [["light", "tower", "Paris", "sugar"][i * i % 4] for i in range(limit)]
    windowed = load_reranker(name, path=path, devices="cpu", long="window")
    assert windowed.max_tokens is None
    whole = load_reranker(name, path=path, devices="cpu")
    ids = whole._tokens.of([" ".join(words)])
    room = limit - len(whole._tokens.of([QUERY])) - 4
    assert room < len(ids) < 3 * room
    starts = [*range(0, len(ids) - room, room // 2), len(ids) - room]
    query = whole._tokens.of([QUERY])
    logits = whole._models[0].logits([(query, ids[start : start + room]) for start in starts], 8)
    long = Chunk("long", " ".join(words), limit)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = windowed.score(QUERY, [[CHUNKS[0]], [long]])
    assert len(starts) > 1 and len(set(logits.round(6))) > 1
    np.testing.assert_allclose(found, [whole.score(QUERY, [[CHUNKS[0]]])[0], sigmoid(logits).max()], atol=1e-6)


@pytest.mark.parametrize("name", LIBRARIES)
def test_half_precision_is_asked_for_and_near(name, checkpoint):
    full = load_reranker(name, path=checkpoint, devices="cpu")
    half = load_reranker(name, path=checkpoint, devices="cpu", dtype="bfloat16")
    pairs = zip(full._models[0]._model.parameters(), half._models[0]._model.parameters(), strict=True)
    assert all(own.element_size() == 4 and (own.bfloat16() == rounded).all() for own, rounded in pairs)
    difference = np.abs(full.score(QUERY, COMBINATIONS) - half.score(QUERY, COMBINATIONS))
    assert 0 < difference.max() < 0.15  # weights of deviation 0.5 enlarge the rounding, by how much depends on the CPU


def test_several_devices_share_the_work(checkpoint):
    one = load_reranker("bge-reranker-base", path=checkpoint, devices="cpu")
    three = load_reranker("bge-reranker-base", path=checkpoint, devices=["cpu"] * 3)
    for combinations in (COMBINATIONS, COMBINATIONS[:1]):
        np.testing.assert_allclose(three.score(QUERY, combinations), one.score(QUERY, combinations), atol=1e-5)


@pytest.mark.parametrize("name", LIBRARIES)
def test_threads_may_share_a_reranker(name, checkpoint):
    reranker = load_reranker(name, path=checkpoint, devices="cpu")
    expected, found = reranker.score(QUERY, COMBINATIONS), []
    threads = [threading.Thread(target=lambda: found.append(reranker.score(QUERY, COMBINATIONS))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    np.testing.assert_allclose(found, [expected] * 4, atol=1e-6)


@pytest.mark.parametrize("name", LIBRARIES)
def test_scoring_is_silent(name, checkpoint, capfd):
    capfd.readouterr()
    load_reranker(name, path=checkpoint, devices="cpu", batch_size=1).score(QUERY, COMBINATIONS)
    assert capfd.readouterr() == ("", "")


def test_token_counts_never_fall_below_the_pair(checkpoint):
    from transformers import AutoTokenizer

    reranker = load_reranker("bge-reranker-base", path=checkpoint, devices="cpu")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    pair = len(tokenizer(QUERY, joined(CHUNKS))["input_ids"])
    assert sum(reranker.count_tokens([QUERY, joined(CHUNKS)])) == pair
    assert sum(reranker.count_tokens([QUERY, *(chunk.text for chunk in CHUNKS)])) >= pair


@pytest.mark.parametrize("name", LIBRARIES)
def test_cuts_are_not_silent(name, tmp_path):
    limit = CROSS_ENCODERS[name].max_tokens
    reranker = load_reranker(name, path=str(build_reranker(tmp_path, limit)), devices="cpu")
    assert reranker.max_tokens == limit
    long = Chunk("long", "light " * (limit + 100), limit + 100)
    with pytest.warns(UserWarning, match=f"reads {limit} tokens"):
        scores = reranker.score(QUERY, [[long], [long, CHUNKS[0]]])
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)  # what the warning is about


@pytest.mark.parametrize("name", LIBRARIES)
def test_missing_weights_are_refused(name, tmp_path):
    folder = build_reranker(tmp_path, without="classifier")
    with pytest.raises(InputError, match=r"lacks 4 weights.*classifier.*would be random.*trust_remote_code"):
        load_reranker(name, path=str(folder), devices="cpu")


def test_a_model_that_hides_behind_bert_is_refused(tmp_path):
    """As jina-reranker-v1-turbo-en without its remote code: `bert` by its config, other layers in its file."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig

    config = BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=1)
    config.auto_map = {"AutoModelForSequenceClassification": "modeling_bert.JinaBertForSequenceClassification"}
    config.architectures = ["JinaBertForSequenceClassification"]
    config.save_pretrained(tmp_path)
    save_file({"bert.encoder.layer.0.mlp.gated_layers.weight": torch.zeros(4, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="would be random"):
        load_reranker("jina-reranker-v1-turbo-en", path=str(tmp_path), devices="cpu")


def test_remote_code_runs_only_by_the_users_word(checkpoint, tmp_path):
    """An unknown model type that brings its own code, as gte-multilingual-reranker-base on the hub."""
    (tmp_path / "configuration.py").write_text("raise SystemExit('remote code ran')\n")
    auto_map = {"AutoConfig": "configuration.NewConfig", "AutoModelForSequenceClassification": "configuration.NewModel"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "new", "auto_map": auto_map}))
    with pytest.raises(InputError, match="trust_remote_code=True"):
        load_reranker("gte-multilingual-reranker-base", path=str(tmp_path), devices="cpu")


def test_a_classifier_of_several_labels_is_refused(tmp_path):
    folder = build_reranker(tmp_path, labels=3)
    with pytest.raises(InputError, match="gives 3 numbers per pair"):
        load_reranker("bge-reranker-base", path=str(folder), devices="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": "abacus:0"}, "device 'abacus:0' cannot be used"),
        ({"devices": []}, "at least one device"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        (
            {"max_length": 3},
            "no option 'max_length'; it has: path, devices, batch_size, trust_remote_code, dtype, long",
        ),
        ({"dtype": "auto"}, "dtype must be one of float32, bfloat16, float16, got 'auto'"),
        ({"dtype": "float16", "devices": "cpu"}, "dtype 'float16' needs a GPU"),
        ({"long": "cut"}, "long must be one of refuse, window, got 'cut'"),
        ({"path": "./nothing-here"}, "no directory './nothing-here'"),
    ],
)
def test_unusable_options(options, message, checkpoint):
    with pytest.raises(InputError, match=message):
        load_reranker("bge-reranker-base", **{"path": checkpoint, **options})


def test_a_missing_library_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(InputError, match=r"pip install 'corag\[paper\]'"):
        load_reranker("gte-multilingual-reranker-base")

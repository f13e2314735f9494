"""Checkpoints of the real architectures, tiny and random, for the real loading code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SENTENCES = [
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "The Eiffel tower was built by the company of Gustave Eiffel in 1889.",
    "Light, temperature and carbon dioxide limit how fast plants grow.",
    "Paris is the capital of France. What limits photosynthesis? Who built the tower?",
    "光合作用把光能转化为化学能。 影响因素有光照、温度和二氧化碳。",
]


def unigram_model(special: Sequence[str], pieces: int = 300) -> Any:
    """A Unigram model over `special` (with <unk>), the letters of the sentences and their most frequent pieces.

    `UnigramTrainer` gives another vocabulary on every run, so the models here would be other ones each time.
    """
    from tokenizers import models

    words = [f"▁{word}" for sentence in SENTENCES for word in sentence.split(" ")]
    counts = Counter(
        word[start:end] for word in words for start in range(len(word)) for end in range(start + 1, len(word) + 1)
    )
    ranked = sorted(counts, key=lambda piece: (len(piece) > 1, -counts[piece] * len(piece), piece))
    kept = ranked[: pieces - len(special)]
    total = sum(counts[piece] for piece in kept)
    scores = [(piece, math.log(counts[piece] / total)) for piece in kept]
    return models.Unigram([*((text, 0.0) for text in special), *scores], special.index("<unk>"), False)


def build_tokenizer(folder: Path, limit: int) -> Any:
    """A Unigram tokenizer of a few sentences, with the special tokens of XLM-R."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(unigram_model(special))
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()  # FlagEmbedding decodes and tokenises again
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        model_max_length=limit,
    )
    fast.save_pretrained(folder)
    return fast


def _config(tokenizer: Any, limit: int, labels: int) -> Any:
    return transformers.XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=limit + 2,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        num_labels=labels,
        initializer_range=0.5,
    )


def build_reranker(folder: Path, limit: int = 512, labels: int = 1, without: str | None = None, seed: int = 0) -> Path:
    """An XLM-R sequence classifier; `without` leaves out the weights whose name holds it."""
    tokenizer = build_tokenizer(folder, limit)
    torch.manual_seed(seed)
    model = transformers.XLMRobertaForSequenceClassification(_config(tokenizer, limit, labels))
    weights = {key: value for key, value in model.state_dict().items() if without is None or without not in key}
    model.save_pretrained(folder, state_dict=weights)
    return folder


def build_bge_m3(folder: Path, limit: int = 512, without: str | None = None) -> Path:
    """An XLM-R encoder with the two extra heads of BGE-M3, saved as the published one is."""
    tokenizer = build_tokenizer(folder, limit)
    torch.manual_seed(0)
    config = _config(tokenizer, limit, 1)
    config.architectures = ["XLMRobertaModel"]
    config.save_pretrained(folder)
    model = transformers.XLMRobertaModel(config)
    weights = {key: value for key, value in model.state_dict().items() if without is None or without not in key}
    torch.save(weights, folder / "pytorch_model.bin")
    torch.save(torch.nn.Linear(32, 32).state_dict(), folder / "colbert_linear.pt")
    torch.save(torch.nn.Linear(32, 1).state_dict(), folder / "sparse_linear.pt")
    return folder

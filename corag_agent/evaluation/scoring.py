"""How good an answer is, and whether the chosen chunks hold what answers the question."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from corag_search.chunk import Chunk
from corag_search.scripts import is_unspaced
from data_prep.dataset import GoldPassage
from data_prep.rouge import UnicodeTokenizer, best_of

NAN = float("nan")
_cut = UnicodeTokenizer().tokenize
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")  # punctuation for Python and SQuAD, symbols for Unicode


def answer_tokens(text: str) -> list[str]:
    """Tokens of an answer as SQuAD's script normalises it; letters of scripts without spaces are tokens of their own.

    Lower case, without punctuation and the articles a, an, the, split at spaces (P. Rajpurkar et al.,
    arXiv:1606.05250). For ASCII these are exactly that script's tokens. **[ours]** All of Unicode's punctuation falls
    out, and words of a script without spaces are cut into letters as `UnicodeTokenizer` cuts them, since otherwise a
    Chinese answer is one token, right or wrong as a whole.

    >>> answer_tokens("The U.S. (in 1990)"), answer_tokens("光合作用，ATP")
    (['us', 'in', '1990'], ['光', '合', '作', '用', 'atp'])
    """
    lowered = unicodedata.normalize("NFKC", text).lower()
    kept = "".join(c for c in lowered if c not in _ASCII_SYMBOLS and not unicodedata.category(c).startswith("P"))
    words = _ARTICLES.sub(" ", kept).split()
    return [token for word in words for token in (_cut(word) if any(map(is_unspaced, word)) else [word])]


def token_f1(answers: Sequence[str], answer: str) -> float:
    """Greatest F1 of shared tokens over the human answers; NaN where there are none.

    >>> token_f1(["the Denver Broncos"], "Denver won")
    0.5
    """
    own = answer_tokens(answer)
    return max((_f1(answer_tokens(human), own) for human in answers), default=NAN)


def exact_match(answers: Sequence[str], answer: str) -> float:
    """1 when the answer's tokens are exactly those of a human answer, else 0; NaN where there are none."""
    own = answer_tokens(answer)
    return max((float(answer_tokens(human) == own) for human in answers), default=NAN)


def human_rouge(answers: Sequence[str], answer: str) -> float:
    """Greatest ROUGE-L over the human answers; NaN where there are none."""
    return best_of(answers, answer).rougeL if answers else NAN


def gold_recall(gold: Sequence[GoldPassage], chunks: Sequence[Chunk]) -> float:
    """Share of the gold passages that overlap a chosen chunk by at least one character; NaN where there are none.

    A chunk without offsets, such as RAPTOR's summaries, overlaps nothing.
    """
    if not gold:
        return NAN
    return sum(any(_overlap(passage, chunk) for chunk in chunks) for passage in gold) / len(gold)


def _overlap(passage: GoldPassage, chunk: Chunk) -> bool:
    metadata = chunk.metadata
    if metadata.get("document") != passage.document or "start" not in metadata:
        return False
    return bool(metadata["start"] < passage.end and passage.start < metadata["end"])


def _f1(reference: list[str], own: list[str]) -> float:
    if not reference or not own:
        return float(reference == own)  # as SQuAD 2.0's script
    shared = sum((Counter(reference) & Counter(own)).values())
    return 2 * shared / (len(reference) + len(own))

"""Questions for a corpus that has none: the language model is asked for them, one chunk at a time."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from corag_search.chunk import Chunk
from corag_search.chunking import chunk_documents
from corag_search.errors import InputError
from corag_search.generators import load_generator
from corag_search.generators.base import Generator
from corag_search.pipeline import check_context
from corag_search.pipeline_config import PipelineConfig
from corag_search.registry import whole
from corag_search.tokenizers import Tokenizer, load_tokenizer
from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.dataset import SYNTHETIC, Dataset, GoldPassage, Question
from data_prep.duplicates import SIMILAR, word_set
from data_prep.progress import progress_bar
from data_prep.scripts import guess_language, word_spans
from data_prep.splits import shuffle_key

__all__ = ["SYNTHETIC_TOKENS", "synthesise_for_job", "synthesise_questions", "usable_question"]

SYNTHETIC_TOKENS = 48  # of the model's answer; a question is shorter
_PATIENCE = 25  # chunks without one usable question, after which the model is given up
_SHORTEST_CHUNK = 20  # words or Chinese characters; a heading alone answers nothing
_WORDS = (4, 30)  # of a question; as many characters in Chinese, the upper bound doubled

_PROMPT = (
    "Read the passage and write one question that it answers. The question must name what it is about, so that it can "
    "be understood without the passage. Write the question only.\n\nPassage: {text}\n\nQuestion:"
)
_PROMPT_CHINESE = (
    "阅读下面的段落，写出一个可以由该段落回答的问题。问题要写明所问的事物，不看段落也能读懂。只写问题。\n\n"
    "段落：{text}\n\n问题："
)
_ORNAMENT = re.compile(r"^(?:[\s\d.)\]、*#>\"“'`-]|(?:question|q|问题|问)\s*\d*\s*[:：.])+", re.IGNORECASE)
_ABOUT_THE_PASSAGE = re.compile(
    r"\b(?:passage|paragraph|text|article|author|excerpt|document|above|following|mentioned)\b|段落|文章|文中|本文|作者|上述",
    re.IGNORECASE,
)
_ENGLISH_START = re.compile(
    r"(?:what|who|whom|whose|when|where|which|why|how|is|are|was|were|do|does|did|can|could|has|have|had|will|would|"
    r"should|in|at|on|by|from|for|to|during|under|of|with|about)\b",
    re.IGNORECASE,
)
_log = logging.getLogger(__name__)


def synthesise_questions(
    dataset: Dataset,
    chunks: Sequence[Chunk],
    generator: Generator,
    tokenizer: Tokenizer,
    count: int,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda found: None,
) -> tuple[Question, ...]:
    """Questions that the model wrote, each with its chunk as gold passage.

    The chunks are asked about in an order that the seed decides, once each, until there are enough questions. What the
    model writes is filtered (`usable_question`), and a question that is nearly the same as an earlier one is dropped.
    Their kind is `synthetic`; they have no human answers.

    Args:
        dataset: Its documents were cut into the chunks.
        chunks: With `document`, `start` and `end` in their metadata.
        generator: Writes the questions; a `CachedGenerator` writes each only once.
        tokenizer: Counts the prompt.
        count: Questions, at least 1; fewer come, with a warning, where the chunks give no more.
        seed: Another seed, other chunks.
        progress: Told each time how many questions were found, 0 or 1.

    Raises:
        InputError: The model writes nothing usable, or a prompt overflows its context.
    """
    whole("synthesise", count, unit="questions")
    found: list[Question] = []
    known = [word_set(question.text) for question in dataset.questions]
    tried = 0
    written = ""
    for chunk in sorted(chunks, key=lambda chunk: shuffle_key(seed, chunk.id)):
        if len(word_spans(chunk.text)) < _SHORTEST_CHUNK:
            continue
        if not found and tried == _PATIENCE:
            break
        tried += 1
        language = guess_language(chunk.text)
        prompt = (_PROMPT_CHINESE if language == "zh" else _PROMPT).replace("{text}", chunk.text.strip())
        check_context(prompt, SYNTHETIC_TOKENS, generator, tokenizer)
        written = generator.generate(prompt, SYNTHETIC_TOKENS).text
        text = usable_question(written, chunk.text)
        words = word_set(text)
        if not text or any(len(words & others) >= SIMILAR * len(words | others) for others in known):
            progress(0)
            continue
        known.append(words)
        found.append(_question(dataset, chunk, text))
        progress(1)
        if len(found) == count:
            return tuple(found)
    if not tried:
        raise InputError(
            f"no chunk of {dataset.name} has the {_SHORTEST_CHUNK} words that a question is asked about; take larger "
            "chunks, or give a file of questions"
        )
    if not found:
        raise InputError(
            f"{generator.name} wrote no usable question about {tried} chunks of {dataset.name} (the last answer: "
            f"{' '.join(written.split())[:60]!r}); configure a larger model, or give a file of questions"
        )
    _log.warning("%s: only %d of %d synthetic questions, from %d chunks", dataset.name, len(found), count, tried)
    return tuple(found)


def usable_question(written: str, passage: str) -> str:
    """The question in what the model wrote; empty when it has none that can be used.

    It is the first line with a question mark, freed of numbers, labels and quotation marks. It must begin as a question
    does, be neither too short nor too long, not speak of "the passage" or be copied from it, and at least half of its
    longer words (in Chinese, its characters) must stand in the passage: small models ask about their own examples.

    >>> usable_question('1. **Question:** "How tall is the tower?" It is', "The tower is 330 metres tall.")
    'How tall is the tower?'
    >>> usable_question("What is the passage about?", "The tower is 330 metres tall.")
    ''
    """
    for line in _lines_with_question(written):
        chinese = guess_language(line) == "zh"
        length = len(word_spans(line))
        if not _WORDS[0] <= length <= _WORDS[1] * (2 if chinese else 1):
            continue
        if _ABOUT_THE_PASSAGE.search(line) or line in passage or not (chinese or _ENGLISH_START.match(line)):
            continue
        words = [word for word in word_set(line) if chinese or len(word) > 3]
        there = word_set(passage)
        if words and 2 * sum(word in there for word in words) >= len(words):
            return line
    return ""


def synthesise_for_job(
    dataset: Dataset, config: PipelineConfig, count: int, answers: Path, seed: int = 0
) -> tuple[Question, ...]:
    """As `synthesise_questions`, with what the configuration names and the answers kept in a cache.

    Args:
        dataset: The documents.
        config: Names tokenizer, chunk size and generator.
        count: Questions.
        answers: The cache's path.
        seed: Decides the chunks.

    Raises:
        InputError: As `synthesise_questions`, or a component that cannot be loaded.
    """
    whole("synthesise", count, unit="questions")
    tokenizer = load_tokenizer(config.tokenizer)
    chunks = chunk_documents(dataset.documents, tokenizer, config.chunk_size)
    generator = load_generator(**config.generator)
    try:
        with AnswerCache(answers) as cache, progress_bar("write questions", count) as advance:
            cached = CachedGenerator(generator, cache)
            try:
                return synthesise_questions(dataset, chunks, cached, tokenizer, count, seed=seed, progress=advance)
            finally:
                cache.remove_if_empty()
    finally:
        generator.close()


def _lines_with_question(written: str) -> Iterator[str]:
    for line in written.splitlines():
        match = re.match(r"[^?？]*[?？]", _ORNAMENT.sub("", line))
        if match:
            yield " ".join(match.group().replace("*", "").split())


def _question(dataset: Dataset, chunk: Chunk, text: str) -> Question:
    place = chunk.metadata
    document = dataset.document(place["document"])
    return Question(
        id=f"synthetic:{chunk.id}",
        text=text,
        gold_passages=(GoldPassage(document.id, place["start"], place["end"]),),
        domain=document.domain,
        kind=SYNTHETIC,
        language=document.language or guess_language(text),
    )

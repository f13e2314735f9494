"""One question through many methods: choose, answer, score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corag_agent.evaluation.answering import Answered, Answerer
from corag_agent.evaluation.corpora import SourceData, references_of
from corag_agent.evaluation.methods import find_method
from corag_agent.evaluation.plan import Unit, plain_search
from corag_agent.evaluation.scoring import exact_match, gold_recall, human_rouge, token_f1
from corag_agent.evaluation.structure import Structure, measure_structure
from corag_agent.evaluation.task import Assigned, Components, Corpus, Task, shared_judges
from corag_search.agent_labels import off_distribution
from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.files import digest_of
from corag_search.generators.base import GeneratorError
from corag_search.pipeline import Selected, timed
from corag_search.rerankers.base import Reranker, RerankerError
from corag_search.result import SearchResult
from data_prep.dataset import Question
from data_prep.labelling import LLM
from data_prep.rouge import best_of

# What can befall one question. Clients of endpoints have tried again, with back-off and a limit, before they raise it.
FAILURES = (InputError, GeneratorError, RerankerError)
DIGITS = 6  # of seconds and benefits, which differ below that between two machines or two runs


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one unit of work on one question ended.

    Attributes:
        unit: Which.
        record: As the ledger keeps it; None when it failed.
        error: Why it failed, in one line.
    """

    unit: Unit
    record: dict[str, Any] | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A unit whose chunks are chosen and not answered from yet.

    Attributes:
        unit: Which.
        result: The choice.
        prompt: Over its chunks.
        seconds: By stage, of what was measured.
        agent: That was followed; None where the method follows none.
    """

    unit: Unit
    result: SearchResult
    prompt: str
    seconds: dict[str, float]
    agent: Assigned | None


@dataclass(frozen=True, slots=True)
class _Shared:
    """What units of one question with equally many candidates have in common."""

    candidates: tuple[Chunk, ...]
    judges: Mapping[str, Reranker]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Evaluator:
    """Works with everything loaded once. Safe to share between threads.

    Attributes:
        components: Of the run.
        answerer: Asks the generator.
        reference: "llm" or "human".
    """

    components: Components
    answerer: Answerer
    reference: str = LLM

    def fingerprint(self, reranker: str) -> dict[str, Any]:
        """What a reranker's scores depend on, as plain values."""
        options = self.components.config.rerankers[reranker]
        return {"options": options, "fingerprint": getattr(self.components.rerankers[reranker], "fingerprint", None)}

    def shape(self, unit: Unit, agent: Assigned | None) -> str:
        """Digest of all that shapes a unit's records but the question; `agent` is the question's."""
        found = find_method(unit.method)
        parts: dict[str, Any] = {
            "config": plain_search(unit.config),
            "candidates": unit.candidates,
            "options": unit.options,
            "timing": unit.timing,
            "prior": self.components.config.prior if unit.config.narrows else None,
        }
        if found.reranks:
            parts["judge"] = self.fingerprint(unit.reranker)
        if found.follows_agent:
            parts |= {"agent": agent and agent.key, "fixed": unit.fixed}
            parts["judges"] = {name: self.fingerprint(name) for name in self.components.config.rerankers}
        return digest_of(parts)[:16]

    def reference_prompts(self, data: SourceData, question: Question) -> list[str]:
        """What the generator is asked for a question's reference; nothing where a human wrote it.

        Raises:
            InputError: The gold passages overflow the generator's context.
        """
        if self.reference != LLM:
            return []
        return [self.answerer.prompt(question.text, [data.dataset.passage_text(g) for g in question.gold_passages])]

    def written_reference(self, data: SourceData, question: Question) -> str:
        """The reference to show and to score against: the generator's own answer from the gold passages, or a human's.

        Raises:
            InputError: The gold passages overflow the generator's context.
            GeneratorError: The generator failed.
        """
        prompts = self.reference_prompts(data, question)
        if not prompts:
            return question.answers[0]
        return self.answerer.answers(prompts)[prompts[0]].text

    def evaluate(
        self, corpus: Corpus, question: Question, reference: str, units: Sequence[Unit], agent: Assigned | None
    ) -> Iterator[Outcome]:
        """Outcomes of units of one chunk size on one question; what fails is told and the others go on.

        Args:
            corpus: The question's documents at that chunk size.
            question: Which.
            reference: From `written_reference`.
            units: What to do.
            agent: The question's; None where none is configured.
        """
        chosen: list[Chosen] = []
        for picked in self.choose(corpus, question, units, agent):
            if isinstance(picked, Outcome):
                yield picked
            elif picked.unit.timing:
                yield self._answered(corpus, question, reference, picked, self.answerer.anew)
            else:
                chosen.append(picked)
        try:
            answers = self.answerer.answers([picked.prompt for picked in chosen])
        except FAILURES:
            answers = {}  # one by one, to find which of them fails

        def answer(prompt: str) -> Answered:
            return answers.get(prompt) or self.answerer.answers([prompt])[prompt]

        for picked in chosen:
            yield self._answered(corpus, question, reference, picked, answer)

    def choose(
        self, corpus: Corpus, question: Question, units: Sequence[Unit], agent: Assigned | None
    ) -> Iterator[Chosen | Outcome]:
        """What each unit chooses, or how it failed; no answer is asked for."""
        for task, unit, seconds in self._tasks(corpus, question, units, agent):
            try:
                yield self._choose(task, unit, seconds)
            except FAILURES as error:
                yield _failed(unit, error)

    def warm_up(self, corpus: Corpus, question: Question) -> None:
        """Load what is loaded on first use, before anything is timed; what fails is told when it fails there."""
        with suppress(*FAILURES):
            candidates = self._retrieve(corpus, question, 1, {})
            for reranker in self.components.rerankers.values():
                with suppress(*FAILURES):
                    reranker.score(question.text, [candidates])

    def measure(self, corpus: Corpus, question: Question, unit: Unit) -> Structure:
        """How far a unit's reranker is from additive and monotone on a question's candidates.

        Raises:
            InputError: Too many combinations, or unusable scores.
            RerankerError: The reranker failed.
        """
        candidates = self._retrieve(corpus, question, unit.candidates, {})
        judge = shared_judges(self.components.rerankers, question.text, candidates)[unit.reranker]
        return measure_structure(question.text, candidates, judge, unit.config)

    def _tasks(
        self, corpus: Corpus, question: Question, units: Sequence[Unit], agent: Assigned | None
    ) -> Iterator[tuple[Task, Unit, dict[str, float]]]:
        """Each unit with its task and the seconds of what came before; candidates and judges are shared where allowed.

        Embedding and retrieval are done once for all units that share them; each is given the seconds they took.
        """
        shared: dict[int, _Shared] = {}
        for unit in units:
            own = None if unit.timing else shared.get(unit.candidates)
            if own is None:
                seconds: dict[str, float] = {}
                candidates = self._retrieve(corpus, question, unit.candidates, seconds)
                rerankers = self.components.rerankers
                own = _Shared(
                    candidates,
                    rerankers if unit.timing else shared_judges(rerankers, question.text, candidates),
                    seconds,
                )
                if not unit.timing:
                    shared[unit.candidates] = own
            task = Task(
                query=question.text,
                candidates=own.candidates,
                config=unit.config,
                reranker=unit.reranker,
                corpus=corpus,
                generator=self.answerer.plain if unit.timing else self.components.generator,
                judges=own.judges,
                fixed=unit.fixed,
                agent=agent if find_method(unit.method).follows_agent else None,
                timing=unit.timing,
            )
            yield task, unit, dict(own.seconds)

    def _retrieve(self, corpus: Corpus, question: Question, count: int, seconds: dict[str, float]) -> tuple[Chunk, ...]:
        with timed(seconds, "embed"):
            embedding = self.components.embedder.encode([question.text])[0]
        with timed(seconds, "retrieve"):
            return tuple(corpus.retriever.retrieve(question.text, count, embedding=embedding))

    def _choose(self, task: Task, unit: Unit, seconds: dict[str, float]) -> Chosen:
        method = find_method(unit.method)
        if method.after_tree:
            _ = task.tree  # before the clock starts
        if method.prepares and unit.timing:
            method.choose(task, **unit.options)  # what is built over the whole corpus is there when the clock starts
        with timed(seconds, "search"):
            result = method.choose(task, **unit.options)
        if not unit.timing:
            del seconds["search"]  # scores were shared
        elif isinstance(result, Selected):
            seconds = dict(result.timings)
        with timed(seconds, "prompt"):
            prompt = self.answerer.prompt(task.query, [chunk.text for chunk in result.chunks])
        return Chosen(unit, result, prompt, seconds, task.agent)

    def _answered(
        self,
        corpus: Corpus,
        question: Question,
        reference: str,
        picked: Chosen,
        ask: Callable[[str], Answered],
    ) -> Outcome:
        try:
            answer = ask(picked.prompt)
        except FAILURES as error:
            return _failed(picked.unit, error)
        return Outcome(picked.unit, self._record(corpus, question, reference, picked, answer))

    def _record(
        self, corpus: Corpus, question: Question, reference: str, picked: Chosen, answer: Answered
    ) -> dict[str, Any]:
        result, unit = picked.result, picked.unit
        rouge = best_of(references_of(question, reference, self.reference), answer.text)
        seconds = picked.seconds | ({} if math.isnan(answer.seconds) else {"generate": answer.seconds})
        settings = unit.settings()
        if isinstance(result, Selected):
            settings |= {name: v for name, v in plain_search(result.config).items() if v is not None}
            settings["reranker"] = result.reranker
        if picked.agent is not None and picked.agent.about:
            settings["agent"] = dict(picked.agent.about)
        scores = {
            "human_rougeL": human_rouge(question.answers, answer.text),
            "token_f1": token_f1(question.answers, answer.text),
            "exact_match": exact_match(question.answers, answer.text),
            "gold_recall": gold_recall(question.gold_passages, result.chunks),
        }
        return {
            "order": list(result.order),
            "chunk_ids": [chunk.id for chunk in result.chunks],
            "value": round(result.value, DIGITS),
            "objective": round(result.objective, DIGITS),
            "prompt_tokens": result.cost,
            "answer_tokens": answer.tokens,
            **rouge._asdict(),
            **{name: value for name, value in scores.items() if not math.isnan(value)},
            "evaluations": result.evaluations,
            "seconds": {stage: round(spent, DIGITS) for stage, spent in seconds.items()},
            "settings": settings,
            "on_distribution": self._on_distribution(picked),
            "answer": answer.text,
            # Summaries stand in no store.
            "texts": {chunk.id: chunk.text for chunk in result.chunks if chunk.id not in corpus.rows},
        }

    def _on_distribution(self, picked: Chosen) -> bool:
        """Whether no agent is followed, or one whose labels are known to have been made with these settings."""
        if picked.agent is None:
            return True
        own, unit = self.components, picked.unit
        used = {
            "chunk_size": unit.chunk_size,
            "tokenizer": own.config.tokenizer,
            "budget": unit.budget,
            "max_chunks": unit.config.max_chunks,
            "candidates": unit.candidates,
            "retrieval": own.config.retrieval,
            "prompt": own.config.prompt.fingerprint,
            "generator_fingerprint": own.generator.fingerprint,
        }
        return not off_distribution(picked.agent.loaded().config, used)


def _failed(unit: Unit, error: Exception) -> Outcome:
    return Outcome(unit, None, " ".join(str(error).split()))

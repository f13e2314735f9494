"""What is left of the oracles' lead when the orders that they chose are answered once more, by chance.

    python benchmarks/fresh_answers.py --config labels.yaml --answers fresh.sqlite --temperature 0.7 --samples 2 \\
        runs/xquad.parquet=squad:xquad.json@stores/xquad runs/compound.parquet=squad:xquad.json@stores/xquad+300

Labels choose: each question's best configuration and the best fixed one go by the tables. Fresh answers judge: only the
orders of these are answered anew, sampled at a temperature, two or three orders a question instead of ten. An oracle
that was lucky in the labels loses its lead here. Tables are given as TABLE=DATA@STORE, with +N for compound questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from labels import part_names
from numpy.typing import NDArray

from corag_agent.card import markdown_table
from corag_agent.evaluation.intervals import paired_bootstrap
from corag_agent.export_evaluation import FIXED
from corag_search import PipelineConfig, load_generator
from corag_search.tokenizers import load_tokenizer
from data_prep.answers import AnswerCache, CachedGenerator
from data_prep.compose import compose_questions
from data_prep.dataset import Dataset, Question
from data_prep.merge import merge_tables
from data_prep.noise import Oracle
from data_prep.readers import read_dataset
from data_prep.rescoring import candidate_chunks
from data_prep.rouge import best_of
from data_prep.selection import best_fixed
from data_prep.table import LabelTable

CHOICES = (FIXED, Oracle.RERANKERS, Oracle.GRID)
JUDGES = ("label", "fresh, llm", "label, human", "fresh, human")


@dataclass(frozen=True)
class Labelled:
    """A table with what it was made of.

    Attributes:
        table: With the reference answers.
        dataset: With all of its questions.
        store: Where the chunks lie.
    """

    table: LabelTable
    dataset: Dataset
    store: str

    @classmethod
    def of(cls, text: str) -> Labelled:
        """From TABLE=DATA@STORE+N."""
        path, rest = text.split("=")
        source, store = rest.split("@")
        store, _, compound = store.partition("+")
        dataset = read_dataset(source)
        if compound:
            made = compose_questions(dataset, int(compound))
            dataset = Dataset(dataset.name, dataset.documents, (*dataset.questions, *made))
        return cls(LabelTable.read(Path(path)), dataset, store)


def choices_of(table: LabelTable, fixed: tuple[int, ...]) -> NDArray[np.intp]:
    """Rows of the scores that each of `CHOICES` takes, `[n, choices]`; of equal ones that of fewest tokens."""
    points = len(table.grid)
    default = int(np.ravel_multi_index(table.grid.index(table.grid.defaults), table.grid.shape))
    rouge, tokens = (a.reshape(len(table), -1) for a in (table.rouge().round(9), table.tokens))
    by_default = np.arange(len(table.rerankers)) * points + default
    grid = np.lexsort((tokens, -rouge), axis=-1)[:, 0]
    rerankers = by_default[np.lexsort((tokens[:, by_default], -rouge[:, by_default]), axis=-1)[:, 0]]
    constant = np.full(len(table), np.ravel_multi_index(fixed, (len(table.rerankers), *table.grid.shape)))
    return np.stack([constant, rerankers, grid], axis=1) + np.arange(len(table))[:, None] * rouge.shape[1]


def judged(
    one: Labelled,
    fixed: tuple[int, ...],
    config: PipelineConfig,
    samplers: list[CachedGenerator],
    greedy: CachedGenerator,
) -> Iterator[NDArray[np.float64]]:
    """ROUGE-L of each of `CHOICES` by each of `JUDGES`, `[choices, judges]`, question by question."""
    config = PipelineConfig.from_dict({**config.to_dict(), "store": one.store})
    chunks = candidate_chunks(one.table, one.dataset, config, load_tokenizer(config.tokenizer))
    questions = {question.id: question for question in one.dataset.questions}
    rows = choices_of(one.table, fixed)
    for at, row in enumerate(one.table.questions.itertuples()):
        question: Question = questions[row.question_id]
        chosen = one.table.scores.iloc[rows[at]]
        answers: dict[str, list[float]] = {}
        for order in chosen["order"]:
            prompt = config.prompt.fill(question.text, [chunks[row.candidates[i]].text for i in order])
            fresh = [sampler.generate(prompt, config.max_answer_tokens).text for sampler in samplers]
            label = greedy.generate(prompt, config.max_answer_tokens).text
            by_reference = [
                [np.mean([best_of(texts, answer).rougeL for answer in own]) for own in ([label], fresh)]
                for texts in ([row.reference], question.answers)
            ]
            answers[str(order.tolist())] = [value for own in by_reference for value in own]
        scores = np.array([answers[str(order.tolist())] for order in chosen["order"]])
        assert np.allclose(scores[:, 0], chosen["rougeL"]), "the label's own answer scores what the table says"
        yield scores


def report(reached: NDArray[np.float64], parts: dict[str, NDArray[np.intp]], documents: list[int]) -> str:
    """The oracles' lead over the best fixed configuration by each judge, `reached` being `[n, choices, judges]`."""
    rows = []
    for name, part in parts.items():
        groups = [documents[i] for i in part]
        for choice, oracle in enumerate(CHOICES[1:], start=1):
            leads = []
            for judge in range(len(JUDGES)):
                lead = paired_bootstrap(reached[part, choice, judge], reached[part, 0, judge], groups=groups)
                leads.append(f"{lead:+.3f}")
            fixed = f"{reached[part, 0, 0].mean():.3f} / {reached[part, 0, 1].mean():.3f}"
            rows.append((name, str(len(part)), oracle, fixed, *leads))
    return markdown_table(("data", "questions", "oracle", "fixed (label / fresh)", *JUDGES), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--config", required=True)
    parser.add_argument("--answers", type=Path, required=True, help="Cache of the fresh answers.")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--limits", type=int, nargs="*", help="Questions of each table; all without.")
    arguments = parser.parse_args()
    config = PipelineConfig.from_file(arguments.config)
    labelled = [Labelled.of(text) for text in arguments.tables]
    whole = merge_tables([one.table for one in labelled])
    fixed = best_fixed(whole, np.arange(len(whole)))
    with AnswerCache(arguments.answers) as cache:
        for text in arguments.tables:
            path = Path(text.split("=")[0])
            cache.take_over(path.with_name(f"{path.stem}.answers.sqlite"))
        greedy = CachedGenerator(load_generator(**config.generator), cache)
        samplers = [
            CachedGenerator(load_generator(**config.generator, temperature=arguments.temperature, seed=seed), cache)
            for seed in range(arguments.samples)
        ]
        reached, names, documents = [], [], []
        for one, limit in zip(labelled, arguments.limits or [len(one.table) for one in labelled], strict=True):
            for scores in islice(judged(one, fixed, config, samplers, greedy), limit):
                reached.append(scores)
                print(len(reached), end="\r", file=sys.stderr, flush=True)
            names += part_names(one.table)[:limit]
            documents += [owned[0] for owned in one.table.documents or []][:limit]
        calls = [generator.calls for generator in (greedy, *samplers)]
        print(f"asked anew: {calls[0]} greedy, {sum(calls[1:])} sampled answers\n")
    parts = {name: np.flatnonzero(np.array(names) == name) for name in dict.fromkeys(names)}
    print(report(np.array(reached), {"all": np.arange(len(reached)), **parts}, documents))


if __name__ == "__main__":
    main()

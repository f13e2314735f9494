"""Gains with intervals over documents, as they are printed."""

from __future__ import annotations

import numpy as np
import pytest

from corag_agent.evaluation.intervals import paired_bootstrap, paired_ratio
from corag_agent.evaluation.label_noise import NOISE_HEADER, noise_of, noise_rows
from data_prep.noise import Oracle, oracle_gains
from data_prep.table import LabelTable
from tests.data_prep.test_noise import shape, table_of


def with_documents(table: LabelTable, documents: list[list[str]]) -> LabelTable:
    questions = table.questions.assign(documents=documents)
    return LabelTable(table.scores, questions, table.fingerprint, repeats=table.repeats)


def test_intervals_are_drawn_by_document_and_by_part() -> None:
    generator = np.random.default_rng(0)
    truth = generator.normal(0.5, 0.1, shape(12, samples=1))
    documents = [[f"d{i // 3}"] for i in range(12)]
    table = with_documents(table_of(truth + generator.normal(0, 0.1, shape(12))), documents)
    parts = {"first": np.arange(9), "last": np.arange(9, 12)}
    noise = noise_of(table, parts)
    assert [(line["part"], line["questions"], line["oracle"]) for line in noise] == [
        (name, len(rows), oracle) for name, rows in parts.items() for oracle in Oracle
    ]
    gain = oracle_gains(table, parts["first"])[1]
    groups = [documents[i][0] for i in range(9)]
    lead = paired_bootstrap(gain.honest, gain.honest_fixed, groups=groups)
    assert noise[1]["honest_gain"] == [lead.mean, lead.low, lead.high]
    ratio = paired_ratio(gain.honest - gain.honest_fixed, gain.naive - gain.naive_fixed, groups=groups)
    assert noise[1]["noise"] == [-ratio.mean, -ratio.high, -ratio.low]
    share = 1 - (gain.honest - gain.honest_fixed).mean() / (gain.naive - gain.naive_fixed).mean()
    assert noise[1]["noise"][0] == pytest.approx(share)
    assert noise[3]["honest_gain"][1:] == noise[3]["noise"][1:] == [None, None]  # of a single document
    assert noise_rows(noise)[3][-1].endswith("% [–, –]")


def test_equal_scores_have_no_share_of_noise() -> None:
    noise = noise_of(table_of(np.full(shape(4), 0.5)))
    rows = noise_rows(noise)
    assert [line["noise"] for line in noise] == [None, None]
    assert rows[0] == (
        "all questions (4): oracle over rerankers",
        "samples",
        "0.500",
        "0.500",
        "0.500",
        "+0.000 [+0.000, +0.000]",
        "+0.000 [+0.000, +0.000]",
        "–",
    )
    assert len(rows[0]) == len(NOISE_HEADER)

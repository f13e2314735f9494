"""Paired differences of ROUGE-L between ways of choosing chunks, over all questions of the demo's label table.

python benchmarks/demo_intervals.py

Nothing is trained here, so all questions count; the agent is left out, since it has seen the training split.
"""

from __future__ import annotations

import numpy as np

from corag_agent.evaluation.comparison import TREE, compare
from corag_agent.evaluation.text_table import text_table
from data_prep.demo_corpus import LABELS
from data_prep.table import LabelTable

SAMPLES = 10_000
RIVALS = ("naive_rag", "best_single", "greedy_climb", "naive_matched")


def main() -> None:
    table = LabelTable.read(LABELS)
    rows = np.arange(len(table))
    methods = {(m.method, m.reranker): m for m in compare(table, rows)}
    drawn = np.random.default_rng(0).integers(0, len(rows), (SAMPLES, len(rows)))

    def difference(one: tuple[str, str], other: tuple[str, str]) -> str:
        gain = methods[one].rouge - methods[other].rouge
        low, high = np.quantile(gain[drawn].mean(axis=1), (0.025, 0.975))
        return f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]"

    cells = [
        (
            name,
            f"{methods[TREE, name].rouge.mean():.3f}",
            *(difference((TREE, name), (rival, name)) for rival in RIVALS),
        )
        for name in table.rerankers
    ]
    title = f"ROUGE-L of the tree search (c 2.4, λ 0.1, 10 iterations) over {len(rows)} questions, less that of"
    print(text_table(("reranker", "tree", *RIVALS), cells, f"{title} (95 % bootstrap):"))


if __name__ == "__main__":
    main()

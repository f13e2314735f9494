"""What the tree search gains over its rivals on a label table, with intervals, and how its settings matter.

    python benchmarks/gains.py data_prep/demo_corpus/labels.parquet
    python benchmarks/gains.py benchmarks/labels/all.parquet --plot benchmarks/gains.svg

Nothing is searched or answered: scores are looked up. Where the table names documents, every method also has its best
reranker (and the tree its best settings) chosen on four fifths of a data set's documents and reported on the fifth.
Rivals that depend on λ, the greedy climb and token-matched NaiveRAG, were labelled at the defaults: they are compared
with the tree at the defaults, since a difference in λ is none in searching.
The configuration agent is left out, since it has seen these questions; `benchmarks/agent.py` measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from labels import parts_of, read_arguments
from matplotlib.figure import Figure

from corag_agent.callbacks.figures import save_figure
from corag_agent.card import markdown_table
from corag_agent.evaluation.comparison import TREE, MethodScores, compare
from corag_agent.evaluation.intervals import paired_bootstrap, paired_ratio
from corag_agent.folds import fixed_of_other_folds, fold_of
from data_prep.table import LabelTable

FOLDS = 5
TUNED = "tree, best settings"
PRICED = ("greedy_climb", "naive_matched")  # rivals that look at λ, or at what the tree spends by it
Positions = npt.NDArray[np.intp]


def by_reranker(table: LabelTable, rows: Positions) -> dict[str, dict[str, MethodScores]]:
    """Each method with each reranker that the table has it with; the tree at the grid's defaults."""
    methods: dict[str, dict[str, MethodScores]] = {}
    for scores in compare(table, rows):
        if scores.reranker:
            methods.setdefault(scores.method, {})[scores.reranker] = scores
    return methods


def with_best_reranker(table: LabelTable, rows: Positions, folds: Positions) -> dict[str, MethodScores]:
    """Each method with the reranker that is best on the other folds; the tree also with the best settings there."""
    chosen = {}
    for method, each in by_reranker(table, rows).items():
        rouge, tokens = (np.stack([getattr(one, name) for one in each.values()]) for name in ("rouge", "tokens"))
        best = np.empty(len(rows), np.intp)
        for fold in set(folds):
            best[folds == fold] = rouge[:, folds != fold].mean(axis=1).argmax()
        at = (best, np.arange(len(rows)))
        chosen[method] = MethodScores(method, "", rouge[at], tokens[at])
    at = (rows, *fixed_of_other_folds(table, rows, folds).T)
    return chosen | {TUNED: MethodScores(TUNED, "", table.rouge()[at], table.tokens[at].astype(float))}


def gains_by_reranker(table: LabelTable) -> list[list[str]]:
    """The tree at the grid's defaults less each rival with the same reranker, over all questions."""
    methods, groups = by_reranker(table, np.arange(len(table))), drawn_by(table, np.arange(len(table)))
    rivals = [method for method in methods if method != TREE]
    lines = [["reranker", TREE, *rivals]]
    for reranker, tree in methods[TREE].items():
        own = [methods[rival].get(reranker) for rival in rivals]
        gains = [f"{paired_bootstrap(tree.rouge, one.rouge, groups=groups):+.3f}" if one else "–" for one in own]
        lines.append([reranker, f"{tree.rouge.mean():.3f}", *gains])
    return lines


def gains_of_part(table: LabelTable, rows: Positions, folds: Positions) -> list[list[str]]:
    """Every method with its best reranker, and what the tree gains over it."""
    methods, groups = with_best_reranker(table, rows, folds), drawn_by(table, rows)
    lines = [["method", "ROUGE-L", "tokens", "less it", "ROUGE-L", "in %", "tokens, in %"]]
    for method, other in methods.items():
        line = [method, f"{other.rouge.mean():.3f}", f"{other.tokens.mean():.0f}"]
        if method != TUNED:
            name = TREE if method in PRICED else TUNED
            tree = methods[name]
            gain = paired_bootstrap(tree.rouge, other.rouge, groups=groups)
            ratio = paired_ratio(tree.rouge, other.rouge, groups=groups)
            line += [name, f"{gain:+.3f}", f"{ratio:+.0%}", f"{tree.tokens.mean() / other.tokens.mean():.0%}"]
        lines.append(line + [""] * (len(lines[0]) - len(line)))
    return lines


def drawn_by(table: LabelTable, rows: Positions) -> Sequence[int] | None:
    """What the bootstrap draws: groups of documents, or questions where the table does not tell."""
    return None if table.groups is None else table.groups[rows].tolist()


def plot_settings(table: LabelTable, path: Path) -> None:
    """ROUGE-L and tokens against λ and c, the others at their defaults, a line for each reranker."""
    rouge, tokens = table.rouge().mean(axis=0), table.tokens.mean(axis=0)
    default = table.grid.index(table.grid.defaults)
    figure = Figure(figsize=(8, 5), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col", sharey="row")
    for column, (axis, name, label) in enumerate([(1, "cost_coefficient", "λ"), (0, "exploration", "c")]):
        at: list = [slice(None), *default]
        at[axis + 1] = slice(None)
        for row, (values, what) in enumerate([(rouge, "ROUGE-L"), (tokens, "tokens of the chosen chunks")]):
            panel = panels[row, column]
            for reranker, line in zip(table.rerankers, values[tuple(at)], strict=True):
                panel.plot(getattr(table.grid, name), line, marker="o", markersize=4, label=reranker)
            panel.grid(alpha=0.3)
            panel.spines[["top", "right"]].set_visible(False)
            if column == 0:
                panel.set_ylabel(what)
            if row == 1:
                panel.set_xlabel(f"{label} ({name})")
    panels[0, 0].legend(fontsize=8, frameon=False)
    save_figure(figure, path)


def main() -> None:
    table, path = read_arguments(__doc__)
    what = "questions" if table.groups is None else "groups of documents"
    point = ", ".join(f"{name} {value:g}" for name, value in table.grid.defaults._asdict().items())
    print(f"ROUGE-L of the tree ({point}) over {len(table)} questions, less each rival's; 95 %, drawn by {what}\n")
    header, *lines = gains_by_reranker(table)
    print(markdown_table(header, lines))
    if table.groups is not None:
        folds = fold_of(table, FOLDS)
        parts = parts_of(table)
        for name, rows in {"all": np.arange(len(table)), **parts}.items():
            usable = len(set(folds[rows])) > 1
            print(f"\n{name}: {len(rows)} questions{'' if usable else ', all in one fold'}\n")
            if usable:
                header, *lines = gains_of_part(table, rows, folds[rows])
                print(markdown_table(header, lines))
    if path:
        plot_settings(table, path)


if __name__ == "__main__":
    main()

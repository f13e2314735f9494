"""What the published label table holds: how the rerankers do, and which is best how often in each data set.

python benchmarks/labels.py benchmarks/labels/all.parquet --plot benchmarks/labels.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from corag_agent.callbacks.figures import save_figure
from corag_agent.card import markdown_table
from corag_agent.evaluation.comparison import compare
from corag_agent.evaluation.label_noise import NOISE_HEADER, noise_of, noise_rows
from data_prep.selection import BestLabels, choose_labels
from data_prep.splits import COMPOUND
from data_prep.table import LabelTable

COLOURS = ("#3b6fb6", "#d9822b", "#4f9d69", "#8a5fa8", "#b54a4a", "#6b7280")


def parts_of(table: LabelTable) -> dict[str, NDArray[np.intp]]:
    """Positions of the questions of each data set, compound ones apart."""
    names = np.array(part_names(table))
    return {name: np.flatnonzero(names == name) for name in sorted(set(names))}


def part_names(table: LabelTable) -> list[str]:
    """The data set of each question; compound ones have a name of their own."""
    return list(table.questions["domain"] + np.where(table.questions["kind"] == COMPOUND, ", compound", ""))


def best_rerankers(labels: BestLabels, rows: NDArray[np.intp]) -> dict[str, object]:
    """Questions, kept ones, and how many of these each reranker is best for."""
    kept = labels.reranker[rows[labels.kept[rows]]]
    shares = {r: f"{(kept == i).sum()} ({(kept == i).mean():.0%})" for i, r in enumerate(labels.rerankers)}
    return {"questions": len(rows), "kept": f"{len(kept)} ({len(kept) / len(rows):.0%})", **shares}


def reached(name: str, table: LabelTable, rows: NDArray[np.intp]) -> list[dict[str, object]]:
    """Mean ROUGE-L and prompt tokens of every method and reranker."""
    lines: dict[str, dict[str, object]] = {}
    for scores in compare(table, rows):
        line = lines.setdefault(scores.method, {"data": name, "method": scores.method})
        line[scores.reranker or "any"] = f"{scores.rouge.mean():.3f} ({scores.tokens.mean():.0f})"
    return list(lines.values())


def markdown(rows: list[dict[str, object]]) -> str:
    """A table; cells that a row lacks stay empty."""
    frame = pd.DataFrame(rows).fillna("").astype(str)
    return markdown_table(list(frame.columns), frame.to_numpy().tolist())


def plot(labels: BestLabels, parts: dict[str, NDArray[np.intp]], path: Path) -> None:
    """Stacked bars: share of the kept questions that each reranker is best for."""
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * len(parts)), layout="constrained")
    axes = figure.subplots()
    kept = {name: labels.reranker[rows[labels.kept[rows]]] for name, rows in parts.items()}
    names = [f"{name} ({len(kept[name])} of {len(rows)})" for name, rows in parts.items()]
    left = np.zeros(len(parts))
    for number, (reranker, colour) in enumerate(zip(labels.rerankers, COLOURS, strict=False)):
        widths = np.array([(best == number).mean() if len(best) else 0.0 for best in kept.values()])
        axes.barh(names, widths, left=left, color=colour, label=reranker)
        for place, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width > 0.06:
                axes.text(start + width / 2, place, f"{width:.0%}", ha="center", va="center", color="white", fontsize=8)
        left += widths
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the kept questions for which it is the best reranker")
    axes.legend(ncols=len(labels.rerankers), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def read_arguments(about: str | None) -> tuple[LabelTable, Path | None]:
    """The label table, and where to draw to."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    return LabelTable.read(arguments.labels), arguments.plot


def main() -> None:
    table, path = read_arguments(__doc__)
    labels, parts = choose_labels(table), parts_of(table)
    print("Best reranker of the questions that pass the 10 % filter:\n")
    print(markdown([{"data": name, **best_rerankers(labels, rows)} for name, rows in parts.items()]))
    print("\nROUGE-L (prompt tokens) over all questions, settings at the grid's defaults:\n")
    print(markdown([line for name, rows in parts.items() for line in reached(name, table, rows)]))
    if table.repeats is not None:
        print("\nHow much of the oracles' lead is noise (see docs/labelling.md):\n")
        whole = {"all": np.arange(len(table))}
        print(markdown_table(NOISE_HEADER, noise_rows(noise_of(table, {**whole, **parts}))))
    if path:
        plot(labels, parts, path)


if __name__ == "__main__":
    main()

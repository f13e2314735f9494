"""What the published label tables hold: how the rerankers do, and which is best how often in each data set.

python benchmarks/labels.py benchmarks/labels/*.parquet --plot benchmarks/labels.svg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from corag_agent.callbacks.figures import save_figure
from corag_agent.evaluation.comparison import compare
from data_prep.selection import choose_labels
from data_prep.table import LabelTable

COLOURS = ("#3b6fb6", "#d9822b", "#4f9d69", "#8a5fa8", "#b54a4a", "#6b7280")


def tables_of(paths: list[Path]) -> list[tuple[str, LabelTable]]:
    """The tables by data set; the parts of one that lie in files of their own are left out."""
    parts = (".questions", ".rivals", ".repeats")
    return [(path.stem, LabelTable.read(path)) for path in paths if not path.stem.endswith(parts)]


def best_rerankers(name: str, table: LabelTable) -> dict[str, object]:
    """One line: questions, kept ones, and the share of these that each reranker is best for."""
    labels = choose_labels(table)
    kept = labels.reranker[labels.kept]
    shares = {r: f"{(kept == i).sum()} ({(kept == i).mean():.0%})" for i, r in enumerate(table.rerankers)}
    return {"data": name, "questions": len(table), "kept": f"{len(kept)} ({len(kept) / len(table):.0%})", **shares}


def reached(name: str, table: LabelTable) -> list[dict[str, object]]:
    """Mean ROUGE-L and prompt tokens of every method and reranker."""
    found = compare(table, np.arange(len(table)))
    lines: dict[str, dict[str, object]] = {}
    for scores in found:
        line = lines.setdefault(scores.method, {"data": name, "method": scores.method})
        line[scores.reranker or "any"] = f"{scores.rouge.mean():.3f} ({scores.tokens.mean():.0f})"
    return list(lines.values())


def markdown(rows: list[dict[str, object]]) -> str:
    """A table; cells that a row lacks stay empty."""
    frame = pd.DataFrame(rows).fillna("")
    head = [str(column) for column in frame.columns]
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in frame.to_numpy())]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(tables: list[tuple[str, LabelTable]], path: Path) -> None:
    """Stacked bars: share of the kept questions that each reranker is best for."""
    figure = Figure(figsize=(7.2, 0.9 + 0.45 * len(tables)), layout="constrained")
    axes = figure.subplots()
    names = [f"{name} ({int(choose_labels(table).kept.sum())} of {len(table)})" for name, table in tables]
    left = np.zeros(len(tables))
    rerankers = tables[0][1].rerankers
    for reranker, colour in zip(rerankers, COLOURS, strict=False):
        widths = []
        for _, table in tables:
            labels = choose_labels(table)
            kept = labels.reranker[labels.kept]
            widths.append((kept == table.rerankers.index(reranker)).mean() if len(kept) else 0.0)
        axes.barh(names, widths, left=left, color=colour, label=reranker)
        for place, (start, width) in enumerate(zip(left, widths, strict=True)):
            if width > 0.06:
                axes.text(start + width / 2, place, f"{width:.0%}", ha="center", va="center", color="white", fontsize=8)
        left += widths
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the kept questions for which it is the best reranker")
    axes.legend(ncols=len(rerankers), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    tables = tables_of(arguments.labels)
    print("Best reranker of the questions that pass the 10 % filter:\n")
    print(markdown([best_rerankers(name, table) for name, table in tables]))
    print("\nROUGE-L (prompt tokens) over all questions, settings at the grid's defaults:\n")
    print(markdown([line for name, table in tables for line in reached(name, table)]))
    if arguments.plot:
        plot(tables, arguments.plot)


if __name__ == "__main__":
    main()

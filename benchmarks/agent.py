"""The configuration agent against its rivals, out of fold over a label table.

    python benchmarks/agent.py ablation benchmarks/labels/all.parquet --seeds 5 > runs/agent.md
    python benchmarks/agent.py curve benchmarks/labels/all.parquet --plot benchmarks/agent_curve.svg

`ablation` cross-validates by document (an article's languages together) over several seeds: every question is tested
once a seed, by something that has not seen its document. Differences are against the best fixed configuration, chosen
inside the training folds, with paired bootstrap intervals over questions, and over documents beside them. `curve`
trains an agent with soft targets on growing numbers of training questions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from corag_agent.callbacks.figures import save_figure
from corag_agent.card import markdown_table
from corag_agent.evaluation.cross_validation import Choices, Chooser, Fold, agent_chooser, fixed_chooser, out_of_fold
from corag_agent.evaluation.intervals import Interval, paired_bootstrap
from data_prep.selection import best_fixed, choose_labels
from data_prep.table import LabelTable

Values = NDArray[np.float64]

STATISTICS = {"extra_inputs": ["statistics"]}
FUSED = {"extra_inputs": ["chunk_mean", "statistics"]}
REGRET_ONLY = {"weight_contrastive": 0.0, "weight_classification": 0.0, "weight_regression": 0.0, "weight_regret": 1.0}
ALL = {"train_on": "all"}
FIXED = "best fixed configuration"
SOFT = {"target_temperature": 0.1, **ALL}


@dataclass(frozen=True)
class Contender:
    """A line of the table."""

    name: str
    chooser: Chooser


def contenders(quick: bool) -> list[Contender]:
    """Everything that is compared; `quick` leaves the networks out."""
    rivals = [
        Contender(FIXED, fixed_chooser),
        Contender("best fixed configuration of the train split", of_train),
        Contender("best fixed configuration of the domain", by_domain),
        Contender("k nearest neighbours", nearest_neighbours),
        Contender("k nearest neighbours, with statistics", lambda fold: nearest_neighbours(fold, statistics=True)),
        Contender("logistic regression", logistic_regression),
        Contender("logistic regression, with statistics", lambda fold: logistic_regression(fold, statistics=True)),
        Contender("two coarse classes", lambda fold: coarse_classes(fold, 2)),
        Contender("three coarse classes", lambda fold: coarse_classes(fold, 3)),
        Contender("five coarse classes", lambda fold: coarse_classes(fold, 5)),
        Contender("three coarse classes, with statistics", lambda fold: coarse_classes(fold, 3, statistics=True)),
        Contender("outcomes of three coarse classes, ridge", lambda fold: ridge_outcomes(fold, 3)),
        Contender("outcomes of three, ridge, with statistics", lambda fold: ridge_outcomes(fold, 3, statistics=True)),
    ]
    networks: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("agent, the paper's", {}, {}),
        ("without contrastive loss", {}, {"weight_contrastive": 0.0}),
        ("without regression (settings by chance)", {}, {"weight_regression": 0.0}),
        ("classification only (the paper's first try)", {}, {"weight_contrastive": 0.0, "weight_regression": 0.0}),
        ("all pairs of a batch", {}, {"contrast": "all"}),
        ("balanced classes", {"balance": True}, {"balance_classes": True}),
        ("heads per reranker", {}, {"settings_heads": "per_reranker"}),
        ("soft targets, all questions", SOFT, {}),
        ("regret loss beside the three", ALL, {"weight_regret": 5.0}),
        ("regret loss alone", ALL, REGRET_ONLY),
        ("regret loss alone, heads per reranker", ALL, {**REGRET_ONLY, "settings_heads": "per_reranker"}),
        ("regret loss alone, with statistics", {**ALL, **STATISTICS}, REGRET_ONLY),
        ("regret loss alone, with statistics and chunks", {**ALL, **FUSED}, REGRET_ONLY),
        ("soft targets, with statistics", {**SOFT, **STATISTICS}, {}),
    ]
    return rivals if quick else rivals + [Contender(name, agent_chooser(data, model)) for name, data, model in networks]


def of_train(fold: Fold) -> Choices:
    """What an agent's threshold is chosen against: the best fixed configuration of the train split alone."""
    return np.tile(best_fixed(fold.table, fold.splits["train"]), (len(fold.splits["test"]), 1)).astype(np.intp)


def by_domain(fold: Fold) -> Choices:
    """The best fixed configuration of each test question's domain, and of all where the domain was not seen."""
    domains = fold.table.questions["domain"].to_numpy()
    chosen = []
    for row in fold.splits["test"]:
        own = fold.seen[domains[fold.seen] == domains[row]]
        chosen.append(best_fixed(fold.table, own if len(own) else fold.seen))
    return np.array(chosen, dtype=np.intp)


def inputs_of(fold: Fold, statistics: bool) -> Values:
    """The query embeddings, with the retrieval statistics beside them if wanted, standardised on the seen questions."""
    table = fold.table
    if not statistics:
        return table.embeddings.astype(np.float64)
    if table.statistics is None:
        raise SystemExit("the label table has no retrieval statistics; run `corag label` again to add them")
    scaled = StandardScaler().fit(table.statistics[fold.seen]).transform(table.statistics)
    return np.concatenate([table.embeddings, scaled / np.sqrt(scaled.shape[1])], axis=1)


def nearest_neighbours(fold: Fold, statistics: bool = False) -> Choices:
    """The configuration that is best for the nearest training questions; how many is chosen on the validation split."""
    inputs, rouge = inputs_of(fold, statistics), fold.table.rouge()

    def choose(rows: NDArray[np.intp], known: NDArray[np.intp], count: int) -> Choices:
        near = NearestNeighbors(n_neighbors=min(count, len(known))).fit(inputs[known])
        found = known[near.kneighbors(inputs[rows], return_distance=False)]
        return np.array([best_fixed(fold.table, own) for own in found], dtype=np.intp)

    train, val = fold.splits["train"], fold.splits["val"]
    reached = {count: rouge[(val, *choose(val, train, count).T)].mean() for count in (5, 10, 20, 40, 80, 160)}
    return choose(fold.splits["test"], fold.seen, max(reached, key=lambda count: reached[count]))


def logistic_regression(fold: Fold, statistics: bool = False) -> Choices:
    """The most probable best reranker, at the settings that are best for it in training; strength by validation."""
    inputs, table = inputs_of(fold, statistics), fold.table
    labels = choose_labels(table)

    def choose(rows: NDArray[np.intp], known: NDArray[np.intp], strength: float) -> Choices:
        kept = known[labels.kept[known]]
        classes = np.unique(labels.reranker[kept])
        if len(classes) < 2:
            return np.tile(best_fixed(table, known), (len(rows), 1)).astype(np.intp)
        model = LogisticRegression(C=strength, max_iter=2_000).fit(inputs[kept], labels.reranker[kept])
        settings = {reranker: best_settings_of(table, known, reranker) for reranker in classes}
        return np.array([settings[reranker] for reranker in model.predict(inputs[rows])], dtype=np.intp)

    train, val = fold.splits["train"], fold.splits["val"]
    strengths = (0.1, 1.0, 10.0, 100.0)
    reached = {s: table.rouge()[(val, *choose(val, train, s).T)].mean() for s in strengths}
    return choose(fold.splits["test"], fold.seen, max(reached, key=lambda strength: reached[strength]))


def cover(table: LabelTable, rows: NDArray[np.intp], count: int) -> Choices:
    """The few configurations that a perfect chooser among them would reach most with, added greedily, `[count, 4]`."""
    shape = table.rouge().shape[1:]
    flat = table.rouge()[rows].reshape(len(rows), -1)
    chosen: list[int] = []
    reached = np.full(len(rows), -np.inf)
    for _ in range(count):
        means = np.maximum(flat, reached[:, None]).mean(axis=0).round(9)
        chosen.append(int(means.argmax()))
        reached = np.maximum(reached, flat[:, chosen[-1]])
    return np.stack(np.unravel_index(chosen, shape), axis=1).astype(np.intp)


def coarse_classes(fold: Fold, count: int, statistics: bool = False) -> Choices:
    """Logistic regression on which of a few configurations is best, a question counting by what is at stake for it."""

    def train(inputs: Values, outcomes: Values, strength: float) -> Callable[[Values], NDArray[np.intp]]:
        stakes = outcomes.max(axis=1) - outcomes.mean(axis=1)
        told = stakes > 1e-9
        best = outcomes.argmax(axis=1)
        if len(np.unique(best[told])) < 2:
            return lambda asked: np.full(len(asked), int(outcomes.mean(axis=0).argmax()))
        model = LogisticRegression(C=1 / strength, max_iter=2_000).fit(inputs[told], best[told], stakes[told])
        return lambda asked: np.asarray(model.predict(asked), dtype=np.intp)

    return among_few(fold, count, statistics, train)


def ridge_outcomes(fold: Fold, count: int, statistics: bool = False) -> Choices:
    """Ridge regression of the ROUGE-L of a few configurations, of which the one of the highest prediction is taken."""

    def train(inputs: Values, outcomes: Values, strength: float) -> Callable[[Values], NDArray[np.intp]]:
        model = Ridge(alpha=strength).fit(inputs, outcomes)
        return lambda asked: model.predict(asked).argmax(axis=1).astype(np.intp)

    return among_few(fold, count, statistics, train)


# From inputs `[m, d]`, outcomes `[m, count]` and a strength of regularisation to what chooses for other inputs.
Learner = Callable[[Values, Values, float], Callable[[Values], NDArray[np.intp]]]


def among_few(fold: Fold, count: int, statistics: bool, learner: Learner) -> Choices:
    """A learner's choice among the configurations that cover the training questions best; strength by validation."""
    inputs, table = inputs_of(fold, statistics), fold.table

    def choose(rows: NDArray[np.intp], known: NDArray[np.intp], strength: float) -> Choices:
        few = cover(table, known, count)
        outcomes = table.rouge()[(known[:, None], *few.T[:, None])]
        return few[learner(inputs[known], outcomes, strength)(inputs[rows])]

    train, val = fold.splits["train"], fold.splits["val"]
    strengths = (0.01, 0.1, 1.0, 10.0, 100.0)
    reached = {s: table.rouge()[(val, *choose(val, train, s).T)].mean() for s in strengths}
    return choose(fold.splits["test"], fold.seen, max(reached, key=lambda strength: reached[strength]))


def best_settings_of(table: LabelTable, rows: NDArray[np.intp], reranker: int) -> tuple[int, int, int, int]:
    """The best fixed settings of one reranker."""
    means = table.rouge()[rows, reranker].mean(axis=0).round(9)
    point = np.unravel_index(int(means.argmax()), means.shape)
    return reranker, int(point[0]), int(point[1]), int(point[2])


def ablation(table: LabelTable, arguments: argparse.Namespace) -> None:
    """Prints the table of all contenders, over all questions and without Chinese."""
    seeds = range(arguments.seeds)
    reached: dict[str, tuple[Values, Values]] = {}
    for contender in contenders(arguments.quick):
        wanted = not arguments.only or any(part in contender.name for part in arguments.only)
        if not wanted and contender.name != FIXED:  # what differences are against
            continue
        reached[contender.name] = out_of_fold(arguments.labels, table, contender.chooser, arguments.folds, seeds)
        print(f"{contender.name}: {reached[contender.name][0].mean():.4f}", file=sys.stderr, flush=True)
    parts = {"all questions": np.ones(len(table), bool)}
    chinese = (table.questions["language"] == "zh").to_numpy()
    if chinese.any() and not chinese.all():
        parts["without Chinese"] = ~chinese
    for name, part in parts.items():
        print(f"\n### {name} ({part.sum()}; {arguments.folds} folds by document, {len(seeds)} seeds)\n")
        print(results(table, reached, part))


def results(table: LabelTable, reached: dict[str, tuple[Values, Values]], part: NDArray[np.bool_]) -> str:
    """One table in Markdown."""
    fixed = reached[FIXED][0][:, part].mean(axis=0)
    whole = table.rouge()[part]
    assert table.groups is not None, "folds are made by them"
    documents = table.groups[part].tolist()
    oracles = {
        "rerankers": whole[(slice(None), slice(None), *table.grid.index(table.grid.defaults))].max(axis=1).mean(),
        "grid": whole.reshape(len(whole), -1).max(axis=1).mean(),
    }
    rows = []
    for name, (rouge, tokens) in reached.items():
        own = rouge[:, part].mean(axis=0)  # of each question, over seeds
        leads = ["", ""]
        if name != FIXED:
            leads = [f"{paired_bootstrap(own, fixed, groups=groups):+.4f}" for groups in (None, documents)]
        spread = rouge[:, part].mean(axis=1)
        closed = [f"{(own.mean() - fixed.mean()) / (oracle - fixed.mean()):.1%}" for oracle in oracles.values()]
        rows.append(
            (name, f"{own.mean():.4f}", f"{spread.std():.4f}", *leads, *closed, f"{tokens[:, part].mean():.0f}")
        )
    for name, value in oracles.items():
        rows.append((f"oracle over {'all grid points' if name == 'grid' else name}", f"{value:.4f}", *[""] * 6))
    head = (
        "",
        "ROUGE-L",
        "sd of seeds",
        "above best fixed",
        "drawn by document",
        "closed (rerankers)",
        "closed (grid)",
        "tokens",
    )
    return markdown_table(head, rows)


def curve(table: LabelTable, arguments: argparse.Namespace) -> None:
    """Prints what an agent with soft targets reaches with growing numbers of training questions, and draws it."""
    seeds = range(arguments.seeds)
    fixed, _ = out_of_fold(arguments.labels, table, fixed_chooser, arguments.folds, seeds)
    rows, points = [], []
    most = int(len(table) * (arguments.folds - 2) / arguments.folds)
    for limit in [*(n for n in (25, 50, 100, 200, 400, 800, 1600) if n < 0.9 * most), most]:
        chooser = agent_chooser({**SOFT, "limit": limit})
        rouge, _ = out_of_fold(arguments.labels, table, chooser, arguments.folds, seeds)
        lead = paired_bootstrap(rouge.mean(axis=0), fixed.mean(axis=0))
        rows.append((str(limit), f"{rouge.mean():.4f}", f"{lead:+.4f}"))
        points.append((limit, lead))
        print(f"{limit}: {rouge.mean():.4f}", file=sys.stderr, flush=True)
    print(markdown_table(("training questions", "ROUGE-L", "above the best fixed configuration"), rows))
    if arguments.plot:
        draw_curve(points, arguments.plot)


def draw_curve(points: list[tuple[int, Interval]], path: Path) -> None:
    """The lead over the best fixed configuration against the number of training questions."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    sizes, leads = [size for size, _ in points], [lead for _, lead in points]
    errors = [[lead.mean - lead.low for lead in leads], [lead.high - lead.mean for lead in leads]]
    axes.errorbar(sizes, [lead.mean for lead in leads], errors, marker="o", capsize=3, color="#3b6fb6")
    axes.axhline(0, color="#6b7280", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("questions to train on")
    axes.set_ylabel("ROUGE-L above the best\nfixed configuration")
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


COMMANDS: dict[str, Callable[[LabelTable, argparse.Namespace], None]] = {"ablation": ablation, "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("labels")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="Leave the networks out.")
    parser.add_argument("--plot", type=Path, help="Of the curve.")
    parser.add_argument("--only", nargs="*", help="Contenders whose names hold one of these words.")
    arguments = parser.parse_args()
    COMMANDS[arguments.what](LabelTable.read(Path(arguments.labels)), arguments)


if __name__ == "__main__":
    main()

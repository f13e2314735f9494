"""From label tables to the directory that `load_reranker("composite")` loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from corag_agent.composite.card import card_of
from corag_agent.composite.examples import Example, examples_of
from corag_agent.composite.fitting import STRENGTH, fit_composite
from corag_agent.composite.sources import Source
from corag_agent.composite.validation import Chooser, compare_choosers, groups_of, held_out_predictions
from corag_agent.seen import Seen
from corag_search.rerankers.base import Reranker
from corag_search.rerankers.composite_features import feature_names
from corag_search.rerankers.composite_model import COMPOSITE, CompositeModel, PartIdentity, read_composite
from corag_search.weights_directory import write_weights

FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class TrainedComposite:
    """A composite and what it was measured to be worth.

    Attributes:
        model: Trained on all questions.
        parts: Who they are, in the order of the features.
        choosers: It, held out by document, beside others; on the questions of all tables.
        by_source: The same by table, where there are several.
        questions: That it was trained on.
        orders: With an outcome, of all questions.
        groups: Of questions that share documents.
    """

    model: CompositeModel
    parts: tuple[PartIdentity, ...]
    choosers: list[Chooser]
    by_source: Mapping[str, list[Chooser]]
    questions: int
    orders: int
    groups: int


def train_composite(
    sources: Sequence[Source],
    parts: Sequence[Reranker],
    identities: Sequence[PartIdentity],
    *,
    folds: int = FOLDS,
    strength: float = STRENGTH,
    seed: int = 0,
    progress: Callable[[int], Any] = lambda count: None,
) -> TrainedComposite:
    """Score all orders, cross-validate by document, and fit on all that is given.

    Args:
        sources: At least one; their names differ.
        parts: The rerankers, loaded.
        identities: Who they are.
        folds: Of the cross-validation.
        strength: As of `fit_composite`.
        seed: Of the folds and the intervals.
        progress: Told after each question that one more is scored.

    Raises:
        InputError: As `examples_of` and `held_out_predictions`.
        RerankerError: A part failed.
    """
    examples: list[Example] = []
    for source in sources:
        for example in examples_of(source, parts):
            examples.append(example)
            progress(1)
    groups = groups_of(examples)
    predictions = held_out_predictions(examples, groups, folds, strength, seed)
    names = [part.name for part in parts]

    def compared(rows: Sequence[int]) -> list[Chooser]:
        return compare_choosers([examples[i] for i in rows], [predictions[i] for i in rows], names, groups[rows], seed)

    by_source = {source.name: [i for i, e in enumerate(examples) if e.source == source.name] for source in sources}
    return TrainedComposite(
        model=fit_composite(examples, strength),
        parts=tuple(identities),
        choosers=compared(range(len(examples))),
        by_source={name: compared(rows) for name, rows in by_source.items()} if len(sources) > 1 else {},
        questions=len(examples),
        orders=sum(len(example.orders) for example in examples),
        groups=int(groups.max()) + 1,
    )


def write_composite(
    trained: TrainedComposite,
    out: Path,
    labels: Mapping[str, Mapping[str, Any]],
    settings: Mapping[str, Any],
    seen: Seen,
) -> None:
    """Writes weights, configuration and card, all or nothing; the same composite gives the same bytes.

    Args:
        trained: What to write.
        out: Directory to make; an earlier composite there is replaced.
        labels: Fingerprint of each table, by name.
        settings: Folds, strength and seed of the training.
        seen: What it was trained on.

    Raises:
        InputError: `out` is anything but an earlier composite.
    """
    names = feature_names([part.name for part in trained.parts])
    config = {
        "parts": [asdict(part) for part in trained.parts],
        "features": list(names),
        "training": {"questions": trained.questions, "orders": trained.orders, "groups": trained.groups, **settings},
        "held_out": {
            chooser.name: {"rougeL": float(chooser.rouge.mean()), "tokens": float(chooser.cost.mean())}
            for chooser in trained.choosers
        },
        "labels": dict(labels),
        "seen": seen.to_dict(),
    }
    weights = save(dict(sorted(trained.model.tensors().items())))
    write_weights(out, COMPOSITE, weights, config, card_of(trained, labels, settings, seen), check=read_composite)

"""The card of a composite reranker, and its tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from corag_agent.card import markdown_table
from corag_agent.composite.validation import Chooser
from corag_search.rerankers.composite_features import feature_names

if TYPE_CHECKING:
    from corag_agent.composite.training import TrainedComposite
    from corag_agent.seen import Seen

HEADER = ("chosen by", "ROUGE-L", "tokens", "rank correlation", "composite above it by")


def rows_of(choosers: Sequence[Chooser]) -> list[tuple[str, ...]]:
    """Cells of a table under `HEADER`."""
    rows: list[tuple[str, ...]] = []
    for number, chooser in enumerate(choosers):
        lead = chooser.lead
        ends = "" if np.isnan(lead.low) else f" ({lead.low:+.3f} to {lead.high:+.3f})"  # NaN for a single group
        rows.append(
            (
                chooser.name,
                f"{chooser.rouge.mean():.3f}",
                f"{chooser.cost.mean():.0f}",
                "–" if np.isnan(chooser.correlation) else f"{chooser.correlation:.3f}",
                f"{lead.mean:+.3f}{ends}" if number else "–",
            )
        )
    return rows


def weight_rows(trained: TrainedComposite) -> list[tuple[str, str]]:
    """Features with their weights, the heaviest first."""
    names = feature_names([part.name for part in trained.parts])
    weights = trained.model.weights
    return [(names[at], f"{weights[at]:+.4f}") for at in np.argsort(-np.abs(weights), kind="stable").tolist()]


def card_of(
    trained: TrainedComposite, labels: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], seen: Seen
) -> str:
    """The card as Markdown; arguments as of `write_composite`."""
    parts = [
        (f"`{part.name}`", json.dumps(dict(part.options)) if part.options else "–", part.fingerprint or "–")
        for part in trained.parts
    ]
    tables = [markdown_table(HEADER, rows_of(trained.choosers))]
    tables += [
        f"On `{name}` alone:\n\n{markdown_table(HEADER, rows_of(own))}" for name, own in trained.by_source.items()
    ]
    fingerprints = json.dumps(dict(labels), indent=2, ensure_ascii=False, sort_keys=True)
    return f"""---
library_name: corag
tags: [retrieval-augmented-generation, reranking, corag]
---

# Composite reranker

Predicts the ROUGE-L of the answer from a chunk combination, from what its parts say of it.

```python
from corag_search import load_reranker

reranker = load_reranker("composite", path="path/of/this/directory")
```

## Parts

{markdown_table(("reranker", "options", "fingerprint"), parts)}

## Training

{trained.questions} questions of the splits {", ".join(seen.splits)}, of {trained.groups} groups that share no document,
{trained.orders} orders with an outcome; {", ".join(f"{name} {value}" for name, value in settings.items())}.
ROUGE-L where all features are at their means: {trained.model.bias:.3f}. For one standard deviation of each:

{markdown_table(("feature", "weight"), weight_rows(trained))}

## Held out by document

What would be chosen among the orders that have an outcome in the labels, by a composite that saw no question about the
same documents. Intervals: 95 %, bootstrap over groups of documents.

{(chr(10) * 2).join(tables)}

## Limits

It knows the language model, prompt and chunk size of its labels, and orders that some reranker's search or a rival
chose. A search that it guides meets others, where the prediction is an extrapolation: label with it as one of the
rerankers, and train again. The price is among what it learned: search with λ = 0.

What the labels were made with:

```json
{fingerprints}
```
"""

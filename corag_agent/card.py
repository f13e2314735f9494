"""The model card of an exported agent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from corag_search.agent_format import CHUNK_MEAN, CONFIG_FILE, EMBEDDING

CARD_FILE = "README.md"


def model_card(config: Mapping[str, Any], licence: str) -> str:
    """The card, in Markdown with the Hub's front matter.

    Args:
        config: The checkpoint's `config.json`.
        licence: Of the weights, as an SPDX name in lower case.
    """
    training = config["training"]
    ranges = "\n".join(f"- `{name}`: {low:g} to {high:g}" for name, (low, high) in config["ranges"].items())
    measured = "\n".join(f"| {name} | {value:.4g} |" for name, value in config["metrics"].items())
    results = f"| metric | value |\n| --- | --- |\n{measured}" if measured else "None were given at export."
    labels = json.dumps(config["labels"], indent=2, ensure_ascii=False, sort_keys=True)
    fused = len(config["inputs"]) > 1
    return f"""---
license: {licence}
library_name: corag
tags: [retrieval-augmented-generation, reranking, corag]
---

# Configuration agent

Chooses, from the embedding of a query, which reranker scores chunk combinations and how the policy tree is searched
(CORAG, arXiv:2411.00744).

```python
from corag_search import ConfigurationAgent

agent = ConfigurationAgent.load("path/of/this/directory")
agent.predict(query_embedding{", features" if fused else ""})
```

## Input

{_inputs(config)}

## Output

One of {len(config["rerankers"])} rerankers ({", ".join(f"`{name}`" for name in config["rerankers"])}) with
probabilities, and settings within:

{ranges}

{_confidence(config)}

## Training

Layers {" → ".join(str(width) for width in config["layers"])}, {training["epochs"]} epochs, {training["steps"]} steps,
Lightning {training["lightning"]}, torch {training["torch"]}. All hyperparameters are in `{CONFIG_FILE}`.
What the labels were made with:

```json
{labels}
```

## Results

`val/`: on the validation split, on which this epoch, the temperature and the threshold were chosen.

{results}

## Limits

It knows the rerankers above, at the budget, chunk size, prompt and LLM that the labels were made with, and queries
like those it was trained on.

## Licence

`{licence}`
"""


def _inputs(config: Mapping[str, Any]) -> str:
    embedder, names = config["embedder"], config["inputs"]
    lines = [
        f"Embeddings of {embedder['dimension']} numbers by `{embedder['name']}` (fingerprint "
        f"`{embedder['fingerprint']}`).",
        "Those of any other embedder are meaningless to it.",
    ]
    fused = [f"`{name}`" for name in names if name != EMBEDDING]
    if fused:
        what = "the mean embedding of the retrieved chunks" if CHUNK_MEAN in names else "what retrieval gave"
        lines.append(f"Beside them it sees {what}, in all {', '.join(fused)}, as `query_features` computes them.")
    return "\n".join(lines)


def _confidence(config: Mapping[str, Any]) -> str:
    temperature, fallback = config["calibration"]["temperature"], config["fallback"]
    settings = ", ".join(
        f"{name} {value:g}"
        for name, value in fallback.items()
        if isinstance(value, int | float) and name != "threshold"
    )
    threshold = fallback["threshold"]
    when = "for every query" if threshold > 1 else f"where the confidence is below {threshold:.3g}"
    return (
        f"The probabilities are calibrated on the validation split (temperature {temperature:.3g}). The fallback, "
        f"the configuration\nthat was best for the training questions as a whole (`{fallback['reranker']}`, "
        f"{settings}), is used {when}:\nthe threshold with the greatest mean ROUGE-L on the validation split."
    )

"""The model card of an exported agent."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from corag_search.agent_format import CHUNK_MEAN, EMBEDDING, ONNX_FILE
from corag_search.weights_directory import CONFIG_FILE


def model_card(config: Mapping[str, Any], licence: str, further: Container[str] = ()) -> str:
    """The card, in Markdown with the Hub's front matter.

    Args:
        config: The checkpoint's `config.json`.
        licence: Of the weights, as an SPDX name in lower case.
        further: Names of the files beside weights, configuration and card.
    """
    training = config["training"]
    ranges = "\n".join(f"- `{name}`: {low:g} to {high:g}" for name, (low, high) in config["ranges"].items())
    measured = markdown_table(
        ("metric", "value"), [(name, f"{value:.4g}") for name, value in config["metrics"].items()]
    )
    results = [_evaluation(config["evaluation"])] if "evaluation" in config else []
    if config["metrics"]:
        results.append(
            "`val/`: on the validation split, on which this epoch, the temperature and the threshold were chosen; "
            f"`rougeL`\nfollows the agent always, `fallback_rougeL` as it is used.\n\n{measured}"
        )
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

agent = ConfigurationAgent.from_pretrained("path/of/this/directory")  # or OWNER/NAME on a model hub
agent.predict(query_embedding{", features" if fused else ""})
```

## Input

{_inputs(config)}

## Output

One of {len(config["rerankers"])} rerankers ({", ".join(f"`{name}`" for name in config["rerankers"])}) with
probabilities, and settings within:

{ranges}

{_confidence(config)}
{_ONNX if ONNX_FILE in further else ""}
## Training

Layers {" → ".join(str(width) for width in config["layers"])}, {training["epochs"]} epochs, {training["steps"]} steps,
Lightning {training["lightning"]}, torch {training["torch"]}. All hyperparameters are in `{CONFIG_FILE}`.
What the labels were made with:

```json
{labels}
```

## Results

{(chr(10) * 2).join(results) or "None were given at export."}

## Limits

It knows the rerankers above, at the budget, chunk size, prompt and LLM that the labels were made with, and queries
like those it was trained on.

## Licence

`{licence}`
"""


_ONNX = f"""
## ONNX

`{ONNX_FILE}`: the same network. `input` is float32 `[batch, inputs]`, the parts of the input one after another;
`probabilities` is `[batch, rerankers]`, `settings` `[batch, 3]`: iterations (to be rounded), cost_coefficient and
exploration of the most probable reranker. The fallback is in the metadata, for the caller to apply.
"""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as text, without a line break at its end."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, ["---"] * len(header), *rows))


def _evaluation(evaluation: Mapping[str, Any]) -> str:
    rows = []
    for method in evaluation["methods"]:
        above = "–"
        if method["agent_above"] is not None:
            mean, low, high = method["agent_above"]
            above = f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
        name = f"`{method['reranker']}`" if method["reranker"] else "–"
        rows.append((method["method"], name, f"{method['rougeL']:.3f}", f"{method['prompt_tokens']:.0f}", above))
    count, split = evaluation["questions"], evaluation["split"]
    share, division = evaluation["fallback_share"], evaluation.get("division")
    fold = f" (fold {division['fold']} of {division['folds']}, by {division['split_by']})" if division else ""
    table = markdown_table(("method", "reranker", "ROUGE-L", "prompt tokens", "agent above it"), rows)
    questions = "question" if count == 1 else "questions"
    return (
        f"On the {count} {questions} of the {split} split{fold}, looked up in the label table; the agent fell back for "
        f"{share:.0%}.\nIntervals: 95 %, paired bootstrap over groups of questions that share no document.\n\n{table}"
    )


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
    probabilities = (
        "The probabilities are not calibrated (temperature 1), for want of validation questions."
        if temperature == 1
        else f"The probabilities are calibrated on the validation split (temperature {temperature:.3g})."
    )
    return (
        f"{probabilities}\n"
        "The fallback, the configuration that was best for the training and validation questions as a whole\n"
        f"(`{fallback['reranker']}`, {settings}), is used {_when(threshold)}."
    )


def _when(threshold: float) -> str:
    """For which queries the fallback is used, and why."""
    better = "by two standard errors, that the agent does better than\nwhat was best for training"
    if threshold > 1:
        return f"for every query:\nat no confidence did the validation split show, {better}"
    if threshold > 0:
        return (
            f"where the confidence is below {threshold:.3g}:\nonly above that did the validation split show, {better}"
        )
    return "for no query,\nsince there were no validation questions to choose a least confidence on"

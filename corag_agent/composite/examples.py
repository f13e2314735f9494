"""What a composite is trained on: every order of a question that has an outcome, scored by all parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from corag_agent.composite.sources import Source
from corag_search.chunk import Chunk
from corag_search.errors import InputError
from corag_search.rerankers.base import Reranker
from corag_search.rerankers.composite_features import CombinationFeatures, Order
from data_prep.grid import GridPoint

# Benefits differ between machines and batches by the precision of the parts (bfloat16: 0.002), not by so much.
_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One question.

    Attributes:
        source: Name of the table it comes from.
        documents: Of its gold passages.
        orders: The distinct orders with an outcome, n, sorted.
        cost: Tokens of each, `[n]`.
        rouge: ROUGE-L of the answer from each, `[n]`.
        scores: Each part's benefit, `[n, parts]`.
        features: As `CombinationFeatures` gives them, `[n, features]`.
        searched: What each reranker's tree search chose at the default settings: row by name.
    """

    source: str
    documents: tuple[str, ...]
    orders: tuple[Order, ...]
    cost: npt.NDArray[np.int64]
    rouge: npt.NDArray[np.float64]
    scores: npt.NDArray[np.float64]
    features: npt.NDArray[np.float64]
    searched: Mapping[str, int]


def examples_of(source: Source, parts: Sequence[Reranker]) -> Iterator[Example]:
    """The questions of a source, in its table's order, as they are scored.

    Args:
        source: A table with its texts.
        parts: Rerankers of the table.

    Yields:
        An `Example` for each question.

    Raises:
        InputError: Costs or benefits are not those of the table, so that store or rerankers are not the labelled ones.
        RerankerError: A part failed.
    """
    table = source.table
    frames = [table.scores] if table.rivals is None else [table.scores, table.rivals]
    outcomes = pd.concat(
        [frame[["question_id", "reranker", "order", "prompt_tokens", "value", "rougeL"]] for frame in frames]
    )
    by_question = {str(name): rows for name, rows in outcomes.groupby("question_id", sort=False)}
    default = table.grid.defaults
    at_default = np.logical_and.reduce([table.scores[key] == getattr(default, key) for key in GridPoint._fields])
    searched = {str(name): rows for name, rows in table.scores[at_default].groupby("question_id", sort=False)}
    for name, ids in zip(table.questions["question_id"], table.questions["candidates"], strict=True):
        candidates = [source.chunks[one] for one in ids]
        yield _example(source, parts, name, candidates, by_question[name], searched[name])


def _example(
    source: Source,
    parts: Sequence[Reranker],
    name: str,
    candidates: Sequence[Chunk],
    outcomes: pd.DataFrame,
    searched: pd.DataFrame,
) -> Example:
    keys = [tuple(order.tolist()) for order in outcomes["order"]]
    reached = dict(zip(keys, outcomes["rougeL"], strict=True))
    orders = sorted(reached)
    row = {order: at for at, order in enumerate(orders)}
    cost = np.array([sum(candidates[i].cost for i in order) for order in orders])
    _check_costs(source, name, outcomes["prompt_tokens"].to_numpy(), cost[[row[key] for key in keys]])
    features = CombinationFeatures(source.questions[name].text, candidates, parts)
    scores = features.scores(orders)
    for column, part in enumerate(parts):
        own = (outcomes["reranker"] == part.name).to_numpy()
        rows = [row[key] for key, mine in zip(keys, own, strict=True) if mine]
        _check_values(source, name, part.name, outcomes["value"].to_numpy()[own], scores[rows, column])
    return Example(
        source=source.name,
        documents=source.documents[name],
        orders=tuple(orders),
        cost=cost,
        rouge=np.array([reached[order] for order in orders]),
        scores=scores,
        features=features.of(orders, scores),
        searched={
            reranker: row[tuple(order.tolist())]
            for reranker, order in zip(searched["reranker"], searched["order"], strict=True)
        },
    )


def _check_costs(source: Source, name: str, labelled: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> None:
    if (labelled != found).any():
        at = int(np.argmax(labelled != found))
        raise InputError(
            f"{source.name}: an order of question {name!r} cost {labelled[at]} tokens when it was labelled, by this "
            f"store {found[at]}; name the store that was labelled with"
        )


def _check_values(
    source: Source, name: str, part: str, labelled: npt.NDArray[np.float64], found: npt.NDArray[np.float64]
) -> None:
    off = np.abs(labelled - found)
    if len(off) and off.max() > _TOLERANCE:
        at = int(off.argmax())
        raise InputError(
            f"{source.name}: {part!r} gave an order of question {name!r} {labelled[at]:.4f} when it was labelled, now "
            f"{found[at]:.4f}; use the data, the store and the rerankers that were labelled with"
        )

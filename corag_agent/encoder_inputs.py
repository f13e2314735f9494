"""What the encoder takes of each question, from a label table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from corag_search.agent_format import CHUNK_MEAN, EMBEDDING
from corag_search.errors import InputError
from corag_search.query_features import STATISTICS
from data_prep.table import LabelTable

ALL_STATISTICS = "statistics"
EXTRA_INPUTS = (CHUNK_MEAN, ALL_STATISTICS, *STATISTICS)


def encoder_inputs(table: LabelTable, extra: Sequence[str]) -> tuple[list[str], Tensor]:
    """Names of what the encoder takes, in the order of an export, and its values for every question, `[n, inputs]`.

    Args:
        table: The label table.
        extra: Of `EXTRA_INPUTS`, beside the query embedding.

    Raises:
        InputError: An unknown name, or the table lacks one.
    """
    for name in extra:
        if name not in EXTRA_INPUTS:
            raise InputError(f"extra_inputs must be among {', '.join(EXTRA_INPUTS)}, got {name!r}")
    wanted = [name for name in STATISTICS if name in extra or ALL_STATISTICS in extra]
    names, parts = [EMBEDDING], [table.embeddings]
    if CHUNK_MEAN in extra:
        if table.chunk_means is None:
            raise InputError(
                "extra_inputs has chunk_mean, but the label table has none; run `corag label` again to add it "
                "(nothing is searched or answered twice), or leave it out"
            )
        names.append(CHUNK_MEAN)
        parts.append(table.chunk_means)
    if wanted:
        missing = [name for name in wanted if name not in table.statistic_names]
        if table.statistics is None or missing:
            raise InputError(
                f"extra_inputs has the statistics {', '.join(missing or wanted)}, but the label table lacks them; run "
                "`corag label` again to add them (nothing is searched or answered twice), or leave them out"
            )
        parts.append(table.statistics[:, [table.statistic_names.index(name) for name in wanted]])
    return [*names, *wanted], torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32, copy=False))


def check_inputs(trained: Sequence[str], own: Sequence[str]) -> None:
    """Refuses a checkpoint of an encoder with other inputs.

    Args:
        trained: Names of the checkpoint's inputs.
        own: Names of those that there are now.

    Raises:
        InputError: They differ; it names in what.
    """
    if list(trained) == list(own):
        return
    missing, more = ([n for n in one if n not in other] for one, other in ((trained, own), (own, trained)))
    differing = [f"{what} {', '.join(names)}" for what, names in (("without", missing), ("with", more)) if names]
    raise InputError(
        f"this run is {' and '.join(differing)}, unlike the training of the checkpoint; set data.extra_inputs to "
        f"[{', '.join(name for name in trained if name != EMBEDDING)}] as then, or train anew"
    )

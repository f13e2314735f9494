"""The label table: what every reranker reached at every grid point, question by question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from corag_search.errors import InputError
from corag_search.files import replacing_file
from data_prep.grid import GridPoint, LabelGrid
from data_prep.groups import connected
from data_prep.repeats import ordered_repeats, repeated_scores
from data_prep.table_features import check_features, check_names, check_rows
from data_prep.table_files import (
    METRICS,
    OPTIONAL,
    SPLITS,
    TEXTLESS,
    check_fractions,
    conform,
    file_of,
    read_part,
    refuse_repeated,
    row_name,
    write_part,
)

__all__ = ["METRICS", "SPLITS", "LabelTable"]


class LabelTable:
    """Scores, questions and (optionally) rivals, checked against each other.

    Rows are put into one order, whatever order they come in: questions by `question_id`; scores by question,
    reranker (as the fingerprint lists them) and grid point. All arrays below follow that order.

    Attributes:
        scores: One row per (question_id, reranker, exploration, cost_coefficient, iterations): `order` (indices into
            the candidates), `prompt_tokens` (tokens of the chosen chunks, what the budget counts), `value` (the
            reranker's benefit, in [0, 1]), `rouge1`, `rouge2`, `rougeL` (of the LLM's answer, in [0, 1]).
        questions: One row per question: question_id, domain, kind, language, split (train, val or test), `reference`
            (the answer scored against, or null), `embedding` (of the question). Optional, for all questions or none:
            `documents` (that hold its gold passages; equal names are one document, also of different data sets),
            `statistics` and `chunk_mean` (as `query_features` gives them). Further columns are kept.
        rivals: One row per (question_id, method, reranker), with the outcome columns of `scores`; None without.
        repeats: One row per (question_id, order, reference, sample): the scores that those of `scores` and `rivals` are
            the means of, where an order was scored against several references or answered several times; None
            without.
        fingerprint: What the labels depend on, as plain JSON values. Needed here: `embedder` (name, dimension,
            fingerprint), `grid` (as `LabelGrid.to_dict` gives it), `rerankers` (list of names), and with `statistics`
            their names under that word. By custom also chunking, prompt, generator, data, versions.
    """

    def __init__(
        self,
        scores: pd.DataFrame,
        questions: pd.DataFrame,
        fingerprint: Mapping[str, Any],
        rivals: pd.DataFrame | None = None,
        repeats: pd.DataFrame | None = None,
    ) -> None:
        """Checks and orders the frames.

        Raises:
            InputError: When a column is missing or of the wrong type, a key is repeated, a score is not in
                [0, 1], a question has no scores (or scores no question), the grid is incomplete, or the fingerprint
                lacks a part.
        """
        self.fingerprint = _plain(fingerprint)
        check_names("rerankers", _part(self.fingerprint, "rerankers"))
        self.rerankers: list[str] = list(self.fingerprint["rerankers"])
        self.grid = LabelGrid.from_dict(_part(self.fingerprint, "grid"))
        self.embedder = _embedder(self.fingerprint)
        self.questions = _ordered_questions(conform(questions, "questions"), self.embedder["dimension"])
        check_features(self.questions, self.fingerprint.get("statistics"), self.embedder["dimension"])
        known = pd.Index(self.questions["question_id"])
        self.scores = _ordered_scores(conform(scores, "scores"), known, self.rerankers, self.grid)
        self.rivals = None if rivals is None else _ordered_rivals(conform(rivals, "rivals"), known)
        self.repeats = None if repeats is None else ordered_repeats(conform(repeats, "repeats"), self.scores)

    def __len__(self) -> int:
        return len(self.questions)

    @classmethod
    def read(cls, path: str | Path) -> LabelTable:
        """Reads `NAME.parquet`, `NAME.questions.parquet` and, where they exist, the rivals and the repeats.

        Raises:
            InputError: When a file is missing, is not such a table, or the files do not belong together.
        """
        path = Path(path)
        scores, fingerprint = read_part(path, "scores")
        parts = {"scores": scores}
        for part in ("questions", *OPTIONAL):
            if part in OPTIONAL and not file_of(path, part).exists():
                continue
            parts[part], other = read_part(file_of(path, part), part)
            if other != fingerprint:
                differing = sorted(key for key in {*fingerprint, *other} if fingerprint.get(key) != other.get(key))
                raise InputError(
                    f"{file_of(path, part)} does not belong to {path.name}: their fingerprints differ in "
                    f"{', '.join(differing)}; take all files from one `corag label` run"
                )
        try:
            return cls(fingerprint=fingerprint, **parts)
        except InputError as error:
            raise InputError(f"label table {path}: {error}") from error

    def write(self, path: str | Path) -> None:
        """Writes the files, each under a temporary name and then renamed, the scores last.

        Raises:
            InputError: When `path` does not end in `.parquet`.
        """
        path = Path(path)
        if path.suffix != ".parquet":
            raise InputError(f"the label table's name must end in .parquet, got {str(path)!r}")
        with ExitStack() as files:
            # Nothing is renamed before everything is written; the last one entered is renamed first, so whoever sees
            # the new scores sees the rest too.
            for part in ("scores", *OPTIONAL, "questions"):
                if (frame := getattr(self, part)) is not None:
                    partial = files.enter_context(replacing_file(file_of(path, part)))
                    write_part(frame, part, self.fingerprint, partial)
        for part in OPTIONAL:
            if getattr(self, part) is None:
                file_of(path, part).unlink(missing_ok=True)  # an earlier table's are not this one's

    @cached_property
    def embeddings(self) -> npt.NDArray[np.float32]:
        """Embeddings of the questions, `[n, d]`."""
        return np.stack(self.questions["embedding"].to_list()).astype(np.float32, copy=False)

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """What the columns of `statistics` are; none without."""
        return tuple(self.fingerprint.get("statistics", ()))

    @cached_property
    def statistics(self) -> npt.NDArray[np.float32] | None:
        """Statistics of queries and candidates, `[n, statistics]`; None where the table has none."""
        return self._stacked("statistics")

    @cached_property
    def chunk_means(self) -> npt.NDArray[np.float32] | None:
        """Mean embeddings of the candidates, `[n, d]`; None where the table has none."""
        return self._stacked("chunk_mean")

    @property
    def documents(self) -> list[tuple[str, ...]] | None:
        """Documents of each question, `[n]`, none for one without gold; None where the table does not tell."""
        return list(map(tuple, self.questions["documents"])) if "documents" in self.questions else None

    @cached_property
    def groups(self) -> npt.NDArray[np.intp] | None:
        """A number for each question, `[n]`: the same where two share a document, directly or through others.

        A fold that holds one question of a group must hold them all. None where the table names no documents.
        """
        return None if self.documents is None else connected(self.documents)

    def without_texts(self) -> LabelTable:
        """Without the references and without columns that others added, so that it can be published."""
        bare = self.questions[[name for name in self.questions if name in TEXTLESS]].assign(reference=None)
        return LabelTable(self.scores, bare, self.fingerprint, self.rivals, self.repeats)

    @cached_property
    def tokens(self) -> npt.NDArray[np.int32]:
        """Prompt tokens, `[n, rerankers, exploration, cost_coefficient, iterations]`."""
        return self._dense("prompt_tokens")

    def rouge(self, metric: str = "rougeL") -> npt.NDArray[np.float64]:
        """Scores of the answers, `[n, rerankers, exploration, cost_coefficient, iterations]`.

        Args:
            metric: rouge1, rouge2 or rougeL.

        Raises:
            InputError: When the metric is unknown.
        """
        if metric not in METRICS:
            raise InputError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
        return self._dense(metric)

    def repeated(self, metric: str = "rougeL") -> npt.NDArray[np.float64] | None:
        """The scores whose mean `rouge` gives, `[repeats, n, rerankers, exploration, cost_coefficient, iterations]`.

        Args:
            metric: rouge1, rouge2 or rougeL.

        Returns:
            One repeat for each reference and sample, or None where there is a single one.

        Raises:
            InputError: When the metric is unknown.
        """
        if self.repeats is None:
            return None
        shape = self.rouge(metric).shape
        return repeated_scores(self.repeats, self.scores, metric).reshape(-1, *shape)

    def split(self, name: str) -> npt.NDArray[np.intp]:
        """Positions of the questions of a split, `[m]`.

        Raises:
            InputError: When the split is unknown.
        """
        if name not in SPLITS:
            raise InputError(f"split must be one of {', '.join(SPLITS)}, got {name!r}")
        return np.flatnonzero((self.questions["split"] == name).to_numpy())

    def _stacked(self, column: str) -> npt.NDArray[np.float32] | None:
        return np.stack(self.questions[column].to_list()) if column in self.questions else None

    def _dense(self, column: str) -> npt.NDArray[Any]:
        # `scores` is complete and in canonical order, so a reshape is the look-up.
        return self.scores[column].to_numpy().reshape(len(self), len(self.rerankers), *self.grid.shape)


def _plain(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    try:
        plain = json.loads(json.dumps(dict(fingerprint), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"fingerprint must hold plain JSON values only: {error}") from None
    return plain


def _part(fingerprint: Mapping[str, Any], key: str) -> Any:
    if key not in fingerprint:
        raise InputError(f"fingerprint lacks {key!r}, has {', '.join(sorted(fingerprint)) or 'nothing'}")
    return fingerprint[key]


def _embedder(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    embedder = _part(fingerprint, "embedder")
    if not isinstance(embedder, dict) or not {"name", "dimension", "fingerprint"} <= set(embedder):
        raise InputError(f"fingerprint: embedder must have name, dimension and fingerprint, got {embedder!r}")
    dimension = embedder["dimension"]
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        raise InputError(f"fingerprint: embedder.dimension must be a whole number, at least 1, got {dimension!r}")
    return dict(embedder)


def _ordered_questions(questions: pd.DataFrame, dimension: int) -> pd.DataFrame:
    if questions.empty:
        raise InputError("questions: the table has no question; label at least one")
    refuse_repeated(questions, ["question_id"], "questions")
    unknown = questions.loc[~questions["split"].isin(SPLITS), "split"]
    if len(unknown):
        raise InputError(f"questions: split must be one of {', '.join(SPLITS)}, got {unknown.iloc[0]!r}")
    check_rows(questions, "embedding", dimension, "the embedder's dimension")
    return questions.sort_values("question_id", kind="stable", ignore_index=True)


def _ordered_scores(scores: pd.DataFrame, known: pd.Index, rerankers: list[str], grid: LabelGrid) -> pd.DataFrame:
    _check_outcomes(scores, "scores")
    keys = ["question_id", "reranker", *GridPoint._fields]
    refuse_repeated(scores, keys, "scores")
    axes = [known, pd.Index(rerankers), *(pd.Index(getattr(grid, name)) for name in GridPoint._fields)]
    positions = []
    for key, axis in zip(keys, axes, strict=True):
        position = axis.get_indexer(pd.Index(scores[key]))
        if (position < 0).any():
            stray = scores[key].tolist()[int(np.argmax(position < 0))]
            where = "the questions" if key == "question_id" else "the fingerprint"
            raise InputError(f"scores: {key} {stray!r} is not among {where}; label again or correct {where}")
        positions.append(position)
    sizes = tuple(len(axis) for axis in axes)
    flat = np.ravel_multi_index(positions, sizes) if len(scores) else np.empty(0, np.intp)
    present = np.zeros(sizes, dtype=bool)
    present.reshape(-1)[flat] = True
    _refuse_gaps(present, axes)
    return scores.iloc[np.argsort(flat)].reset_index(drop=True)


def _refuse_gaps(present: npt.NDArray[np.bool_], axes: list[pd.Index]) -> None:
    unscored = ~present.any(axis=(1, 2, 3, 4))
    if unscored.any():
        name = axes[0][int(np.argmax(unscored))]
        raise InputError(f"{int(unscored.sum())} question(s) without scores, the first is {name!r}; label them")
    if not present.all():
        gap = np.argwhere(~present)[0]
        question, reranker, *point = (axis[at] for axis, at in zip(axes, gap, strict=True))
        settings = ", ".join(f"{key} {value:g}" for key, value in zip(GridPoint._fields, point, strict=True))
        raise InputError(
            f"scores: the grid is incomplete, {int((~present).sum())} row(s) are missing, the first is question "
            f"{question!r}, reranker {reranker!r}, {settings}; resume `corag label`"
        )


def _ordered_rivals(rivals: pd.DataFrame, known: pd.Index) -> pd.DataFrame:
    _check_outcomes(rivals, "rivals")
    keys = ["question_id", "method", "reranker"]
    refuse_repeated(rivals, keys, "rivals")
    stray = rivals.loc[~rivals["question_id"].isin(known), "question_id"]
    if len(stray):
        raise InputError(f"rivals: question_id {stray.iloc[0]!r} is not among the questions")
    return rivals.sort_values(keys, kind="stable", ignore_index=True)


def _check_outcomes(frame: pd.DataFrame, part: str) -> None:
    check_fractions(frame, ("value", *METRICS), part)
    if (negative := frame["prompt_tokens"] < 0).any():
        row = frame.iloc[int(np.argmax(negative))]
        raise InputError(
            f"{part}: prompt_tokens must be at least 0, got {row['prompt_tokens']} for {row_name(row)}; correct it or "
            "label again"
        )

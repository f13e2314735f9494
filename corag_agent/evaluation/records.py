"""What an evaluation run leaves behind: its records, and the questions, answers and chunks that they speak of."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from corag_search.errors import InputError
from corag_search.files import replacing_file
from data_prep.table_files import check_splits, refuse_repeated

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
STAGES = ("embed", "retrieve", "agent", "search", "prompt", "generate")
SECONDS = tuple(f"seconds_{stage}" for stage in STAGES)
# What tells one record from another; answers have the same key.
KEY = ("dataset", "question_id", "run", "method", "reranker", "chunk_size", "budget", "variant")
QUESTION = ["dataset", "question_id"]
_OPTIONAL = "structure"
_TEXT_PARTS = ("questions", "answers", "chunks")
_STRUCTURE = [*QUESTION, "run", "reranker", "chunk_size", "budget"]
_CHUNK = ["dataset", "chunk_size", "chunk_id"]
# Of the chosen chunks and of the answer; NaN in a record that failed.
SCORES = ("value", "objective", "rouge1", "rouge2", "rougeL")
# NaN also where the data set lacks what they compare with.
PARTIAL = ("human_rougeL", "token_f1", "exact_match", "gold_recall")

# Of `corag_agent.evaluation.structure.Structure`.
COUNTS = ("pairs", "additive", "worse_than_best", "order_matters", "best_chunks")

_KEY_FIELDS = [(name, pa.int32() if name in ("chunk_size", "budget") else pa.string()) for name in KEY]
_TEXTS = pa.list_(pa.string())
SCHEMAS: Mapping[str, pa.Schema] = {
    "questions": pa.schema(
        [
            *((name, pa.string()) for name in (*QUESTION, "domain", "kind", "language", "split")),
            *((name, pa.string()) for name in ("question", "reference")),
            *((name, _TEXTS) for name in ("human_answers", "gold", "documents")),
        ]
    ),
    "answers": pa.schema([*_KEY_FIELDS, ("answer", pa.string())]),
    "chunks": pa.schema(
        [
            ("dataset", pa.string()),
            ("chunk_size", pa.int32()),
            ("chunk_id", pa.string()),
            ("text", pa.string()),
            ("cost", pa.int32()),
        ]
    ),
    "structure": pa.schema(
        [
            *((name, pa.string()) for name in (*QUESTION, "run", "reranker")),
            *((name, pa.int32()) for name in ("chunk_size", "budget", "candidates", *COUNTS)),
            ("best_is_largest", pa.bool_()),
        ]
    ),
    "records": pa.schema(
        [
            *_KEY_FIELDS,
            *((name, pa.string()) for name in ("domain", "kind", "language", "settings")),
            ("order", pa.list_(pa.int32())),
            ("chunk_ids", _TEXTS),
            *((name, pa.float64()) for name in ("value", "objective")),
            *((name, pa.int32()) for name in ("prompt_tokens", "answer_tokens")),
            *((name, pa.float64()) for name in ("rouge1", "rouge2", "rougeL", *PARTIAL)),
            ("evaluations", pa.int32()),
            *((name, pa.float64()) for name in SECONDS),
            ("on_distribution", pa.bool_()),
            ("error", pa.string()),
        ]
    ),
}


class EvaluationRun:
    """Frames that were checked against each other; rows are put into the order of their keys.

    Attributes:
        records: One row for each question, experiment (`run`), method, reranker ("" where none), chunk size, budget and
            `variant` ("" or the settings that a sweep varies, such as "exploration=2.4"), without texts. `order` are
            indices into the candidates, in the prompt's order; `chunk_ids` the same by name; `settings` the search
            settings as JSON; `prompt_tokens` what the chosen chunks cost; `rouge1`, `rouge2`, `rougeL` of the answer
            against the run's reference; `human_rougeL`, `token_f1`, `exact_match` against the human answers; and
            `gold_recall` the share of the gold passages that overlap a chosen chunk (NaN without such). Seconds by
            stage are NaN where the answer came from the cache or the stage has no part. `on_distribution` is false
            where an agent is used with other settings than its labels'. `error` is "" or one line, and such a record's
            scores are NaN. `documents` are the question's.
        questions: One row for each question: `split` (as `corag label` has it), `reference` (what it is scored
            against), `human_answers`, `gold` (texts of the gold passages), `documents` (ids of their documents).
        answers: The key of a record, and `answer`; none for records that failed.
        chunks: One row for each chunk that a record names: dataset, chunk_size, chunk_id, text, and `cost` in tokens
            (0 where the run was published without its texts).
        structure: How the rerankers' benefits behave, one row for each question, experiment, reranker, chunk size and
            budget, with the counts of `Structure`; None where no experiment measured it.
        settings: The resolved configuration, fingerprints, versions, dates and seed, as plain JSON values; of each
            data set also `chunks`, the size of its store by chunk size.
    """

    def __init__(
        self,
        records: pd.DataFrame,
        questions: pd.DataFrame,
        answers: pd.DataFrame,
        chunks: pd.DataFrame,
        settings: Mapping[str, Any],
        structure: pd.DataFrame | None = None,
    ) -> None:
        """Check and order the frames.

        Raises:
            InputError: A column is missing or of another type, a key is repeated, a score is NaN in a record that did
                not fail, or a record names a question, answer or chunk that is not there.
        """
        self.settings = json.loads(json.dumps(dict(settings), allow_nan=False))
        self.structure = None if structure is None else _ordered(structure, "structure", _STRUCTURE)
        self.questions = _ordered(questions, "questions", QUESTION)
        self.chunks = _ordered(chunks, "chunks", _CHUNK)
        self.answers = _ordered(answers, "answers", list(KEY))
        self.records = _ordered(records, "records", list(KEY))
        _check_scores(self.records)
        _check_named("question", self.records[QUESTION], self.questions[QUESTION])
        # With the records, so that they are published without texts too: what is drawn or chosen keeps documents whole.
        documents = self.questions.set_index(QUESTION)["documents"]
        self.records["documents"] = documents.reindex(pd.MultiIndex.from_frame(self.records[QUESTION])).array
        answered = self.records.loc[self.records["error"] == "", list(KEY)]
        _check_named("answer", answered, self.answers[list(KEY)])
        used = self.records[["dataset", "chunk_size", "chunk_ids"]].explode("chunk_ids").dropna()
        _check_named("chunk", used.rename(columns={"chunk_ids": "chunk_id"})[_CHUNK], self.chunks[_CHUNK])

    def __len__(self) -> int:
        return len(self.records)

    @property
    def succeeded(self) -> pd.DataFrame:
        """The records that did not fail."""
        return self.records[self.records["error"] == ""]

    @property
    def asked(self) -> pd.DataFrame:
        """The records, or where only structure was measured that: which questions at which chunk sizes and budgets."""
        return self.structure if self.records.empty and self.structure is not None else self.records

    @property
    def timed(self) -> pd.DataFrame:
        """The records that did not fail and whose searching and answering were both measured; without, no total."""
        records = self.succeeded
        return records[records["seconds_search"].notna() & records["seconds_generate"].notna()]

    def of_splits(self, splits: Sequence[str]) -> EvaluationRun:
        """The part of it that is about questions of some splits, such as those that no agent was trained on.

        Raises:
            InputError: There are no such questions, or no such split.
        """
        check_splits(splits)
        kept = self.questions[self.questions["split"].isin(splits)]
        if kept.empty:
            there = ", ".join(self.questions["split"].unique())
            raise InputError(f"no question of this evaluation is of the splits {', '.join(splits)}; it has {there}")
        return self._of_questions(kept)

    def of_datasets(self, names: Collection[str]) -> EvaluationRun:
        """The part of it that is about some data sets."""
        return self._of_questions(self.questions[self.questions["dataset"].isin(list(names))])

    def _of_questions(self, kept: pd.DataFrame) -> EvaluationRun:
        known = pd.MultiIndex.from_frame(kept[QUESTION])

        def part(frame: pd.DataFrame) -> pd.DataFrame:
            return frame[pd.MultiIndex.from_frame(frame[QUESTION]).isin(known)]

        structure = None if self.structure is None else part(self.structure)
        return EvaluationRun(part(self.records), kept, part(self.answers), self.chunks, self.settings, structure)

    @classmethod
    def read(cls, directory: str | Path) -> EvaluationRun:
        """Read what `write` wrote. A run may be published without its files of texts: those are blank then.

        Raises:
            InputError: A file is missing, unreadable or of another schema version, or the files do not fit.
        """
        root = Path(directory)
        settings = _read_settings(root / RUN_FILE)
        there = [part for part in SCHEMAS if (root / f"{part}.parquet").is_file()]
        left_out = {_OPTIONAL} if set(there) & set(_TEXT_PARTS) else {_OPTIONAL, *_TEXT_PARTS}
        parts = [part for part in SCHEMAS if part in there or part not in left_out]
        frames = {part: _read_part(root, part) for part in parts}
        frames = {**_without_texts(frames["records"]), **frames}
        try:
            return cls(**frames, settings=settings)
        except InputError as error:
            raise InputError(f"evaluation {root}: {error}") from error

    def write(self, directory: str | Path) -> None:
        """Write the files, each under a temporary name and then renamed, the records last."""
        root = Path(directory)
        settings = {"corag_evaluation": SCHEMA_VERSION, **self.settings}
        with ExitStack() as files:
            # The last one entered is renamed first, so whoever sees the new records sees the rest too.
            for part in reversed(list(SCHEMAS)):
                if (frame := getattr(self, part)) is not None:
                    partial = files.enter_context(replacing_file(root / f"{part}.parquet"))
                    table = _cast(frame, part)
                    if part == "records":
                        table = table.append_column("documents", pa.array(frame["documents"], _TEXTS))
                    pq.write_table(table, partial, compression="zstd")
            text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
            files.enter_context(replacing_file(root / RUN_FILE)).write_text(text, encoding="utf-8")
        if self.structure is None:
            (root / f"{_OPTIONAL}.parquet").unlink(missing_ok=True)  # an earlier run's is not this one's


def _read_settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path} does not exist; name a directory that `corag evaluate` wrote")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        version = settings.pop("corag_evaluation")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise InputError(f"{path} is no settings file of an evaluation; name a directory of `corag evaluate`") from None
    if version != SCHEMA_VERSION:
        raise InputError(f"{path} has schema version {version!r}, readable is {SCHEMA_VERSION}; evaluate anew")
    return settings


def _read_part(root: Path, part: str) -> pd.DataFrame:
    path = root / f"{part}.parquet"
    if not path.is_file():
        raise InputError(f"{path} does not exist; run `corag evaluate` to its end")
    try:
        with pq.ParquetFile(path) as file:
            frame = file.read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a readable parquet file: {str(error).splitlines()[0]}") from None
    missing = [name for name in SCHEMAS[part].names if name not in frame.columns]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}, so it is not what `corag evaluate` wrote; evaluate anew")
    return frame


def _without_texts(records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Questions, answers and chunks that the records name, with blank texts."""
    questions = records[[*QUESTION, "domain", "kind", "language"]].drop_duplicates(QUESTION)
    questions[["split", "question", "reference"]] = ""
    for name in ("human_answers", "gold", "documents"):
        questions[name] = pd.Series([[] for _ in range(len(questions))], questions.index, dtype=object)
    if "documents" in records:  # runs of earlier versions do not tell
        questions["documents"] = records["documents"]
    chunks = records[["dataset", "chunk_size", "chunk_ids"]].explode("chunk_ids").dropna().drop_duplicates()
    return {
        "questions": questions,
        "answers": records.loc[records["error"] == "", list(KEY)].assign(answer=""),
        "chunks": chunks.rename(columns={"chunk_ids": "chunk_id"}).assign(text="", cost=0),
    }


def _ordered(frame: pd.DataFrame, part: str, key: list[str]) -> pd.DataFrame:
    """The frame with the schema's types, sorted by its key."""
    ordered = _cast(frame, part).to_pandas()
    refuse_repeated(ordered, key, part)
    return ordered.sort_values(key, kind="stable", ignore_index=True)


def _cast(frame: pd.DataFrame, part: str) -> pa.Table:
    schema = SCHEMAS[part]
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise InputError(f"{part}: column {missing[0]} is missing, has {', '.join(map(str, frame.columns))}")
    try:
        rows = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"{part}: {' '.join(map(str, error.args))}") from None
    for field in schema:
        if rows[field.name].null_count and not pa.types.is_floating(field.type):
            raise InputError(f"{part}: column {field.name} has {rows[field.name].null_count} null(s); fill them")
    # The metadata of pandas is left out: it names versions, so equal frames would differ in bytes.
    return rows.replace_schema_metadata(None)


def _check_scores(records: pd.DataFrame) -> None:
    fine = records[records["error"] == ""]
    for name in SCORES:
        bad = ~np.isfinite(fine[name].to_numpy(np.float64))
        if bad.any():
            row = fine.iloc[int(np.argmax(bad))]
            raise InputError(
                f"records: {name} must be a finite number where nothing failed, got {row[name]} for question "
                f"{row['question_id']!r}, method {row['method']!r}"
            )


def _check_named(what: str, named: pd.DataFrame, known: pd.DataFrame) -> None:
    unknown = ~pd.MultiIndex.from_frame(named).isin(pd.MultiIndex.from_frame(known))
    if unknown.any():
        first = named[unknown].iloc[0].to_dict()
        raise InputError(f"records: the {what} of {int(unknown.sum())} record(s) is not there, the first is {first}")

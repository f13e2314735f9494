"""The files of the label table: their columns, types and metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from corag_search.errors import InputError

SCHEMA_VERSION = 2
SPLITS = ("train", "val", "test")
METRICS = ("rouge1", "rouge2", "rougeL")
OPTIONAL = ("rivals", "repeats")

_READABLE = ("1", "2")  # version 1 has none of the columns of FEATURES
_OUTCOME = [
    ("order", pa.list_(pa.int32())),
    ("prompt_tokens", pa.int32()),
    ("value", pa.float64()),
    *((metric, pa.float64()) for metric in METRICS),
]
_SETTINGS = [("exploration", pa.float64()), ("cost_coefficient", pa.float64()), ("iterations", pa.int32())]
_TEXT = ("question_id", "domain", "kind", "language", "split", "reference")
_SCHEMAS = {
    "questions": pa.schema([*((name, pa.string()) for name in _TEXT), ("embedding", pa.list_(pa.float32()))]),
    "rivals": pa.schema([(name, pa.string()) for name in ("question_id", "method", "reranker")] + _OUTCOME),
    "scores": pa.schema([("question_id", pa.string()), ("reranker", pa.string()), *_SETTINGS, *_OUTCOME]),
    "repeats": pa.schema(
        [
            ("question_id", pa.string()),
            ("order", pa.list_(pa.int32())),
            ("reference", pa.string()),
            ("sample", pa.int32()),
            *((metric, pa.float64()) for metric in METRICS),
        ]
    ),
}
_ABOUT = {"question_id": "question", "reranker": "reranker", "method": "method", "reference": "reference"}
_ROUNDING = 1e-6  # what tables made with other precision may be off
_NULLABLE = frozenset({"reference"})
# Columns of the questions that all questions have, or none.
FEATURES = pa.schema(
    [
        ("documents", pa.list_(pa.string())),
        ("statistics", pa.list_(pa.float32())),
        ("chunk_mean", pa.list_(pa.float32())),
    ]
)
TEXTLESS = (*_SCHEMAS["questions"].names, *FEATURES.names, "candidates")  # `reference` is emptied


def check_splits(splits: Sequence[str]) -> None:
    """Refuse names that are no splits, and none at all (InputError)."""
    unknown = [name for name in splits if name not in SPLITS]
    if unknown or not splits:
        raise InputError(f"splits must be some of {', '.join(SPLITS)}, got {unknown[0] if unknown else 'none'!r}")


def file_of(path: Path, part: str) -> Path:
    """Where a part of the table `path` lies."""
    return path if part == "scores" else path.with_name(f"{path.stem}.{part}.parquet")


def write_part(frame: pd.DataFrame, part: str, fingerprint: Mapping[str, Any], path: Path) -> None:
    """Write a part of a table as a file of the newest version."""
    # The metadata of pandas is left out: it names versions, so equal tables would differ in bytes.
    metadata = {
        "corag.part": part,
        "corag.schema_version": str(SCHEMA_VERSION),
        "corag.fingerprint": json.dumps(fingerprint, sort_keys=True, ensure_ascii=False),
    }
    rows = _cast(pa.Table.from_pandas(frame, preserve_index=False), part)
    pq.write_table(rows.replace_schema_metadata(metadata), path, compression="zstd")


def read_part(path: Path, part: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A part of a table, of any version that is readable, and its fingerprint.

    Raises:
        InputError: It is not there, not such a part, or a column is missing or of another type.
    """
    if path.is_dir():
        raise InputError(f"label table: {path} is a directory; name a file in it, NAME.parquet")
    if not path.is_file():
        raise InputError(f"label table: {path} does not exist; make it with `corag label`")
    try:
        with pq.ParquetFile(path) as file:
            metadata, rows = file.schema_arrow.metadata or {}, file.read()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"label table: {path} is not a readable parquet file: {str(error).splitlines()[0]}") from None
    version = metadata.get(b"corag.schema_version", b"none").decode()
    if version not in _READABLE:
        raise InputError(
            f"label table: {path} has schema version {version}, readable are {' and '.join(_READABLE)}; read it with "
            "the version of corag that made it, or label again"
        )
    if version == "1":
        rows = rows.drop_columns([name for name in FEATURES.names if name in rows.column_names])
    found = metadata.get(b"corag.part", b"nothing").decode()
    if found != part:
        raise InputError(f"label table: {path} holds {found}, expected {part}; name the file without .{found}")
    try:
        fingerprint = json.loads(metadata.get(b"corag.fingerprint", b"null"))
    except ValueError:
        fingerprint = None
    if not isinstance(fingerprint, dict):
        raise InputError(f"label table: {path} has no readable fingerprint in its metadata; label again")
    try:
        return _cast(rows, part).to_pandas(), fingerprint
    except InputError as error:
        raise InputError(f"label table {path}: {error}") from None


def refuse_repeated(frame: pd.DataFrame, keys: list[str], part: str) -> None:
    """Refuse rows of one key (InputError)."""
    repeated = frame.duplicated(keys)
    if repeated.any():
        first = frame.loc[repeated, keys].iloc[0].to_dict()
        raise InputError(f"{part}: {int(repeated.sum())} repeated row(s) of one key, the first is {first}")


def check_fractions(frame: pd.DataFrame, columns: Iterable[str], part: str) -> None:
    """Refuse a value outside [0, 1] (InputError)."""
    for column in columns:
        values = frame[column].to_numpy()
        good = (values >= -_ROUNDING) & (values <= 1 + _ROUNDING)  # not so for NaN
        if not good.all():
            row = frame.iloc[int(np.argmin(good))]
            value = row[column]
            bound, remedy = ("in [0, 1]", "correct it, divide percent by 100, or label again")
            if not np.isfinite(value):
                bound, remedy = "a finite number", "label it again"
            raise InputError(f"{part}: {column} must be {bound}, got {value} for {row_name(row)}; {remedy}")


def row_name(row: pd.Series) -> str:
    """What a row is about, for a message."""
    return ", ".join(f"{kind} {row[key]!r}" for key, kind in _ABOUT.items() if key in row)


def conform(frame: pd.DataFrame, part: str) -> pd.DataFrame:
    """The frame with exactly the types that a file of it has."""
    try:
        rows = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"{part}: a column mixes types: {str(error).splitlines()[0]}") from None
    return _cast(rows, part).to_pandas()


def _cast(rows: pa.Table, part: str) -> pa.Table:
    """Puts the columns of the schema first and casts them; a wider or narrower type of the same kind will do."""
    schema = _SCHEMAS[part]
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise InputError(f"{part}: column {missing[0]} is missing, has {', '.join(rows.column_names)}")
    absent = [name for name in _features(rows, part) if rows[name].null_count == len(rows)]
    rows = rows.drop_columns(absent)
    fields = [*schema, *(FEATURES.field(name) for name in _features(rows, part))]
    columns = {field.name: _cast_column(rows, field, part) for field in fields}
    extra = {name: rows[name] for name in rows.column_names if name not in columns}
    return pa.table({**columns, **extra})


def _features(rows: pa.Table, part: str) -> list[str]:
    return [name for name in FEATURES.names if part == "questions" and name in rows.column_names]


def _cast_column(rows: pa.Table, field: pa.Field, part: str) -> pa.ChunkedArray:
    column = rows[field.name]
    if not _castable(column.type, field.type) and not (column.null_count == len(column) and field.name in _NULLABLE):
        raise InputError(f"{part}: column {field.name} must be {field.type}, got {column.type}")
    if column.null_count and field.name not in _NULLABLE:
        at = column.is_null(nan_is_null=True).index(True).as_py()
        question = rows["question_id"][at].as_py()
        raise InputError(f"{part}: {field.name} of question {question!r} is missing (null or NaN); label it again")
    if kinds.is_list(field.type) and pc.list_flatten(column).null_count:
        raise InputError(f"{part}: column {field.name} must be lists without null, got a null in one")
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InputError(f"{part}: column {field.name} must be {field.type}: {error}") from None


def _castable(given: pa.DataType, wanted: pa.DataType) -> bool:
    if kinds.is_dictionary(given):
        given = given.value_type
    if kinds.is_list(wanted):
        listed = kinds.is_list(given) or kinds.is_large_list(given) or kinds.is_fixed_size_list(given)
        return listed and (kinds.is_null(given.value_type) or _castable(given.value_type, wanted.value_type))
    if kinds.is_string(wanted):
        return kinds.is_string(given) or kinds.is_large_string(given)
    if kinds.is_integer(wanted):
        return kinds.is_integer(given)
    return kinds.is_floating(given) or kinds.is_integer(given)

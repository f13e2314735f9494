"""Files that come once for each split: `queries.train.tsv` with `qrels.train.tsv`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corag_search.errors import InputError

__all__ = ["split_files"]


def split_files(path: Path, queries: str, qrels: str) -> Iterator[tuple[str, Path, Path]]:
    """Each split with its queries file and its qrels file.

    Args:
        path: A folder, or one queries file for its split alone.
        queries: Pattern of their names, the split for a star.
        qrels: Likewise.

    Raises:
        InputError: There is no pair of files.
    """
    folder = path if path.is_dir() else path.parent
    before, after = queries.split("*")
    found = False
    for file in sorted(folder.glob(queries)) if path.is_dir() else [path]:
        # `queries.dev.small.tsv` belongs to `qrels.dev.small.tsv`.
        split = file.name.removeprefix(before).removesuffix(after)
        relevance = folder / qrels.replace("*", split)
        if file.is_file() and relevance.is_file():
            found = True
            yield split, file, relevance
    if not found:
        raise InputError(
            f"{path} has no {queries} with its {qrels} (the same word for the star); give a folder of both"
        )

"""Exported agents on a model hub, through `huggingface_hub`."""

from __future__ import annotations

import re
from pathlib import Path

from corag_search.agent_format import AGENT
from corag_search.errors import InputError
from corag_search.packaged import require

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def fetch_agent(
    repository: str,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Path:
    """The directory of an agent in the hub's cache, fetched where it is not there yet.

    Only files that `corag export` writes are fetched, and no code of them runs. The hub's host, its token and whether
    it may be asked at all are `huggingface_hub`'s own settings (`HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`).

    Args:
        repository: OWNER/NAME.
        revision: Branch, tag or commit; None for the default branch.
        cache_dir: Folder of the cache; None for the hub's own.
        local_files_only: Whether to take what is in the cache and never ask the hub.

    Raises:
        InputError: Not a repository's name, not to be had, or the package is not installed.
    """
    if not _REPOSITORY.fullmatch(repository):
        raise InputError(f"an agent on the hub is called OWNER/NAME, got {repository!r}")
    hub = require("huggingface_hub", "hub", "an agent on the hub")
    try:
        folder = hub.snapshot_download(
            repository,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            allow_patterns=list(AGENT.files),
        )
    except Exception as error:  # of the HTTP library, the file system or the hub's rules; none of them is ours to tell
        raise InputError(f"agent {repository} cannot be had from the hub: {hub_reason(error)}") from error
    return Path(folder)


def hub_reason(error: Exception) -> str:
    """What went wrong, in a line; errors of the hub go on about its documentation."""
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__

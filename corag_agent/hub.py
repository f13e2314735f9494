"""Exported agents into a model hub; `ConfigurationAgent.from_pretrained` takes them from there."""

from __future__ import annotations

from pathlib import Path

from corag_search.agent import ConfigurationAgent
from corag_search.agent_format import AGENT
from corag_search.endpoint import without_key
from corag_search.errors import InputError
from corag_search.hub import hub_reason
from corag_search.packaged import require


def push_to_hub(
    directory: str | Path,
    repo_id: str,
    *,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    commit_message: str = "Upload a configuration agent",
) -> str:
    """Uploads what `corag export` wrote: its own files only, in one commit.

    Args:
        directory: Of the export; it is loaded first, so that nothing broken is pushed.
        repo_id: OWNER/NAME; made when it is not there.
        private: Whether a repository that is made is private; one that is there stays as it is.
        revision: Branch, made when it is not there; None for the default one.
        token: None for that of the hub's login or of `HF_TOKEN`. It is never written or printed.
        commit_message: First line of the commit.

    Returns:
        Address of the commit.

    Raises:
        InputError: The export cannot be loaded, the hub refuses, or the package is not installed.
    """
    ConfigurationAgent.load(directory)
    api = require("huggingface_hub", "hub", "pushing an agent").HfApi(token=token)
    try:
        api.create_repo(repo_id, repo_type="model", private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, repo_type="model", exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=directory,
            repo_type="model",
            revision=revision,
            commit_message=commit_message,
            allow_patterns=list(AGENT.files),
            delete_patterns=list(AGENT.further),  # an earlier export's, of other weights
        )
    except Exception as error:  # of the HTTP library or of the hub's rules
        reason = without_key(hub_reason(error), token)
        raise InputError(f"{repo_id} cannot be pushed to the hub: {reason}") from None
    return str(commit.commit_url)

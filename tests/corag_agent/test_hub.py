"""The hub, without a host: a cache laid out by hand, and an interface that records what it is asked for."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from corag_agent import cli
from corag_agent.export import export
from corag_agent.hub import push_to_hub
from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from corag_search.shipped import find_checkpoint
from tests.corag_agent.trained_agent import trained

huggingface_hub = pytest.importorskip("huggingface_hub")
torch.set_num_threads(1)

COMMIT, OLDER = "a" * 40, "b" * 40
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("trained"), hidden=(16,))


@pytest.fixture(scope="module")
def exported(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(checkpoint, tmp_path_factory.mktemp("exported") / "agent")


@pytest.fixture
def cache(exported: Path, tmp_path: Path) -> Path:
    """A hub cache with two commits of someone/agent; the older one is called v1 and has another licence on its card."""
    repository = tmp_path / "hub" / "models--someone--agent"
    (repository / "refs").mkdir(parents=True)
    for reference, commit in (("main", COMMIT), ("v1", OLDER)):
        (repository / "refs" / reference).write_text(commit)
        folder = repository / "snapshots" / commit
        folder.mkdir(parents=True)
        for file in exported.iterdir():
            blob = repository / "blobs" / f"{commit[:4]}-{file.name}"
            blob.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, blob)
            (folder / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    config = repository / "blobs" / f"{OLDER[:4]}-config.json"
    older = {**json.loads(config.read_text()), "note": "older"}
    del older["config_sha256"]  # of before there was one
    config.write_text(json.dumps(older))
    return tmp_path / "hub"


def test_from_a_directory(exported: Path) -> None:
    agent = ConfigurationAgent.from_pretrained(exported)
    assert agent.predict([0.1] * 8) == ConfigurationAgent.load(exported).predict([0.1] * 8)
    assert ConfigurationAgent.from_pretrained(str(exported)).config == agent.config


def test_from_the_cache(exported: Path, cache: Path) -> None:
    options: dict[str, Any] = {"cache_dir": cache, "local_files_only": True}
    agent = ConfigurationAgent.from_pretrained("someone/agent", **options)
    assert agent.config == ConfigurationAgent.load(exported).config
    assert ConfigurationAgent.from_pretrained("someone/agent", revision="v1", **options).config["note"] == "older"
    assert ConfigurationAgent.from_pretrained("someone/agent", revision=OLDER, **options).config["note"] == "older"


def test_what_is_not_there(cache: Path) -> None:
    options: dict[str, Any] = {"cache_dir": cache, "local_files_only": True}
    with pytest.raises(InputError, match="agent someone/other cannot be had from the hub: ") as raised:
        ConfigurationAgent.from_pretrained("someone/other", **options)
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match="agent someone/agent cannot be had"):
        ConfigurationAgent.from_pretrained("someone/agent", revision="v2", **options)
    for name in ("agent", "a/b/c", "runs/agent/"):
        with pytest.raises(InputError, match="is called OWNER/NAME, got"):
            ConfigurationAgent.from_pretrained(name, **options)


def test_a_damaged_cache_is_refused(cache: Path) -> None:
    blob = cache / "models--someone--agent" / "blobs" / f"{COMMIT[:4]}-model.safetensors"
    weights = bytearray(blob.read_bytes())
    weights[-1] ^= 1
    blob.write_bytes(weights)
    with pytest.raises(InputError, match="damaged"):
        ConfigurationAgent.from_pretrained("someone/agent", cache_dir=cache, local_files_only=True)


def test_named_in_a_configuration(cache: Path) -> None:
    """As a user without a network has it: HF_HUB_OFFLINE, and the cache where HF_HUB_CACHE says."""
    program = (
        "from corag_search import ConfigurationAgent; from corag_search.shipped import find_checkpoint\n"
        "for name in ('hub:someone/agent', 'hub:someone/agent@v1'):\n"
        "    print(ConfigurationAgent.load(find_checkpoint(name)).config.get('note'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache), "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "None\nolder\n"), done.stderr
    with pytest.raises(InputError, match="OWNER/NAME, got 'agent'"):
        find_checkpoint("hub:agent")


class RecordedApi:
    """Stands for `HfApi`: takes the calls, and for `upload_folder` what would be uploaded, as the client selects it."""

    calls: list[tuple[str, dict[str, Any]]]
    failure: Exception | None = None

    def __init__(self, token: str | None = None) -> None:
        type(self).calls = [("HfApi", {"token": token})]

    def create_repo(self, repo_id: str, **options: Any) -> None:
        self.calls.append(("create_repo", {"repo_id": repo_id, **options}))

    def create_branch(self, repo_id: str, **options: Any) -> None:
        self.calls.append(("create_branch", {"repo_id": repo_id, **options}))

    def upload_folder(self, folder_path: Path, allow_patterns: list[str], **options: Any) -> SimpleNamespace:
        if self.failure is not None:
            raise self.failure
        from huggingface_hub.utils import filter_repo_objects

        names = [str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file()]
        files = sorted(filter_repo_objects(names, allow_patterns=allow_patterns))
        self.calls.append(("upload_folder", {"files": files, **options}))
        return SimpleNamespace(commit_url="hub:someone/agent/commit/1")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[RecordedApi]:
    recorded = type("Recorded", (RecordedApi,), {"failure": None})
    monkeypatch.setattr(huggingface_hub, "HfApi", recorded)
    return recorded


OWN_FILES = ["README.md", "config.json", "model.safetensors"]


def test_exactly_our_files_are_pushed(exported: Path, tmp_path: Path, api: type[RecordedApi]) -> None:
    folder = tmp_path / "agent"
    shutil.copytree(exported, folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "runs").mkdir()
    (folder / "runs" / "config.json").write_text("{}")
    assert push_to_hub(folder, "someone/agent", private=True, commit_message="New") == "hub:someone/agent/commit/1"
    assert api.calls == [
        ("HfApi", {"token": None}),
        ("create_repo", {"repo_id": "someone/agent", "repo_type": "model", "private": True, "exist_ok": True}),
        (
            "upload_folder",
            {
                "files": OWN_FILES, "repo_id": "someone/agent", "repo_type": "model", "revision": None,
                "commit_message": "New", "delete_patterns": ["model.onnx"],
            },
        ),
    ]  # fmt: skip


def test_a_branch_and_a_token(exported: Path, api: type[RecordedApi]) -> None:
    push_to_hub(exported, "someone/agent", revision="v2", token=TOKEN)
    assert api.calls[0] == ("HfApi", {"token": TOKEN})
    branch = {"repo_id": "someone/agent", "branch": "v2", "repo_type": "model", "exist_ok": True}
    assert api.calls[2] == ("create_branch", branch)
    assert api.calls[3][1]["revision"] == "v2"


def test_nothing_broken_is_pushed(exported: Path, tmp_path: Path, api: type[RecordedApi]) -> None:
    folder = tmp_path / "agent"
    shutil.copytree(exported, folder)
    (folder / "model.safetensors").write_bytes(b"junk")
    api.calls = []
    with pytest.raises(InputError, match="damaged"):
        push_to_hub(folder, "someone/agent")
    assert api.calls == []


def test_refusals_do_not_show_the_token(exported: Path, api: type[RecordedApi]) -> None:
    api.failure = ValueError(f"Illegal header value 'Bearer {TOKEN}'\nand more")
    with pytest.raises(InputError, match="someone/agent cannot be pushed to the hub: Illegal header") as raised:
        push_to_hub(exported, "someone/agent", token=TOKEN)
    assert TOKEN not in str(raised.value) and "\n" not in str(raised.value)


def test_the_command(
    checkpoint: Path, tmp_path: Path, api: type[RecordedApi], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    options = ["export", "--checkpoint", str(checkpoint), "--out", str(tmp_path / "agent")]
    assert cli.main([*options, "--push", "someone/agent", "--private"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "pushed → hub:someone/agent/commit/1"
    assert api.calls[0] == ("HfApi", {"token": None}) and api.calls[1][1]["private"] is True
    assert api.calls[2][1]["files"] == OWN_FILES
    assert cli.main([*options, "--push", "someone/agent", "--json"]) == 0
    last = json.loads(capsys.readouterr().out)
    assert last["pushed"] == "hub:someone/agent/commit/1" and last["files"] == OWN_FILES
    assert TOKEN not in printed.out + printed.err
    api.failure = OSError("403 Forbidden: you may not.\nMore on the matter")
    assert cli.main([*options, "--push", "someone/agent"]) == 2
    error = capsys.readouterr().err
    assert error == "corag export: someone/agent cannot be pushed to the hub: 403 Forbidden: you may not\n"


@pytest.mark.parametrize(("option", "needed"), [(["--private"], "push"), (["--split", "val"], "labels")])
def test_options_that_need_another(
    checkpoint: Path, tmp_path: Path, option: list[str], needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["export", "--checkpoint", str(checkpoint), "--out", str(tmp_path / "agent"), *option]) == 2
    assert f"--{needed}, which was not given" in capsys.readouterr().err
    assert not (tmp_path / "agent").exists()

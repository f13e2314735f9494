"""The index of cross-fitted agents: which of them alone may be asked what was labelled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from corag_search.agent import ConfigurationAgent
from corag_search.errors import InputError
from corag_search.files import replacing_file, sha256_of
from corag_search.weights_directory import CONFIG_FILE, WEIGHTS_FILE

INDEX = "agents.json"
FORMAT, VERSION = "corag-cross-fitted-agents", 1
_ANEW = "run `corag crossfit` into another directory"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The agent of one fold. Of all that was labelled it has not seen these questions, and every other one.

    Attributes:
        fold: From 0.
        directory: Of its export, from where the index lies.
        sha256: Of its `config.json`, which has that of the weights.
        questions: Ids in the label table.
        documents: That hold their gold passages, as the label table names them.
    """

    fold: int
    directory: str
    sha256: str
    questions: tuple[str, ...]
    documents: tuple[str, ...]

    def load(self, root: Path) -> ConfigurationAgent:
        """The agent.

        Args:
            root: Where the index lies.

        Raises:
            InputError: It is not there, or another one, of which it is not known what it has seen.
        """
        path = root / self.directory
        for name in (CONFIG_FILE, WEIGHTS_FILE):
            if not (path / name).is_file():
                raise InputError(f"{path} has no {name}; run `corag crossfit` again, which trains what is missing")
        agent = ConfigurationAgent.load(path)
        if sha256_of(path / CONFIG_FILE) != self.sha256:
            raise InputError(
                f"{path} is not the agent that {INDEX} names, so what it has seen is not known; run `corag crossfit` "
                "again"
            )
        return agent


@dataclass(frozen=True)
class CrossFitted:
    """Agents of one configuration, one for each fold of a label table.

    Attributes:
        folds: In all.
        labels: `digest` and `fingerprint` of the label table.
        training: The configuration of `corag fit`, without paths.
        agents: By fold; fewer than `folds` while they are being trained.

    Raises:
        InputError: A question or a document is held out twice, so that it was seen by all.
    """

    folds: int
    labels: Mapping[str, Any]
    training: Mapping[str, Any]
    agents: tuple[HeldOut, ...] = ()

    def __post_init__(self) -> None:
        for what in ("questions", "documents"):
            counts = Counter(name for agent in self.agents for name in getattr(agent, what))
            if twice := [name for name, count in counts.items() if count > 1]:
                raise InputError(f"{INDEX}: {what} has {twice[0]!r} twice, so every agent has seen it; {_ANEW}")

    @classmethod
    def read(cls, directory: Path) -> CrossFitted:
        """Reads what `write` wrote.

        Raises:
            InputError: There is no index, or it is none of ours.
        """
        path = directory / INDEX
        if not path.is_file():
            raise InputError(f"{path} does not exist; `corag crossfit` makes it")
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
            if (given.pop("format"), given.pop("format_version")) != (FORMAT, VERSION):
                raise ValueError("another format")
            agents = tuple(
                HeldOut(**{**one, "questions": tuple(one["questions"]), "documents": tuple(one["documents"])})
                for one in given.pop("agents")
            )
            index = cls(**given, agents=agents)
            if not index._is_sound():
                raise ValueError("a value of another type")
            return index
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path} is not readable as version {VERSION} of {FORMAT}; {_ANEW}") from None

    def _is_sound(self) -> bool:
        """Whether all values are of the types that are declared; JSON may have others."""
        texts = [(one.directory, one.sha256, *one.questions, *one.documents) for one in self.agents]
        return (
            isinstance(self.folds, int)
            and isinstance(self.training, Mapping)
            and isinstance(self.labels["digest"], str)
            and isinstance(self.labels["fingerprint"], Mapping)
            and all(one.fold in range(self.folds) for one in self.agents)
            and all(isinstance(text, str) for own in texts for text in own)
        )

    def write(self, directory: Path) -> None:
        """Writes the index into the directory, all or nothing."""
        with replacing_file(directory / INDEX) as partial:
            head = {"format": FORMAT, "format_version": VERSION}
            partial.write_text(json.dumps({**head, **asdict(self)}, indent=2, ensure_ascii=False) + "\n", "utf-8")

    def folds_of(self, data: str, question_id: str, documents: Iterable[str]) -> set[int]:
        """Folds that hold a question or its documents; none where no agent has seen anything of them.

        Where it is one, that fold's agent may be asked; where there are several, every agent has seen something.

        Args:
            data: Name of the data set.
            question_id: Its id there; the label table has it as DATA/ID where it holds several data sets.
            documents: Names of the documents, by which an article's languages and the labels of other data sets over
                it are known too.
        """
        named = self.labels["fingerprint"].get("data")
        labelled = named if isinstance(named, Mapping) else {}
        folds = {self._documents[name] for name in documents if name in self._documents}
        own = f"{data}/{question_id}" if "parts" in labelled else question_id
        # Ids of another data set, such as q1, say nothing.
        if own in self._questions and ("parts" in labelled or labelled.get("name") in (None, data)):
            folds.add(self._questions[own])
        return folds

    @cached_property
    def _questions(self) -> dict[str, int]:
        return {name: agent.fold for agent in self.agents for name in agent.questions}

    @cached_property
    def _documents(self) -> dict[str, int]:
        return {name: agent.fold for agent in self.agents for name in agent.documents}

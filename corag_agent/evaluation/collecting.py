"""From the ledger to the frames of an evaluation run."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from corag_agent.evaluation.job import Job, Work
from corag_agent.evaluation.plan import Unit
from corag_agent.evaluation.records import KEY, PARTIAL, SCHEMAS, SCORES, SECONDS, STAGES, EvaluationRun
from corag_agent.evaluation.scoring import NAN
from data_prep.labelling import HUMAN
from data_prep.privacy import without_folders

_Rows = list[dict[str, Any]]


def collect(job: Job, done: Mapping[str, Any], failed: Mapping[str, str]) -> EvaluationRun:
    """The frames of all that the plan asks for and the ledger has.

    Args:
        job: The plan.
        done: The ledger's records.
        failed: The ledger's errors.

    Raises:
        InputError: The records do not fit together.
    """
    rows: dict[str, _Rows] = {part: [] for part in SCHEMAS}
    asked: dict[tuple[str, str], dict[str, Any]] = {}
    chunks: dict[tuple[str, int, str], dict[str, Any]] = {}
    for experiment, planned in job.plan:
        for work in job.work(experiment, planned):
            known = len(rows["records"]) + len(rows["structure"])
            for key, unit in job.keys(work).items():
                if (record := done.get(key)) is not None:
                    rows["records"].append(_record_row(work, unit, record))
                    rows["answers"].append(_key_of(work, unit) | {"answer": record["answer"]})
                    chunks |= _chunks(job, work, unit, record)
                elif key in failed:
                    rows["records"].append(_failed_row(work, unit, failed[key]))
            for key, unit in job.structure_keys(work).items():
                if key in done:
                    rows["structure"].append(_structure_row(work, unit, done[key]))
            place = (work.data.source.name, work.question.id)
            if place not in asked and len(rows["records"]) + len(rows["structure"]) > known:
                asked[place] = _question_row(job, work, done)
    rows["questions"] = list(asked.values())
    names = ("dataset", "chunk_size", "chunk_id")
    rows["chunks"] = [dict(zip(names, key, strict=True)) | chunk for key, chunk in chunks.items()]
    frames = {part: pd.DataFrame(own, columns=SCHEMAS[part].names) for part, own in rows.items()}
    if not len(frames["structure"]):
        del frames["structure"]
    return EvaluationRun(**frames, settings=run_settings(job))


def run_settings(job: Job) -> dict[str, Any]:
    """The resolved configuration with fingerprints, versions and date; of paths only the last part."""
    config = job.evaluator.components.config
    return {
        "pipeline": without_folders(config.to_dict()),
        "data": {
            name: {
                **without_folders({k: v for k, v in asdict(data.source).items() if k != "stores"}),
                "documents": len(data.dataset.documents),
                "questions": len(data.questions),
                "fingerprint": data.documents_fingerprint,
                "chunks": {str(size): count for size, count in job.store_sizes(data).items()},
            }
            for name, data in job.data.items()
        },
        "runs": [asdict(experiment) for experiment, _ in job.plan],
        "reference": job.options.reference,
        "seed": job.options.seed,
        "fingerprints": job.fingerprint() | {"agent": job.agents and job.agents.fingerprint},
        "versions": _versions(),
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _key_of(work: Work, unit: Unit) -> dict[str, Any]:
    of_question = (work.data.source.name, work.question.id)
    return dict(zip(KEY, (*of_question, *(getattr(unit, name) for name in KEY[2:])), strict=True))


def _about(work: Work) -> dict[str, str]:
    question = work.question
    return {"domain": question.domain, "kind": question.kind, "language": question.language}


def _record_row(work: Work, unit: Unit, record: Mapping[str, Any]) -> dict[str, Any]:
    copied = ("order", "chunk_ids", *SCORES, "prompt_tokens", "answer_tokens", "evaluations", "on_distribution")
    return {
        **_key_of(work, unit),
        **_about(work),
        **{name: record[name] for name in copied},
        **{name: record.get(name, NAN) for name in PARTIAL},
        **{f"seconds_{stage}": record["seconds"].get(stage, NAN) for stage in STAGES},
        "settings": json.dumps(record["settings"], sort_keys=True),
        "error": "",
    }


def _failed_row(work: Work, unit: Unit, error: str) -> dict[str, Any]:
    return {
        **_key_of(work, unit),
        **_about(work),
        **dict.fromkeys((*SCORES, *PARTIAL, *SECONDS), NAN),
        **dict.fromkeys(("prompt_tokens", "answer_tokens", "evaluations"), 0),
        "order": [],
        "chunk_ids": [],
        "settings": json.dumps(unit.settings(), sort_keys=True),
        "on_distribution": True,
        "error": error,
    }


def _question_row(job: Job, work: Work, done: Mapping[str, Any]) -> dict[str, Any]:
    question, dataset = work.question, work.data.dataset
    reference = question.answers[0] if job.options.reference == HUMAN else done.get(job.reference_key(work), "")
    return {
        "dataset": work.data.source.name,
        "question_id": question.id,
        **_about(work),
        "split": work.data.split_of[question.id],
        "question": question.text,
        "reference": reference,
        "human_answers": list(question.answers),
        "gold": [dataset.passage_text(passage) for passage in question.gold_passages],
        "documents": list(dict.fromkeys(passage.document for passage in question.gold_passages)),
    }


def _structure_row(work: Work, unit: Unit, record: Mapping[str, Any]) -> dict[str, Any]:
    key = {name: value for name, value in _key_of(work, unit).items() if name in SCHEMAS["structure"].names}
    return key | {"candidates": unit.candidates, **record}


def _chunks(
    job: Job, work: Work, unit: Unit, record: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, int, str], dict[str, Any]]]:
    """Text and cost of each chosen chunk, by data set, chunk size and id."""
    corpus = job.corpus(work.data, unit.chunk_size)
    for name in record["chunk_ids"]:
        summary = record["texts"].get(name)
        if summary is None:
            chunk = corpus.store.chunks[corpus.rows[name]]
            text, cost = chunk.text, chunk.cost
        else:
            text, cost = summary, job.evaluator.components.tokenizer.count([summary])[0]
        yield (work.data.source.name, unit.chunk_size, name), {"text": text, "cost": cost}


def _versions() -> dict[str, str]:
    """Of Python, of this package and of those that compute benefits and scores."""
    installed = {"python": platform.python_version()}
    for package in ("corag", "numpy", "torch", "transformers", "faiss-cpu", "xllamacpp", "rouge-score"):
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package).partition("+")[0]
    return installed


def _commit() -> str | None:
    """Of the checkout that this code lies in; None where it was installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()

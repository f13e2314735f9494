"""Peak memory and speed of the readers on generated files of a gigabyte.

python benchmarks/readers.py [--gigabytes 1] [--formats msmarco,squad] [--folder /tmp]

Each file is read in two child processes: all documents one at a time, and a sample of 1,000 questions with the
documents that belong to them. The peak is the child's largest resident set (VmHWM, Linux), Python itself included.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from corag_agent.evaluation.text_table import text_table

SAMPLE = 1000
_RANDOM = random.Random(0)
_WORDS = ["".join(_RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=_RANDOM.randint(2, 10))) for _ in range(20_000)]


def passage(words: int = 55) -> str:
    return " ".join(_RANDOM.choices(_WORDS, k=words)).capitalize() + "."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--formats", default=",".join(FILES))
    parser.add_argument("--folder", default=None)
    parser.add_argument("--read", nargs=2, metavar=("SOURCE", "WHAT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        read(*arguments.read)
        return
    rows = []
    for name in arguments.formats.split(","):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            source = f"{name}:{FILES[name](Path(folder), int(arguments.gigabytes * 1e9))}"
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) / 1e9
            for what in ("documents", "sample"):
                command = [sys.executable, __file__, "--read", source, what]
                done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                counts = f"{done['documents']:,} documents" + (
                    f", {done['questions']:,} questions" if what == "sample" else ""
                )
                rows.append(
                    (name, f"{size:.2f} GB", what, counts, f"{done['seconds']:.0f} s", f"{done['peak_mb']:.0f} MB")
                )
                print(*rows[-1], sep="  ", file=sys.stderr)
    print(text_table(("format", "files", "read", "found", "time", "peak memory"), rows))


def read(source: str, what: str) -> None:
    """What a child process does."""
    from data_prep.readers import ReaderOptions, iterate_documents, read_dataset

    start = time.perf_counter()
    if what == "documents":
        found = {"documents": sum(1 for _ in iterate_documents(source))}
    else:
        data = read_dataset(source, ReaderOptions(sample=SAMPLE))
        found = {"documents": len(data.documents), "questions": len(data.questions)}
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1000
    print(json.dumps({**found, "seconds": seconds, "peak_mb": peak}))


# --- generated files


def msmarco(folder: Path, size: int) -> Path:
    """`{column: {row: value}}`, as the official file."""
    path = folder / "train_v2.1.json"
    rows = size // 4200
    columns: dict[str, Callable[[int], object]] = {
        "answers": lambda _: [passage(12)],
        "passages": lambda n: [
            {"is_selected": int(k == n % 10), "passage_text": passage(), "url": f"http://example.org/{n}/{k}"}
            for k in range(10)
        ],
        "query": lambda n: f"what is {passage(4)}",
        "query_id": lambda n: n,
        "query_type": lambda _: "DESCRIPTION",
        "wellFormedAnswers": lambda _: "[]",
    }
    with path.open("w") as file:
        for number, (column, value) in enumerate(columns.items()):
            file.write(("{" if number == 0 else ", ") + json.dumps(column) + ": {")
            for n in range(rows):
                file.write((", " if n else "") + f'"{n}": ' + json.dumps(value(n)))
            file.write("}")
        file.write("}")
    return path


def _squad_articles(size: int) -> Iterator[dict]:
    written = n = 0
    while written < size:
        paragraphs = []
        for k in range(40):
            context = passage(120)
            answer = context.split()[60]
            qas = [
                {
                    "id": f"{n}-{k}-{i}",
                    "question": f"Which is {passage(6)}?",
                    "answers": [{"text": answer, "answer_start": context.index(f" {answer} ") + 1}],
                }
                for i in range(4)
            ]
            paragraphs.append({"context": context, "qas": qas})
        article = {"title": f"Article {n}", "paragraphs": paragraphs}
        written += len(json.dumps(article)) + 2
        n += 1
        yield article


def squad(folder: Path, size: int) -> Path:
    path = folder / "train.json"
    with path.open("w") as file:
        file.write('{"version": "1.1", "data": [')
        for n, article in enumerate(_squad_articles(size)):
            file.write((", " if n else "") + json.dumps(article))
        file.write("]}")
    return path


def hotpotqa(folder: Path, size: int) -> Path:
    path = folder / "train.json"
    written = n = 0
    with path.open("w") as file:
        file.write("[")
        while written < size:
            context = [[f"Title {n} {k}", [f"{passage(25)} " for _ in range(4)]] for k in range(10)]
            facts = [[context[0][0], 1], [context[1][0], 2]]
            row = {"_id": f"h{n}", "question": f"Which {passage(12)}?", "answer": passage(3), "type": "bridge"}
            written += file.write(
                (", " if n else "") + json.dumps({**row, "context": context, "supporting_facts": facts})
            )
            n += 1
        file.write("]")
    return path


def jsonl(folder: Path, size: int) -> Path:
    written = n = 0
    with (folder / "documents.jsonl").open("w") as documents, (folder / "questions.jsonl").open("w") as questions:
        while written < size:
            text = f"{passage(300)} Number {n} is here."
            gold = [{"document": f"d{n}", "text": f"Number {n} is here."}]
            written += documents.write(json.dumps({"id": f"d{n}", "text": text}) + "\n")
            written += questions.write(
                json.dumps({"id": f"q{n}", "question": f"Where is {n}?", "gold_passages": gold}) + "\n"
            )
            n += 1
    return folder


def msmarco_ranking(folder: Path, size: int) -> Path:
    written = n = 0
    with (folder / "collection.tsv").open("w") as file:
        while written < size:
            written += file.write(f"{n}\t{passage()}\n")
            n += 1
    queries = range(0, n, 10)
    (folder / "queries.train.tsv").write_text("".join(f"{q}\twhat is {passage(4)}\n" for q in queries))
    (folder / "qrels.train.tsv").write_text("".join(f"{q}\t0\t{q + 5 if q + 5 < n else 0}\t1\n" for q in queries))
    return folder


FILES: dict[str, Callable[[Path, int], Path]] = {
    "msmarco": msmarco,
    "msmarco-ranking": msmarco_ranking,
    "squad": squad,
    "hotpotqa": hotpotqa,
    "jsonl": jsonl,
}

if __name__ == "__main__":
    main()

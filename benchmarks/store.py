"""The figures behind the store: time beside bare FAISS, loading, and recall of index kinds and retrievals.

    python benchmarks/store.py speed 1000 10000 100000 1000000
    python benchmarks/store.py recall xquad.en.dev.json covidqa.dev.json xquad.zh.dev.json

Each prints its tables as Markdown. Times are CPU time of one thread. `speed` needs about 5 GB of memory and 3 GB of
disk (in the directory for temporary files) for a million vectors; the data of `recall` are files in SQuAD layout.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from corag_search import Chunk, VectorStore
from corag_search.embedders.minilm import MiniLMEmbedder
from corag_search.pipeline_config import PipelineConfig
from corag_search.retrieval import RETRIEVALS, make_retriever
from corag_search.store import INDEX, EmbedderIdentity, FlatIndex, HNSWIndex, IndexKind, IVFPQIndex
from data_prep.corpus import build_store
from data_prep.dataset import Question
from data_prep.readers import read_dataset

DIMENSION, INTRINSIC, NOISE = 384, 32, 0.5
COUNTS = (20, 60)  # chunks retrieved, for times
DEPTHS = (5, 10, 20, 60)  # chunks retrieved, for recall
BLOCK = 50_000
IDENTITY = EmbedderIdentity("synthetic", DIMENSION, "0")
KINDS: dict[str, IndexKind] = {
    "flat": FlatIndex(),
    "hnsw": HNSWIndex(),
    "ivfpq": IVFPQIndex(),
    "ivfpq-codes": IVFPQIndex(refine=None),
}


def main() -> None:
    faiss.omp_set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("speed", help="synthetic vectors: time, memory, recall of the index kinds")
    one.add_argument("sizes", nargs="+", type=int, help="numbers of vectors")
    one.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    one.add_argument("--queries", type=int, default=200)
    one.add_argument("--repeats", type=int, default=7)
    one.add_argument("--largest_graph", type=int, default=100_000, help="vectors that an HNSW graph is made of at most")
    two = parts.add_parser("recall", help="real questions: recall of the retrievals and of the index kinds")
    two.add_argument("data", nargs="+", help="files in SQuAD layout")
    two.add_argument("--questions", type=int, default=300)
    three = parts.add_parser("open", help="load a store and print seconds and memory; `speed` calls it")
    three.add_argument("directory")
    three.add_argument("--verify", type=int, choices=[0, 1], default=1)
    given = parser.parse_args()
    if given.part == "speed":
        speed(given.sizes, given.kinds, given.queries, given.repeats, given.largest_graph)
    elif given.part == "recall":
        recall(given.data, given.questions)
    else:
        print(json.dumps(opened(given.directory, bool(given.verify))))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    if not rows:
        return
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


# ---- synthetic vectors


def blocks(count: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Unit vectors that lie near a subspace of `INTRINSIC` dimensions, as embeddings of texts do; in blocks.

    (Isotropic ones have no neighbours to speak of: every approximate index fails on them.)
    """
    axes = np.random.default_rng(0).normal(size=(INTRINSIC, DIMENSION)).astype(np.float32)
    draw = np.random.default_rng([seed, count])
    for start in range(0, count, BLOCK):
        rows = min(BLOCK, count - start)
        block = draw.standard_normal((rows, INTRINSIC), np.float32) @ axes / np.float32(INTRINSIC**0.5)
        block += NOISE * draw.standard_normal((rows, DIMENSION), np.float32)
        yield block / np.linalg.norm(block, axis=1, keepdims=True)


def vectors_of(count: int, seed: int) -> NDArray[np.float32]:
    """Those of `blocks`, `[count, DIMENSION]`."""
    vectors = np.empty((count, DIMENSION), np.float32)
    for number, block in enumerate(blocks(count, seed)):
        vectors[number * BLOCK : number * BLOCK + len(block)] = block
    return vectors


def chunks_of(count: int) -> list[Chunk]:
    """Chunks of about 96 tokens."""
    text = "The barrage on the estuary drives turbines with both the rising and the falling tide; " * 5
    return [
        Chunk(f"d{n // 10}:{n % 10}", f"{n} {text}", 96, {"document": f"d{n // 10}", "start": 0, "end": len(text)})
        for n in range(count)
    ]


def speed(sizes: Sequence[int], kinds: Sequence[str], queries: int, repeats: int, largest_graph: int) -> None:
    """Time a query beside bare FAISS, recall of the approximate kinds, loading and memory."""
    times: list[list[object]] = []
    found: list[list[object]] = []
    loads: list[list[object]] = []
    for size in sizes:
        asked = vectors_of(queries, seed=1)
        exact: dict[int, NDArray[np.int64]] = {}
        for name in ("flat", *(kind for kind in kinds if kind != "flat")):
            if name == "hnsw" and size > largest_graph:
                continue
            with tempfile.TemporaryDirectory() as folder:
                seconds = built(size, KINDS[name], Path(folder) / "store")
                gc.collect()
                store = VectorStore.load(Path(folder) / "store")
                path = str(Path(folder) / "store" / INDEX)
                bare = [faiss.read_index(path), faiss.read_index(path, faiss.IO_FLAG_MMAP_IFC)]
                for k in COUNTS:
                    if isinstance(kind := KINDS[name], HNSWIndex):
                        for index in bare:
                            index.hnsw.efSearch = kind.list_length(k)
                    rows = store.search_rows(asked, k)[0]
                    exact.setdefault(k, rows)
                    times.append([f"{size:,}", name, k, *compared(store, bare, asked, k, repeats)])
                    if name != "flat":
                        found.append([f"{size:,}", name, k, f"{shared(rows, exact[k]):.3f}", f"{seconds:.0f} s"])
                del store, bare
                gc.collect()
                loads.append([f"{size:,}", name, *loading(Path(folder) / "store")])
            print(f"{size:,} {name} done", file=sys.stderr, flush=True)
    table(
        "Time a query: bare FAISS (rows returned) and store (mapped, chunks returned)",
        [
            "vectors",
            "index",
            "k",
            "FAISS in memory",
            "FAISS mapped",
            "store",
            "store / in memory",
            "store / mapped",
            "first",
        ],
        times,
    )
    table("Recall of approximate indexes against flat", ["vectors", "index", "k", "recall", "built in"], found)
    table(
        "Loading in a new process, and its memory (MB) without Python and FAISS",
        [
            "vectors",
            "index",
            "its file",
            "all files",
            "verified",
            "not verified",
            "own memory",
            "own memory after 100 queries",
        ],
        loads,
    )


def built(size: int, kind: IndexKind, directory: Path) -> float:
    """Write a store of synthetic vectors; seconds that making the index took."""
    vectors, chunks = vectors_of(size, seed=0), chunks_of(size)
    start = time.process_time()
    store = VectorStore.from_embeddings(chunks, vectors, IDENTITY, index=kind)
    seconds = time.process_time() - start
    store.save(directory)
    return seconds


def shared(rows: NDArray[np.int64], exact: NDArray[np.int64]) -> float:
    """Mean share of the exact nearest that is among those found."""
    return float(np.mean([len(np.intersect1d(a, b)) / len(b) for a, b in zip(rows, exact, strict=True)]))


def compared(store: VectorStore, bare: Sequence[Any], asked: NDArray[np.float32], k: int, repeats: int) -> list[str]:
    """Times a query, measured in turns so that a busy machine slows all alike, and the store's ratios to the others."""
    singles = [query[None] for query in asked]

    def with_store() -> None:
        for query in asked:
            store.search(query, k)

    def with_faiss(index: Any) -> Callable[[], None]:
        def search() -> None:
            for query in singles:
                index.search(query, k)

        return search

    first = clocked(with_store)
    work = [*map(with_faiss, bare), with_store]
    for run in work:
        run()
    turns = [[clocked(run) for run in work] for _ in range(repeats)]
    columns = list(zip(*turns, strict=True))
    ratios = [sorted(own / theirs for own, theirs in zip(columns[-1], column, strict=True)) for column in columns[:-1]]
    return [
        *(duration(statistics.median(column) / len(asked)) for column in columns),
        *(f"{statistics.median(own):.2f} ({own[0]:.2f}–{own[-1]:.2f})" for own in ratios),
        duration(first / len(asked)),
    ]


def clocked(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def loading(directory: Path) -> list[str]:
    """What `open` says, in words."""
    size = sum(file.stat().st_size for file in directory.iterdir())
    index = (directory / INDEX).stat().st_size
    command = [sys.executable, __file__, "open", str(directory), "--verify"]
    with_check, without = (
        json.loads(subprocess.run([*command, verify], check=True, capture_output=True, text=True).stdout)
        for verify in "10"
    )
    return [
        f"{index / 1e6:,.0f} MB",
        f"{size / 1e6:,.0f} MB",
        f"{with_check['seconds'] * 1e3:.0f} ms",
        f"{without['seconds'] * 1e3:.0f} ms",
        f"{without['own']:.0f}",
        f"{without['own_after']:.0f}",
    ]


def opened(directory: str, verify: bool) -> dict[str, float]:
    """Seconds to load a store, and megabytes that are the process' own: pages of files, which the system drops when it
    needs them, are not counted."""
    before = own_memory()
    start = time.process_time()
    store = VectorStore.load(directory, verify=verify)
    seconds = time.process_time() - start
    after_load = own_memory()
    for query in vectors_of(100, seed=2):
        store.search(query, COUNTS[0])
    return {"seconds": seconds, "own": after_load - before, "own_after": own_memory() - before}


def own_memory() -> float:
    """Resident memory that is no file's, in megabytes (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("RssAnon:")[1].split()[0]) / 1e3


# ---- real questions


def recall(sources: Sequence[str], count: int) -> None:
    """How often candidates hold what answers the question, and how far index kinds agree on real embeddings."""
    rows: list[list[object]] = []
    agreement: list[list[object]] = []
    embedder = MiniLMEmbedder()
    for source in sources:
        dataset = read_dataset(f"squad:{source}")
        store = build_store(dataset, PipelineConfig(chunk_size=96), embedder)
        questions = dataset.select(count, 0).with_gold
        asked = embedder.encode([question.text for question in questions])
        for name in RETRIEVALS:
            retriever = make_retriever(name, store, embedder)
            candidates = [
                retriever.retrieve(question.text, max(DEPTHS), embedding=vector)
                for question, vector in zip(questions, asked, strict=True)
            ]
            for judge in (overlaps, answers):
                ranks = [first(question, own, judge) for question, own in zip(questions, candidates, strict=True)]
                shares = [f"{np.mean([rank < k for rank in ranks]):.3f}" for k in DEPTHS]
                rows.append([Path(source).stem, len(questions), f"{len(store):,}", name, judge.__name__, *shares])
        agreement += agreeing(Path(source).stem, store, asked)
    depths = [f"k = {k}" for k in DEPTHS]
    table("Recall of retrievals", ["data", "questions", "chunks", "retrieval", "a chunk", *depths], rows)
    table("Recall of index kinds against flat, real embeddings", ["data", "chunks", "index", *depths], agreement)


def overlaps(question: Question, chunk: Chunk) -> bool:
    """Whether a chunk has a character in common with a gold passage."""
    return any(
        chunk.metadata["document"] == gold.document
        and chunk.metadata["start"] < gold.end
        and chunk.metadata["end"] > gold.start
        for gold in question.gold_passages
    )


def answers(question: Question, chunk: Chunk) -> bool:
    """Whether it also has an answer in it, word for word."""
    return overlaps(question, chunk) and any(answer in chunk.text for answer in question.answers)


def first(question: Question, candidates: Sequence[Chunk], judge: Callable[[Question, Chunk], bool]) -> int:
    """Rank of the first chunk that will do, from 0; beyond all depths when there is none."""
    return next((rank for rank, chunk in enumerate(candidates) if judge(question, chunk)), max(DEPTHS))


def agreeing(name: str, store: VectorStore, asked: NDArray[np.float32]) -> list[list[object]]:
    """Recall of each approximate kind over a store's own vectors."""
    rows: list[list[object]] = []
    depths = [k for k in DEPTHS if k <= len(store)]
    for kind in KINDS:
        if kind == "flat" or (kind.startswith("ivfpq") and len(store) < 256):
            continue
        other = VectorStore.from_embeddings(store.chunks, store.embeddings(), store.embedder, index=KINDS[kind])
        shares = [shared(other.search_rows(asked, k)[0], store.search_rows(asked, k)[0]) for k in depths]
        rows.append([name, f"{len(store):,}", kind, *(f"{share:.3f}" for share in shares)])
    return rows


if __name__ == "__main__":
    main()

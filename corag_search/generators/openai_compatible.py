"""Any endpoint that speaks OpenAI's chat completions: vLLM, Ollama, llama.cpp, a cloud."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx

from corag_search.endpoint import (
    check_address,
    check_key_variable,
    check_timeout,
    error_detail,
    error_reason,
    start_of,
    usable_key,
    without_key,
)
from corag_search.errors import InputError
from corag_search.generators.base import Generation, GeneratorError
from corag_search.packaged import fingerprint
from corag_search.registry import whole
from corag_search.retry import RetryPolicy

DEFAULT_KEY = "OPENAI_API_KEY"
_OWN_FIELDS = frozenset({"messages", "stream"})


class OpenAICompatibleGenerator:
    """A model behind `POST {base_url}/chat/completions`. Safe to share between threads.

    The key is read from the environment for each request and kept nowhere.

    Attributes:
        name: "openai".
        context_length: As given, None when not known.
    """

    name = "openai"

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key_env: str = DEFAULT_KEY,
        context_length: int | None = None,
        temperature: float = 0.0,
        seed: int | None = 0,
        timeout: float = 120.0,
        retries: int = 5,
        backoff: float = 0.5,
        longest_wait: float = 60.0,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; nothing is sent yet.

        Args:
            base_url: Up to and with the version: "http://localhost:8000/v1".
            model: As the endpoint names it.
            api_key_env: Environment variable with the key. The default one may be unset, for servers without keys.
            context_length: Tokens of prompt, template and answer together, where it is known.
            temperature: 0 for the likeliest token each time.
            seed: Of the sampling; None leaves it out for endpoints that refuse it.
            timeout: Seconds without a byte from the endpoint.
            retries: Attempts after the first on 429, 5xx and broken connections.
            backoff: Seconds before the first retry; it doubles each time, with jitter.
            longest_wait: Seconds that one wait may take; an endpoint that asks for more is given up.
            extra_body: More fields of the request, as `{"cache_prompt": False}` of llama.cpp.

        Raises:
            InputError: An unusable value, or `api_key_env` names a variable that is not set.
        """
        check_address(base_url, "http://localhost:8000/v1")
        if not model:
            raise InputError(f"model must name a model of the endpoint, got {model!r}")
        if api_key_env != DEFAULT_KEY:
            check_key_variable(api_key_env)
        check_timeout(timeout)
        if not 0 <= temperature < float("inf"):
            raise InputError(f"temperature must be a finite number, at least 0, got {temperature!r}")
        self.context_length = None if context_length is None else whole("context_length", context_length)
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._key_variable = api_key_env
        overridden = _OWN_FIELDS.intersection(extra_body or {})
        if overridden:
            raise InputError(f"extra_body must not hold {min(overridden)!r}, which each request has of its own")
        self._body = {"model": model, "temperature": temperature, **({} if seed is None else {"seed": seed})}
        self._body |= dict(extra_body or {})
        try:
            json.dumps(self._body, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"extra_body must be made of JSON values: {error}") from None
        self._retry = RetryPolicy(retries, backoff, longest_wait)
        self._client = httpx.Client(timeout=timeout)

    def __repr__(self) -> str:
        return f"OpenAICompatibleGenerator({self._url!r}, model={self._body['model']!r})"

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the address, the model's name and the sampling; the weights behind it are out of sight."""
        return fingerprint([], {"name": self.name, "url": self._url, **self._body})

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        """The answer to one prompt.

        Raises:
            GeneratorError: The endpoint refused, failed, or answered something else than a completion.
        """
        key = usable_key(self._key_variable)
        with self._post(self._request(prompt, max_tokens), key) as response:
            answer = self._parsed(response.content, response.headers.get("content-type", ""), key)
        return Generation(
            self._content(answer, key), _told(answer, "prompt_tokens"), _told(answer, "completion_tokens")
        )

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """The same answer, piece by piece. Retries end with the first byte of the answer.

        Raises:
            GeneratorError: As `generate`, or the stream broke off.
        """
        return self._pieces(self._request(prompt, max_tokens) | {"stream": True})

    def _pieces(self, request: Mapping[str, Any]) -> Iterator[str]:
        key = usable_key(self._key_variable)
        with self._post(request, key) as response:
            kind = response.headers.get("content-type", "")
            if "text/event-stream" not in kind:
                raise self._error(f"answered {kind or 'something'} instead of a stream of events; check base_url", key)
            finished = False
            try:
                for line in _lines(response):
                    field, _, data = line.partition(":")
                    if field != "data":  # comments, event names, blank lines
                        continue
                    if data.strip() == "[DONE]":
                        return
                    for content, ended in self._written(self._parsed(data.encode(), kind, key)):
                        finished = finished or ended
                        if content:
                            yield content
            except httpx.HTTPError as error:
                raise self._error(f"broke off the stream: {error_reason(error)}") from error
            if not finished:
                raise self._error("ended the stream in the middle of the answer; ask again")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": prompt}]
        return {"messages": messages, "max_tokens": whole("max_tokens", max_tokens), **self._body}

    @contextmanager
    def _post(self, body: Mapping[str, Any], key: str | None) -> Iterator[httpx.Response]:
        """The response of status 200, its content not read yet if it streams; retries until there is one."""
        if self._client.is_closed:
            raise GeneratorError(f"{self!r} was closed; load it again")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        content = json.dumps(body).encode()
        for attempt in self._retry.attempts():
            try:
                request = self._client.build_request("POST", self._url, content=content, headers=headers)
                response = self._client.send(request, stream=bool(body.get("stream")))
            except (httpx.TransportError, httpx.DecodingError) as error:
                attempt.failed(self._error(f"cannot be reached or broke off: {error_reason(error)}; is the server up?"))
                continue
            try:
                if response.status_code == httpx.codes.OK:
                    yield response
                    return
                failure = self._refusal(response, key)
                if response.status_code not in RetryPolicy.STATUSES:
                    raise failure
                wanted = response.headers.get("retry-after")
            finally:
                response.close()
            attempt.failed(failure, wanted)

    def _refusal(self, response: httpx.Response, key: str | None) -> GeneratorError:
        """The error for a status other than 200."""
        try:
            detail = error_detail(response.read().decode("utf-8", "replace"), key)
        except httpx.HTTPError:
            detail = ""
        status = response.status_code
        hints = {
            401: f"; set the environment variable {self._key_variable} to a key that is valid there",
            403: f"; the key in {self._key_variable} may not use this model",
            404: f"; check base_url (it ends in /v1, as a rule) and the model {self._body['model']!r}",
        }
        return self._error(f"answered {status}{f' ({detail})' if detail else ''}{hints.get(status, '')}")

    def _parsed(self, content: bytes, kind: str, key: str | None) -> dict[str, Any]:
        """The JSON object that an endpoint answers."""
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            start = start_of(content, key)
            if "html" in kind or start.startswith("<"):
                raise self._error("answered an HTML page; check base_url (it ends in /v1, as a rule)") from None
            raise self._error(f"answered what is no JSON, or half of it: {start!r}") from None
        if not isinstance(answer, dict):
            raise self._error(f"answered a JSON {type(answer).__name__}, not a completion; check base_url")
        if answer.get("error"):
            raise self._error(f"failed: {error_detail(json.dumps(answer), key)}")
        return answer

    def _content(self, answer: Mapping[str, Any], key: str | None) -> str:
        """The text of a completion."""
        try:
            choice = answer["choices"][0]
            content = choice["message"]["content"]
        except (KeyError, IndexError, TypeError):
            raise self._error("answered JSON without choices[0].message.content; is it a chat endpoint?") from None
        if not isinstance(content, str):
            raise self._error(
                f"gave no text (finish_reason {choice.get('finish_reason')!r}); raise max_tokens or use another model",
                key,
            )
        return content

    def _written(self, event: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """What an event of a stream adds, and whether it is the last that adds something."""
        try:
            parts = [
                ((choice.get("delta") or {}).get("content") or "", bool(choice.get("finish_reason")))
                for choice in event.get("choices") or ()
            ]
        except (AttributeError, TypeError):
            parts = [(None, False)]
        if not all(isinstance(content, str) for content, _ in parts):
            raise self._error("streamed JSON without choices[].delta.content; is it a chat endpoint?")
        return parts

    def _error(self, what: str, key: str | None = None) -> GeneratorError:
        return GeneratorError(f"{self._url} {without_key(what, key)}")


def _lines(response: httpx.Response) -> Iterator[str]:
    """Lines of a stream of events. They end with CR, LF or both; JSON may hold what else `str.splitlines` cuts at."""
    held = b""
    for part in response.iter_bytes():
        *lines, held = re.split(rb"\r\n|\r|\n", held + part)
        yield from (line.decode("utf-8", "replace") for line in lines)
    yield held.decode("utf-8", "replace")


def _told(answer: Mapping[str, Any], name: str) -> int:
    """A number of tokens; 0 where there is none."""
    usage = answer.get("usage")
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if type(value) is int and value > 0 else 0

"""SmolLM2-135M-Instruct from inside a wheel, run by llama.cpp."""

from __future__ import annotations

import importlib.metadata
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

from corag_search.errors import InputError
from corag_search.generators.base import Generation, GeneratorError
from corag_search.packaged import fingerprint, require
from corag_search.registry import whole
from corag_search.tokenizers import smollm2_gguf

TRAINED_CONTEXT = 8192  # tokens
_END = object()


class SmolLM2Generator:
    """Greedy answers that repeat: no cache between prompts, one slot. Safe to share between threads, one at a time.

    Attributes:
        name: "smollm2".
        context_length: n_ctx.
    """

    name = "smollm2"

    def __init__(self, n_ctx: int = 4096, threads: int = 1, temperature: float = 0.0, seed: int = 0) -> None:
        """Load the model (under a second).

        Args:
            n_ctx: Tokens of prompt, template and answer together, at most 8192.
            threads: CPU threads. More are faster on an idle machine, and slower by far on one whose cores are taken.
            temperature: 0 for the likeliest token each time.
            seed: Of the sampling, where the temperature is above 0.

        Raises:
            InputError: An unusable value, or a package that is not installed.
        """
        if whole("n_ctx", n_ctx) > TRAINED_CONTEXT:
            raise InputError(f"n_ctx must be at most {TRAINED_CONTEXT}, SmolLM2's context, got {n_ctx}")
        if not 0 <= temperature < float("inf"):
            raise InputError(f"temperature must be a finite number, at least 0, got {temperature!r}")
        self.context_length = n_ctx
        self._sampling = {"temperature": temperature, "seed": whole("seed", seed, least=0)}
        self._threads = whole("threads", threads)
        self._path = smollm2_gguf()
        library = require("xllamacpp", "local", "generator 'smollm2'")
        settings = library.CommonParams()
        settings.model.path = str(self._path)
        settings.n_ctx, settings.n_parallel = n_ctx, 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = self._threads
        settings.warmup, settings.verbosity, settings.cache_ram_mib = False, 0, 0
        self._server: Any = library.Server(settings)
        self._lock = threading.Lock()
        # The engine's loop starts in a thread of its own; an engine dropped before that hangs in its destructor.
        self._call(self._request("a", 1))

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights, the engine's version, the sampling and the number of threads."""
        engine = importlib.metadata.version("xllamacpp")
        # The number of threads decides how llama.cpp splits its sums, and so, now and then, a token.
        settings = {"name": self.name, "xllamacpp": engine, "threads": self._threads, **self._sampling}
        return fingerprint([self._path], settings)

    @property
    def address(self) -> str:
        """Where the engine also listens on loopback: an OpenAI-compatible API under `/v1`."""
        return self._running().listening_address

    def generate(self, prompt: str, max_tokens: int) -> Generation:
        """The answer to one prompt.

        Raises:
            InputError: Prompt and answer do not fit in the context.
            GeneratorError: The engine failed, or was closed.
        """
        request = self._request(prompt, max_tokens)
        with self._lock:
            response = self._call(request)
        choice, usage = response["choices"][0], response["usage"]
        self._check_length(choice["finish_reason"], usage, max_tokens)
        return Generation(choice["message"]["content"] or "", usage["prompt_tokens"], usage["completion_tokens"])

    def stream(self, prompt: str, max_tokens: int) -> Iterator[str]:
        """The same answer, piece by piece; leaving the iteration early stops the engine.

        Raises:
            InputError: Prompt and answer do not fit in the context.
            GeneratorError: The engine failed, or was closed.
        """
        request = self._request(prompt, max_tokens) | {"stream": True, "stream_options": {"include_usage": True}}
        return self._pieces(request, max_tokens)

    def _pieces(self, request: Mapping[str, Any], max_tokens: int) -> Iterator[str]:
        pieces: queue.SimpleQueue[Any] = queue.SimpleQueue()
        left = threading.Event()

        def receive(part: Mapping[str, Any]) -> bool:
            pieces.put(part)
            return left.is_set()  # True stops the engine

        def run() -> None:
            try:
                with self._lock:
                    if not left.is_set():
                        self._call(request, receive)
            except Exception as error:  # handed over to the thread that iterates
                pieces.put(error)
            finally:
                pieces.put(_END)

        threading.Thread(target=run, name="smollm2-stream", daemon=True).start()
        reason = None
        try:
            while (part := pieces.get()) is not _END:
                if isinstance(part, Exception):
                    raise part
                _check_error(part)
                for choice in part["choices"]:
                    reason = choice["finish_reason"] or reason
                    if content := choice["delta"].get("content"):
                        yield content
                if part.get("usage"):
                    self._check_length(reason, part["usage"], max_tokens)
        finally:
            left.set()

    def close(self) -> None:
        """Stop the engine once the answer under way is done, and free its memory."""
        with self._lock:
            self._server = None

    def _request(self, prompt: str, max_tokens: int) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": whole("max_tokens", max_tokens),
            "cache_prompt": False,
            **self._sampling,
        }

    def _running(self) -> Any:
        if self._server is None:
            raise GeneratorError("generator 'smollm2' was closed; load it again")
        return self._server

    def _call(self, request: Mapping[str, Any], receive: Callable[[Mapping[str, Any]], bool] | None = None) -> Any:
        """Ask the engine; the caller holds the lock."""
        server = self._running()
        try:
            response = server.handle_chat_completions(dict(request), receive)
        except (RuntimeError, ValueError, TypeError) as error:  # the engine's C++ exceptions, as Cython maps them
            raise GeneratorError(f"generator 'smollm2' did not take the request: {error}") from error
        if response is not None:
            _check_error(response)
        return response

    def _check_length(self, reason: str | None, usage: Mapping[str, int], max_tokens: int) -> None:
        """An answer that ended before `max_tokens` for want of room is no answer."""
        if reason == "length" and usage["completion_tokens"] < max_tokens:
            raise InputError(
                f"a prompt of {usage['prompt_tokens']} tokens and an answer of {max_tokens} do not fit in the context "
                f"of {self.context_length}; lower the budget or max_tokens, or raise n_ctx (up to {TRAINED_CONTEXT})"
            )


def _check_error(response: Mapping[str, Any]) -> None:
    error = response.get("error")
    if not error:
        return
    if error.get("type") == "exceed_context_size_error":
        raise InputError(
            f"a prompt of {error['n_prompt_tokens']} tokens does not fit in the context of {error['n_ctx']}; "
            f"lower the budget, or raise n_ctx (up to {TRAINED_CONTEXT})"
        )
    raise GeneratorError(f"generator 'smollm2' failed: {' '.join(str(error.get('message', error)).split())}")

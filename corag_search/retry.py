"""When and how long to wait before asking an endpoint again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import ClassVar

from corag_search.errors import InputError
from corag_search.registry import whole
from corag_search.texts import shown

LONGEST = 86_400  # seconds, for one wait of any kind


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential back-off with jitter (half to all of each step); `Retry-After` is honoured.

    Attributes:
        retries: Attempts after the first.
        backoff: Seconds before the first retry at most; doubled each time.
        longest_wait: Seconds that one wait may take.
    """

    retries: int
    backoff: float
    longest_wait: float

    STATUSES: ClassVar[frozenset[int]] = frozenset({408, 409, 425, 429, *range(500, 600)} - {501, 505})

    def __post_init__(self) -> None:
        whole("retries", self.retries, least=0)
        for name in ("backoff", "longest_wait"):
            value = getattr(self, name)
            if not 0 <= value <= LONGEST:
                raise InputError(
                    f"{name} must be a number of seconds, at least 0 and at most {LONGEST:,}, got {shown(value)}"
                )

    def attempts(self) -> Iterator[Attempt]:
        """Attempts one after the other; `Attempt.failed` waits, or raises on the last."""
        for number in range(self.retries + 1):
            yield Attempt(self, number)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One of the attempts, counted from 0."""

    policy: RetryPolicy
    number: int

    def failed(
        self, error: RuntimeError, retry_after: str | None = None, abandoned: threading.Event | None = None
    ) -> None:
        """Wait until the next attempt is due.

        Args:
            error: What went wrong; its class takes the message alone.
            retry_after: The header of that name, seconds or a date.
            abandoned: Ends the wait, where it is set: nobody wants the answer any more.

        Raises:
            RuntimeError: Of the error's own class. This was the last attempt, or the endpoint asks to wait longer than
                allowed.
        """
        if self.number == self.policy.retries:
            raise type(error)(f"{error} (after {self.number + 1} attempts)") from error
        ceiling = min(self.policy.backoff * 2.0 ** min(self.number, 64), self.policy.longest_wait)
        wait = random.uniform(ceiling / 2, ceiling)
        asked = _seconds(retry_after)
        if asked is not None:
            if asked > self.policy.longest_wait:
                raise type(error)(
                    f"{error} (it asks to wait {asked:.0f} s, longer than longest_wait={self.policy.longest_wait:g} s)"
                ) from error
            wait = max(wait, asked)
        if wait > 0 and abandoned is not None:
            abandoned.wait(wait)
        elif wait > 0:
            time.sleep(wait)


def _seconds(retry_after: str | None) -> float | None:
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())

"""Addresses, keys and error bodies of HTTP endpoints, shown in messages without secrets."""

from __future__ import annotations

import json
import os

import httpx

from corag_search.errors import InputError
from corag_search.retry import LONGEST
from corag_search.texts import shown


def check_address(base_url: str, example: str) -> None:
    """Refuse what no request can be sent to.

    Args:
        base_url: What was given.
        example: An address as it should be, for the message.

    Raises:
        InputError: No address of HTTP, or one that may hold a secret (password, query), which the message leaves out.
    """
    try:
        address = httpx.URL(base_url)
    except (httpx.InvalidURL, UnicodeError):
        address = httpx.URL()
    if address.userinfo or (not address.host and "@" in base_url):
        raise InputError("base_url must not hold a user or password; put the key in an environment variable")
    if address.query or address.fragment:
        raise InputError("base_url must not hold a query ('?…') or fragment; put a key in an environment variable")
    if not (address.scheme in ("http", "https") and address.host and 0 < (address.port or 80) < 1 << 16):
        raise InputError(f"base_url must be like {example!r}, got {base_url!r}")


def check_key_variable(variable: str | None) -> None:
    """Refuse a variable that is not set. The message leaves it out, since it may be a key put in the wrong place.

    Raises:
        InputError: It is not set.
    """
    if variable is not None and not os.environ.get(variable):
        raise InputError(
            "api_key_env must be the name of an environment variable that is set and holds the key, not the key itself"
        )


def usable_key(variable: str | None) -> str | None:
    """The key in an environment variable, None without one; read anew each time and kept nowhere.

    Raises:
        InputError: No header can carry it.
    """
    key = os.environ.get(variable, "").strip() if variable else ""
    if not all("!" <= character <= "~" for character in key):
        raise InputError(f"the key in {variable} holds a character that no header can carry; set it anew")
    return key or None


def check_timeout(timeout: float) -> None:
    """Refuse what no socket can wait for.

    Raises:
        InputError: Not above 0, or more than a day.
    """
    if not 0 < timeout <= LONGEST:
        raise InputError(f"timeout must be a number of seconds above 0, at most {LONGEST:,}, got {shown(timeout)}")


def without_key(text: str, key: str | None) -> str:
    """A text without the key that a request was sent with. To be called before anything is cut off the text."""
    return text.replace(key, "***") if key else text


def error_detail(text: str, key: str | None = None) -> str:
    """The message of an error body in one line, at most 200 characters; nothing for a page.

    Without control characters, which a terminal would obey, and without the key.

    Example:
        >>> error_detail('{"error": {"message": "out of\\\\nmemory"}}'), error_detail("<html>busy</html>")
        ('out of memory', '')
    """
    if text.lstrip().startswith("<"):
        return ""
    try:
        body = json.loads(text)
        error = body.get("error", body.get("detail", body.get("message", text)))
        text = str(error.get("message", error) if isinstance(error, dict) else error)
    except (ValueError, AttributeError, RecursionError):
        pass
    text = without_key(text, key)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:200]


def start_of(content: bytes, key: str | None = None) -> str:
    """The first 60 characters of an answer in one line, without the key."""
    return " ".join(without_key(content.decode("utf-8", "replace"), key)[:60].split())


def error_reason(error: Exception) -> str:
    """What an exception says in one line, or its class."""
    return " ".join(str(error).split()) or type(error).__name__

"""Texts from outside: what a file, a tokenizer and a server can take, and how a message shows a value."""

from __future__ import annotations

from collections.abc import Iterable

from corag_search.errors import InputError


def shown(value: object, most: int = 80) -> str:
    """A value as a message shows it: in one line, at most so many characters.

    Example:
        >>> shown("a" * 100, 10), shown([1,  2])
        ("'aaaaaa...", '[1, 2]')
    """
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def check_text(name: str, value: object) -> None:
    """Refuse what is no text, or none that can be encoded as UTF-8.

    Args:
        name: For the message.
        value: What was given.

    Raises:
        InputError: It is no string, or holds half a surrogate pair.
    """
    if not isinstance(value, str):
        raise InputError(f"{name} must be a text, got {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} must be a text that can be encoded as UTF-8, got half a surrogate pair at character {error.start} "
            f"of {shown(value)}; decode its source anew or remove it"
        ) from None


def text_list(texts: Iterable[str]) -> list[str]:
    """Texts for a tokenizer, which takes no others than `check_text` allows.

    Raises:
        InputError: A single string instead of a sequence of them, or an entry that is no usable text.
    """
    if isinstance(texts, str):
        raise InputError(f"texts must be a sequence of strings, got the string {texts[:40]!r}; put it in a list")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not (isinstance(text, str) and text.isascii()):
            check_text(f"text {number} of {len(listed)}", text)
    return listed

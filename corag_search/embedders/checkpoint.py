"""Transformers checkpoints: found, checked for missing weights, loaded without noise."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger
from pathlib import Path

from corag_search.errors import InputError
from corag_search.packaged import require

# Progress bars and verbosity are global state of transformers, so one model is loaded at a time.
LOADING = threading.RLock()
PRECISIONS = ("float32", "bfloat16", "float16")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pt")


@contextmanager
def quiet_loading() -> Iterator[None]:
    """No bars, no reports while a model is loaded; transformers' settings are put back afterwards."""
    from transformers.utils import logging

    with LOADING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
        hub = getLogger("huggingface_hub")  # tells of each retry; what comes of them is raised
        hub_level = hub.level
        logging.disable_progress_bar()
        logging.set_verbosity_error()
        hub.setLevel(ERROR)
        try:
            yield
        finally:
            logging.set_verbosity(verbosity)
            hub.setLevel(hub_level)
            if bars:
                logging.enable_progress_bar()


def check_checkpoint(
    path: str, auto_class: str, purpose: str, trust_remote_code: bool = False, optional: tuple[str, ...] = ()
) -> None:
    """Refuse a checkpoint whose model would start with random weights.

    Transformers fills missing weights with random numbers and only logs it. The model is built on the meta device, so
    this reads the names of the weights and not their values; remote code may not stand that and is loaded in full.

    Args:
        path: Hub name or local directory.
        auto_class: Class of transformers that loads it: "AutoModel".
        purpose: Who needs it, for messages.
        trust_remote_code: Run code that comes with the checkpoint.
        optional: Prefixes of weights that are not used and may be missing.

    Raises:
        InputError: It cannot be loaded, or weights are missing or of another shape.
    """
    if not Path(path).exists() and (Path(path).is_absolute() or path.startswith((".", "~"))):
        raise InputError(
            f"{purpose}: no directory {path!r}; name a local checkpoint or a model of the Hugging Face hub"
        )
    loader = getattr(require("transformers", "paper", purpose), auto_class)
    try:
        with quiet_loading():
            model, report = loader.from_pretrained(
                path,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
                device_map=None if trust_remote_code else "meta",
            )
    except Exception as error:  # whatever transformers, the hub's client or remote code raise
        raise unusable(path, purpose, error, trust_remote_code) from error
    missing = sorted(key for key in report["missing_keys"] if not key.startswith(optional))
    missing += sorted(str(key) for key in report["mismatched_keys"])
    if missing:
        raise InputError(
            f"{purpose}: {path!r} lacks {len(missing)} weights of {type(model).__name__} or has them in another shape, "
            f"the first is {missing[0]}: they would be random. {_remedy(trust_remote_code)}"
        )


def unusable(path: str, purpose: str, error: Exception, trust_remote_code: bool) -> InputError:
    """The error for a checkpoint that its library cannot load."""
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    return InputError(f"{purpose}: {path!r} cannot be loaded ({reason}). {_remedy(trust_remote_code)}")


def _remedy(trust_remote_code: bool) -> str:
    remote = "" if trust_remote_code else "trust_remote_code=True if the model brings its own code and you trust it, "
    return f"Try {remote}path= a copy converted to a class of transformers, or serve the model behind /rerank or /embed"


def weight_files(path: str) -> list[Path]:
    """Weight files of a local checkpoint, or of a hub model that is in the cache.

    Raises:
        InputError: There are none.
    """
    folder = Path(path)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(path, local_files_only=True))
    files = sorted(file for pattern in _WEIGHTS for file in folder.glob(pattern))
    if not files:
        raise InputError(f"{path!r} holds no weights ({', '.join(_WEIGHTS)})")
    return files


def default_device(device: str | None) -> str:
    """The device asked for, else the first GPU, else the CPU.

    Raises:
        InputError: Torch knows no such device here.
    """
    import torch

    if device is None:
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"device {device!r} cannot be used here ({str(error).splitlines()[0]}); use 'cpu', or 'cuda:0' with a GPU"
        ) from None
    return device


def check_dtype(dtype: str, device: str | None) -> None:
    """Refuse a precision that is not known or that the device cannot compute; warn of one that is slow there.

    Raises:
        InputError: No one of `PRECISIONS`, or "float16" without a GPU.
    """
    if dtype not in PRECISIONS:
        raise InputError(f"dtype must be one of {', '.join(PRECISIONS)}, got {dtype!r}")
    if dtype == "float32" or default_device(device) != "cpu":
        return
    if dtype == "float16":
        raise InputError("dtype 'float16' needs a GPU; use 'bfloat16' or 'float32' on a CPU")
    if not cpu_has_bfloat16():
        warnings.warn(
            "dtype 'bfloat16': this CPU lacks instructions for it and takes several times as long as in float32; use "
            "'float32' here",
            stacklevel=3,
        )


def cpu_has_bfloat16() -> bool:
    """Whether torch has more than its slow path for bfloat16 on this CPU; True where it does not say."""
    import torch

    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is None or bool(supported())

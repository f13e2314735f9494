"""Reading back what W&B has written for an offline run."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEADER = b":W&B\xe1\xbe"  # then one byte for the version
_BLOCK = 32_768
_PART = struct.Struct("<IHB")  # checksum, length, kind
_WHOLE, _LAST = 1, 4


def records(path: Path) -> Iterator[Any]:
    """The `Record` messages of a `.wandb` file: LevelDB's log format behind a header of seven bytes.

    Fails on a damaged or incomplete file: every checksum is compared, and the last record must be whole.
    """
    from wandb.proto import wandb_internal_pb2

    data = path.read_bytes()
    assert data.startswith(_HEADER)
    at, message = len(_HEADER) + 1, b""
    while at < len(data):
        room = _BLOCK - at % _BLOCK
        if room < _PART.size:
            at += room
            continue
        checksum, length, kind = _PART.unpack_from(data, at)
        start, at = at + _PART.size, at + _PART.size + length
        part = data[start:at]
        assert len(part) == length
        assert zlib.crc32(bytes([kind]) + part) == checksum
        message += part
        if kind in (_WHOLE, _LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(message)
            yield record
            message = b""
    assert message == b""

"""How a message looks on the wire: a header of fixed length, then float64 numbers.

The header says whose message of which run and round this is, how long it is and what its bytes add up to, so a
receiver can refuse what is damaged, foreign or sent twice, and name the sender. Nothing is pickled.
"""

from __future__ import annotations

import math
import struct
import zlib
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import WorkbenchError
from workbench.protocol import Array

Bytes = NDArray[np.uint8]

# see `Envelope`; first the checksum of the rest of the header, in which stands what the numbers add up to
_FIELDS = struct.Struct("<IIQqIIIIddQc31s")
_CHECKSUM = struct.Struct("<I")
HEADER = _FIELDS.size  # bytes; a multiple of 8, so that the numbers behind it are aligned
_EMPTY, _SCALAR, _VECTOR = b"n", b"s", b"d"
_MAGIC = 0x57420002


class Envelope(NamedTuple):
    """What the header says."""

    run: int
    round: int
    sender: int
    number: int  # tells apart several messages of one node in one round
    serial: int  # counts what this sender has sent to this receiver's run
    floats: int  # numbers behind the header
    sent: float  # s, on the run's clock
    arrives: float  # s, when it is at the receiver's port, at the earliest
    kind: str


class Refused(WorkbenchError):
    """A message that must not be used; `reason` says why in two or three words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def room(floats: int) -> int:
    """Bytes of a message of at most that many numbers."""
    return HEADER + 8 * max(floats, 1)


def seal(
    buffer: Bytes, envelope: Envelope, value: Any, run: int | None = None, serial: int | None = None
) -> int:
    """Write a message into `buffer` (uint8); returns its bytes. `value`: None, a number, or a vector.

    `run`, `serial`: instead of the envelope's.
    Raises ValueError for a value that is none of these or does not fit.
    """
    code, floats = _shape(value)
    end = HEADER + 8 * floats
    if end > len(buffer):
        raise ValueError(f"value: {floats} numbers do not fit into {(len(buffer) - HEADER) // 8}")
    total = 0
    if floats:
        numbers = buffer[HEADER:end].view(np.float64)
        numbers[:] = value
        total = total_of(numbers)
    run_, round, sender, number, serial_, _, sent, arrives, kind = envelope
    run, serial = run_ if run is None else run, serial_ if serial is None else serial
    view = memoryview(buffer)  # type: ignore[arg-type]
    fields = (run, round, sender, number, serial, floats, sent, arrives, total, code, _bytes(kind))
    _FIELDS.pack_into(view, 0, 0, _MAGIC, *fields)
    _CHECKSUM.pack_into(view, 0, zlib.crc32(view[4:HEADER]))
    return end


def _shape(value: Any) -> tuple[bytes, int]:
    """How a value is marked, and its numbers."""
    if value is None:
        return _EMPTY, 0
    dimensions = value.ndim if isinstance(value, np.ndarray) else np.ndim(value)
    if dimensions > 1:
        raise ValueError(f"value: has {dimensions} dimensions; messages carry vectors")
    return (_VECTOR, len(value)) if dimensions else (_SCALAR, 1)


def unseal(buffer: Bytes, length: int | None, run: int, sender: int) -> tuple[Envelope, Any]:
    """Read a message of `length` bytes (None: as it says) that came from `sender`; vectors are views into the buffer.

    Raises `Refused`: truncated, damaged, of another run or sender, or with numbers that are not finite.
    """
    if length is not None and length < HEADER:
        raise Refused("truncated")
    view = memoryview(buffer)  # type: ignore[arg-type]
    fields = _FIELDS.unpack_from(view, 0)
    checksum, magic, run_, round, sender_, number, serial, floats, sent, arrives, total, code, kind = fields
    end = HEADER + 8 * floats
    if magic != _MAGIC:
        raise Refused("damaged")
    if end > len(buffer) or (length is not None and end != length):
        raise Refused("truncated")
    numbers = buffer[HEADER:end].view(np.float64)
    if zlib.crc32(view[4:HEADER]) != checksum or (floats and total_of(numbers) != total):
        raise Refused("damaged")
    if run_ != run:
        raise Refused("of another run")
    if sender_ != sender:
        raise Refused("of another sender")
    envelope = Envelope(run_, round, sender_, number, serial, floats, sent, arrives, _text(kind))
    if code == _EMPTY:
        return envelope, None
    if not finite(numbers):
        raise Unusable(envelope)
    return envelope, float(numbers[0]) if code == _SCALAR else numbers


def total_of(numbers: Array) -> int:
    """What the numbers' 64-bit patterns add up to, modulo 2^64.

    One damaged number always shows, several all but surely (a CRC of a long vector costs five times as much).
    """
    return int(np.add.reduce(numbers.view(np.uint64)))


@lru_cache(maxsize=64)
def _text(kind: bytes) -> str:
    return kind.rstrip(b"\0").decode()


@lru_cache(maxsize=64)
def _bytes(kind: str) -> bytes:
    return kind.encode()


class Unusable(Refused):
    """Numbers that are not finite; the envelope is sound, so it is known what is missing."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__("not finite")
        self.envelope = envelope


def finite(numbers: Array) -> bool:
    """Are all numbers finite? The sum of squares tells in most cases; where it overflows all are looked at."""
    return math.isfinite(np.vdot(numbers, numbers)) or bool(np.isfinite(numbers).all())

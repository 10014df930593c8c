"""How a message looks on the wire: a header of fixed length, then float64 numbers.

The header says whose message of which run and round this is, how long it is and what its bytes add up to, so a
receiver can refuse what is damaged, foreign or sent twice, and name the sender. Nothing is pickled.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.errors import WorkbenchError
from workbench.protocol import Array

Bytes = NDArray[np.uint8]

_FIELDS = struct.Struct(
    "<IIQqIIIIddc31s"
)  # see `Envelope`; the first field is the checksum of all that follows
HEADER = _FIELDS.size  # bytes; a multiple of 8, so that the numbers behind it are aligned
_EMPTY, _SCALAR, _VECTOR = b"n", b"s", b"d"
_MAGIC = 0x57420001


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


def seal(buffer: Bytes, envelope: Envelope, value: Any) -> int:
    """Write a message into `buffer` (uint8); returns its bytes. `value`: None, a number, or a vector.

    Raises ValueError for a value that is none of these or does not fit.
    """
    if value is None:
        code, floats = _EMPTY, 0
    elif np.ndim(value) == 0:
        code, floats = _SCALAR, 1
    elif np.ndim(value) == 1:
        code, floats = _VECTOR, len(value)
    else:
        raise ValueError(f"value: has {np.ndim(value)} dimensions; messages carry vectors")
    end = HEADER + 8 * floats
    if end > len(buffer):
        raise ValueError(f"value: {floats} numbers do not fit into {(len(buffer) - HEADER) // 8}")
    if floats:
        buffer[HEADER:end].view(np.float64)[:] = value
    e = envelope
    fields = (_MAGIC, e.run, e.round, e.sender, e.number, e.serial, floats, e.sent, e.arrives)
    view = memoryview(buffer)  # type: ignore[arg-type]  # NumPy's stubs hide that arrays are buffers
    _FIELDS.pack_into(view, 0, 0, *fields, code, e.kind.encode())
    struct.pack_into("<I", view, 0, zlib.crc32(view[4:end]))
    return end


def length_of(buffer: Bytes) -> int:
    """Bytes that the message in `buffer` says that it has."""
    return HEADER + 8 * int(_FIELDS.unpack_from(memoryview(buffer), 0)[7])  # type: ignore[arg-type]


def unseal(buffer: Bytes, length: int, run: int, sender: int) -> tuple[Envelope, Any]:
    """Read a message of `length` bytes that came from `sender`; vectors are views into the buffer.

    Raises `Refused`: truncated, damaged, of another run or sender, or with numbers that are not finite.
    """
    if length < HEADER:
        raise Refused("truncated")
    view = memoryview(buffer)  # type: ignore[arg-type]
    checksum, magic, run_, round, *fields = _FIELDS.unpack_from(view, 0)
    sender_, number, serial, floats, sent, arrives, code, kind = fields
    end = HEADER + 8 * floats
    if magic != _MAGIC:
        raise Refused("damaged")
    if end != length:
        raise Refused("truncated")
    if zlib.crc32(view[4:end]) != checksum:
        raise Refused("damaged")
    if run_ != run:
        raise Refused("of another run")
    if sender_ != sender:
        raise Refused("of another sender")
    envelope = Envelope(
        run_, round, sender_, number, serial, floats, sent, arrives, kind.rstrip(b"\0").decode()
    )
    if code == _EMPTY:
        return envelope, None
    numbers = buffer[HEADER:end].view(np.float64)
    if not finite(numbers):
        raise Unusable(envelope)
    return envelope, float(numbers[0]) if code == _SCALAR else numbers


class Unusable(Refused):
    """Numbers that are not finite; the envelope is sound, so it is known what is missing."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__("not finite")
        self.envelope = envelope


def finite(numbers: Array) -> bool:
    """Are all numbers finite? A sum tells in most cases; where it overflows all are looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(numbers.sum()) or np.isfinite(numbers).all())

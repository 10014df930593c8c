"""How a message looks on the wire: a header of fixed length, then numbers, float64 or float32.

The header says whose message of which run and round this is, how long it is, and what its words add up to (see
`Buffer.checksum`). So a receiver can refuse what is damaged, foreign or sent twice, and name the sender. Nothing is
pickled.

A hundred ranks on few cores find their caches cold at every message: what counts here is how many different functions
are called, and not how long they take.
"""

import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.errors import WorkbenchError
from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT

# see `Envelope`; first the checksum of all that follows, then, before the kind, the magic number and what follows
_FIELDS = struct.Struct("<QQqIIIIddIc27s")
HEADER = _FIELDS.size  # bytes
HEADER_WORDS = HEADER // 8  # of 64 bits
_EMPTY, _SCALAR, _VECTOR = b"n", b"s", {8: b"d", 4: b"f"}  # by the bytes of a number
_MAGIC = 0x57420004
_MAX_CRC_WORDS = 256  # words of which a CRC costs less than sums
_add = np.add.reduce
Words = NDArray[np.uint64]
named = tuple.__new__  # makes a named tuple without the detour through Python


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


class MessageRejected(WorkbenchError):
    """A message that must not be used; `reason` says why in two or three words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Buffer:
    """Room for a message of so many numbers: the same memory as 64-bit words and as numbers behind the header.

    `width`: bytes of a number; what is left over of the last word is nobody's. Whoever holds a vector of a message
    holds a reference to `words`.
    """

    __slots__ = ("header", "numbers", "table", "width", "words")

    def __init__(self, floats: int, width: int = BYTES_PER_FLOAT) -> None:
        self.width = width
        self.words = np.zeros(self.end(max(floats, 1)), dtype=np.uint64)
        self.numbers: Array = self.words[HEADER_WORDS:].view(np.dtype(f"f{width}"))
        self.header = memoryview(self.words)  # type: ignore[arg-type]
        self.table = _table(self.words)

    def end(self, floats: int) -> int:
        """Number of words of a message of so many numbers."""
        return HEADER_WORDS - -floats * self.width // 8

    def checksum(self, end: int) -> int:
        """What tells the words from the second up to number `end` from others: 64 bits.

        The words are written into a table of some rows; its column sums and its row sums (modulo 2^64) are known by a
        CRC of 32 bits each, which sees their order. Whoever changes up to three words changes some of these sums: a row
        and a column in which all changes cancel out hold two of them at least, so there are four in all. Two sums and
        two short CRCs take a fifth of the time of one CRC over all.
        """
        table, rest = self.table if end == len(self.words) else _table(self.words[:end])
        if table is None:
            return crc32(rest)  # type: ignore[arg-type]
        columns = crc32(_add(table, 0), crc32(rest))  # type: ignore[arg-type]
        return columns | crc32(_add(table, 1)) << 32

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The same memory as bytes."""
        return self.words.view(np.uint8)


def _table(words: Words) -> tuple[Words | None, Words]:
    """All words but the first, as the rows of a table, and those that do not fill a row; see `Buffer.checksum`."""
    words = words[1:]
    if len(words) < _MAX_CRC_WORDS:
        return None, words
    columns = 2 * math.isqrt(len(words))  # adding rows up costs more than adding within rows
    rows = len(words) // columns
    return words[: rows * columns].reshape(rows, columns), words[rows * columns :]


def encode_message(
    buffer: Buffer, envelope: Envelope, value: Any, run: int | None = None, serial: int | None = None
) -> int:
    """Write a message onto a sheet; returns its bytes. `value`: None, a number, or a vector.

    `run`, `serial`: instead of the envelope's.
    Raises ValueError for a value that is none of these or does not fit.
    """
    code, floats = _shape(value, buffer.width)
    end = buffer.end(floats)
    if end > len(buffer.words):
        raise ValueError(f"value: {floats} numbers do not fit into {len(buffer.numbers)}")
    run_, round, sender, number, serial_, _, sent, arrives, kind = envelope
    run, serial = run_ if run is None else run, serial_ if serial is None else serial
    fields = (run, round, sender, number, serial, floats, sent, arrives, _MAGIC, code, _bytes(kind))
    _FIELDS.pack_into(buffer.header, 0, 0, *fields)
    if floats:
        buffer.numbers[:floats] = value
    buffer.words[0] = buffer.checksum(end)
    return 8 * end


def _shape(value: Any, width: int) -> tuple[bytes, int]:
    """How a value is marked, and its numbers."""
    if value is None:
        return _EMPTY, 0
    dimensions = value.ndim if isinstance(value, np.ndarray) else np.ndim(value)
    if dimensions > 1:
        raise ValueError(f"value: has {dimensions} dimensions; messages carry vectors")
    return (_VECTOR[width], len(value)) if dimensions else (_SCALAR, 1)


def decode_message(buffer: Buffer, length: int | None, run: int, sender: int) -> tuple[Envelope, Any]:
    """Read a message of `length` bytes (None: as it says) that came from `sender`; vectors are views of the sheet.

    Raises `MessageRejected`: truncated, damaged, of another run or sender, or with numbers that are not finite.
    """
    if length is not None and length < HEADER:
        raise MessageRejected("truncated")
    fields = _FIELDS.unpack_from(buffer.header, 0)
    checksum, run_, round, sender_, number, serial, floats, sent, arrives, magic, code, kind = fields
    end = buffer.end(floats)
    if magic != _MAGIC or code not in (_EMPTY, _SCALAR, _VECTOR[buffer.width]):
        raise MessageRejected("damaged")
    if end > len(buffer.words) or (length is not None and 8 * end != length):
        raise MessageRejected("truncated")
    if checksum != buffer.checksum(end):
        raise MessageRejected("damaged")
    if run_ != run:
        raise MessageRejected("of another run")
    if sender_ != sender:
        raise MessageRejected("of another sender")
    envelope = named(Envelope, (run_, round, sender_, number, serial, floats, sent, arrives, _text(kind)))
    if code == _EMPTY:
        return envelope, None
    numbers = buffer.numbers[:floats]
    # The squares may overflow.
    if not math.isfinite(np.vdot(numbers, numbers)) and not np.isfinite(numbers).all():
        raise NonFinitePayload(envelope)
    return envelope, float(numbers[0]) if code == _SCALAR else numbers


@lru_cache(maxsize=64)
def _text(kind: bytes) -> str:
    try:
        return kind.rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise MessageRejected("damaged") from None


@lru_cache(maxsize=64)
def _bytes(kind: str) -> bytes:
    return kind.encode()


class NonFinitePayload(MessageRejected):
    """Numbers that are not finite; the envelope is sound, so it is known what is missing."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__("not finite")
        self.envelope = envelope

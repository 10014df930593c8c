"""Wire format of messages: a header of fixed length, followed by float64 or float32 values.

The header has sender, run, round and length of the message, and a checksum (see `Buffer.checksum`). A receiver can
therefore reject a message that is damaged, foreign or sent twice, and name the sender. Nothing is pickled.

With a hundred ranks on few cores, the caches are cold at every message. The cost then depends on how many different
functions are called, and not on their own time.
"""

import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from workbench.core.base.errors import WorkbenchError
from workbench.core.base.types import Array
from workbench.core.contract.links import BYTES_PER_FLOAT

# Format of the header: checksum of all that follows, then the fields of `Envelope`. Magic number and type of the value
# precede the kind.
_FIELDS = struct.Struct("<QQqIIIIddIc27s")
HEADER = _FIELDS.size  # bytes
HEADER_WORDS = HEADER // 8  # 64-bit words
# codes of the type of the value: none, number, or vector (by the bytes of a value)
_EMPTY, _SCALAR, _VECTOR = b"n", b"s", {8: b"d", 4: b"f"}
_MAGIC = 0x57420005
Words = NDArray[np.uint64]
named = tuple.__new__  # function that makes a named tuple without a call of Python code


class Envelope(NamedTuple):
    """Envelope of a message: the fields of its header."""

    run: int
    round: int
    sender: int
    number: int  # number of the message within the sender's round
    serial: int  # counter of the sender's messages in this run
    floats: int  # number of values after the header
    sent: float  # s on the run's clock
    arrives: float  # s, earliest time at the receiver's port
    kind: str


class MessageRejected(WorkbenchError):
    """Message that must not be used. `reason`: why, in one to three words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Buffer:
    """Memory for a message of up to `floats` values, as 64-bit words, and as values after the header.

    `width`: bytes of a value. The rest of the last word is unused. A vector of a message holds a reference to `words`.
    """

    __slots__ = ("header", "numbers", "width", "words")

    def __init__(self, floats: int, width: int = BYTES_PER_FLOAT) -> None:
        self.width = width
        self.words = np.zeros(self.end(max(floats, 1)), dtype=np.uint64)
        self.numbers: Array = self.words[HEADER_WORDS:].view(np.dtype(f"f{width}"))
        self.header = memoryview(self.words)  # type: ignore[arg-type]

    def end(self, floats: int) -> int:
        """Return the number of 64-bit words of a message with `floats` values."""
        return HEADER_WORDS - -floats * self.width // 8

    def checksum(self, end: int) -> int:
        """Return the 64-bit XXH3 hash of the words from the second up to `end`."""
        return xxh3_64_intdigest(self.words[1:end])  # type: ignore[arg-type]

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The memory as bytes."""
        return self.words.view(np.uint8)


def encode_message(
    buffer: Buffer, envelope: Envelope, value: Any, run: int | None = None, serial: int | None = None
) -> int:
    """Write a message into a buffer. Return its length in bytes. `value`: None, a number, or a vector.

    `run`, `serial`: override those of the envelope. Raises ValueError for another value, or one that does not fit.
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
    """Return the code of a value's type, and its number of floats."""
    if value is None:
        return _EMPTY, 0
    dimensions = value.ndim if isinstance(value, np.ndarray) else np.ndim(value)
    if dimensions > 1:
        raise ValueError(f"value: has {dimensions} dimensions; messages carry vectors")
    return (_VECTOR[width], len(value)) if dimensions else (_SCALAR, 1)


def decode_message(buffer: Buffer, length: int | None, run: int, sender: int) -> tuple[Envelope, Any]:
    """Read a message of `length` bytes from `sender`. Vectors are views of the buffer.

    `length`: None for the length in the header. Raises `MessageRejected` if the message is truncated, damaged, of
    another run or sender, or not finite.
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
    # the squares may overflow
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
    """Message with values that are not finite. Its envelope is valid, so the missing answer can be reported."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__("not finite")
        self.envelope = envelope

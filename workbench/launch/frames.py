"""What a client and the agent on a cluster's head say to each other: a JSON object, and perhaps bytes behind it."""

import json
import struct
from typing import IO, Any

_LENGTHS = struct.Struct(">QQ")
LONGEST_WORD, LONGEST_DATA = 2**26, 2**32  # bytes; who says more is no agent of ours


def write(stream: IO[bytes], word: dict[str, Any], data: bytes = b"") -> None:
    """Send a word; raises OSError where nobody listens any more.

    >>> import io
    >>> stream = io.BytesIO()
    >>> write(stream, {"what": "news"}, b"123")
    >>> _ = stream.seek(0)
    >>> read(stream)
    ({'what': 'news'}, b'123')
    """
    text = json.dumps(word).encode()
    stream.write(_LENGTHS.pack(len(text), len(data)) + text)
    stream.write(data)
    stream.flush()


def read(stream: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    """Wait for a word; raises EOFError where none comes any more, ValueError for what is none."""
    text, data = _LENGTHS.unpack(exactly(stream, _LENGTHS.size))
    if text > LONGEST_WORD or data > LONGEST_DATA:
        raise ValueError(f"{text} and {data} bytes are no word")
    word = json.loads(exactly(stream, text))
    if not isinstance(word, dict):
        raise ValueError(f"{word!r:.60} is no word")
    return word, exactly(stream, data)


def exactly(stream: IO[bytes], count: int) -> bytes:
    """Read so many bytes; raises EOFError where there are fewer."""
    pieces, left = [], count
    while left:
        piece = stream.read(left)
        if not piece:
            raise EOFError(f"{left} of {count} bytes are missing")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)

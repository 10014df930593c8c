"""Several arrays as one byte string, and back, without pickle."""

import io
import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.core.base.reading import arrays_in


def to_bytes(arrays: Mapping[str, Any]) -> bytes:
    """Return an .npz archive of arrays and numbers.

    >>> from_bytes(to_bytes({"x": [1.0, 2.0]}))
    {'x': array([1., 2.])}
    """
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def joined(arrays: Mapping[str, Any]) -> bytes:
    """Return a header of one line, followed by the raw arrays. For small arrays it is ten times as fast as `to_bytes`.

    >>> from_bytes(joined({"x": [1.0, 2.0], "name": "CR"}))
    {'x': array([1., 2.]), 'name': array('CR', dtype='<U2')}
    """
    stored = {name: np.asarray(value) for name, value in arrays.items()}
    head = json.dumps({name: [array.dtype.str, array.shape] for name, array in stored.items()})
    rest = b"".join([head.encode(), b"\n", *(array.tobytes() for array in stored.values())])
    return b"%08x" % zlib.crc32(rest) + rest


def from_bytes(archive: bytes) -> dict[str, Any]:
    """Return the arrays of `to_bytes` or `joined`. Raises ValueError if they are damaged, or for other content.

    >>> from_bytes(to_bytes({"x": [1.0, 2.0]})[:-1])
    Traceback (most recent call last):
        ...
    ValueError: File is not a zip file
    """
    try:
        return _parted(archive) if archive[8:9] == b"{" else arrays_in(io.BytesIO(archive), "the archive")
    except Exception as error:  # zipfile and NumPy raise many types of errors
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None


def _parted(whole: bytes) -> dict[str, Any]:
    """Return the arrays of `joined` as writable arrays."""
    if whole[:8] != b"%08x" % zlib.crc32(memoryview(whole)[8:]):
        raise ValueError("its sum is another")
    place = whole.index(b"\n") + 1
    found, rest = {}, bytearray(whole)
    for name, (kind, shape) in json.loads(whole[8:place]).items():
        found[name] = np.frombuffer(rest, kind, math.prod(shape), place).reshape(shape)
        place += found[name].nbytes
    return found

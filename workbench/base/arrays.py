"""Several arrays as one run of bytes, and back; never pickled."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np


def to_bytes(arrays: Mapping[str, Any]) -> bytes:
    """An .npz archive of arrays and numbers.

    >>> from_bytes(to_bytes({"x": [1.0, 2.0]}))
    {'x': array([1., 2.])}
    """
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def from_bytes(archive: bytes) -> dict[str, Any]:
    """The arrays of an archive; raises ValueError where it holds anything else, or not all that was written.

    >>> from_bytes(to_bytes({"x": [1.0, 2.0]})[:-1])
    Traceback (most recent call last):
        ...
    ValueError: File is not a zip file
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as whole:
            broken = whole.testzip()  # NumPy checks only what it reads to its end
        with np.load(io.BytesIO(archive), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except Exception as error:  # zip files and NumPy have many ways to say so
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None
    if broken is not None:
        raise ValueError(f"{broken} is not what was written")
    return arrays

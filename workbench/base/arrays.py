"""Several arrays as one run of bytes, and back; never pickled."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.lib.format import read_array


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
            # Each member once and to its end, where its sum is checked; NumPy's own reader checks only what it reads.
            files = {name: io.BytesIO(whole.read(name)) for name in whole.namelist()}
        return {name.removesuffix(".npy"): read_array(f, allow_pickle=False) for name, f in files.items()}
    except Exception as error:  # zip files and NumPy have many ways to say so
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from None

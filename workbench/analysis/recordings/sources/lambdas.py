"""AWS Lambda's profiles of sequential gradient coding: pickles, read here without running anything in them."""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import read_bytes
from workbench.core.base.settings import SettingError

MAX_FILE_BYTES = 2**28  # bytes of a file


class _Inert:
    """Stands for whatever class or function a pickle names: keeps what it is given, and does nothing."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        """Nothing is taken over."""

    def number(self) -> int:
        """What NumPy's scalars are: a type's name ("i4") and bytes."""
        dtype, data = self.given
        if not isinstance(data, bytes) or not str(dtype.given[0]).startswith("i"):
            raise ValueError("is not a whole number")
        return int.from_bytes(data, "little", signed=True)


class _Reader(pickle._Unpickler):
    """Builds lists, dicts, numbers and text; every name in the file becomes an inert stand-in, so nothing is called.

    The reader that is written in Python: the one in C takes the memory that a file of a few bytes asks for.
    """

    def find_class(self, module: str, name: str) -> Any:
        return _Inert


def tells(path: Path) -> bool:
    """A pickle."""
    return path.suffix == ".pkl"


def read(path: Path) -> pd.DataFrame:
    """Seconds from a worker's call to its answer, by round. Raises `SettingError` for another kind of pickle."""
    try:
        rounds = _Reader(BytesIO(read_bytes(path, MAX_FILE_BYTES))).load()
        rows = [
            (_whole(each["worker_id"]), int(one["round"]), float(each["finished"]) - float(each["started"]))
            for one in rounds
            for each in one["results"]
        ]
    except SettingError:
        raise
    except Exception as error:  # of bytes that anybody may have written
        raise SettingError(f"path = {str(path)!r}: is not a profile of Lambda workers ({error})") from None
    return pd.DataFrame(rows, columns=["worker", "step", "seconds"])


def _whole(value: Any) -> int:
    return value.number() if isinstance(value, _Inert) else int(value)


SOURCE = Source(
    name="lambda",
    title="AWS Lambda's workers",
    tells=tells,
    read=read,
    where="public repository mamaj/Sequential-Gradient-Coding-2, delay_profiles/*/*.pkl",
    licence="none stated: not to be passed on",
    files=("w*-n*-l*.pkl",),
)

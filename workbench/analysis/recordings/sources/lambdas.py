"""AWS Lambda's profiles of sequential gradient coding: pickles, read here without executing code in them."""

import pickle
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import read_bytes
from workbench.core.base.settings import SettingError

MAX_FILE_BYTES = 2**28  # max bytes of a file


class _Inert:
    """Inert replacement of any class or function that a pickle names: it stores its arguments, and does nothing."""

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""

    def number(self) -> int:
        """Return the number of a NumPy scalar: a type's name ("i4") and bytes."""
        dtype, data = self.given
        if not isinstance(data, bytes) or not str(dtype.given[0]).startswith("i"):
            raise ValueError("is not a whole number")
        return int.from_bytes(data, "little", signed=True)


class _Reader(pickle._Unpickler):
    """Reader of lists, dicts, numbers and text. Names in the file become inert replacements, so nothing is called.

    The base class is the reader in Python. The reader in C would allocate as much memory as a small file declares.
    """

    def find_class(self, module: str, name: str) -> Any:
        return _Inert


def tells(path: Path) -> bool:
    """Return whether the file is a pickle."""
    return path.suffix == ".pkl"


def read(path: Path) -> pd.DataFrame:
    """Return seconds from a worker's call to its answer, by round. Raise `SettingError` for another kind of pickle."""
    rows: list[tuple[int, int, float]] = []
    try:
        for one in _Reader(BytesIO(read_bytes(path, MAX_FILE_BYTES))).load():
            for each in one["results"]:
                took = float(each["finished"]) - float(each["started"])
                rows.append((_whole(each["worker_id"]), int(one["round"]), took))
    except SettingError:
        raise
    except Exception as error:  # untrusted bytes may raise any exception
        why = f"is not a profile of Lambda workers ({error!r})"
        raise SettingError(f"path = {str(path)!r}, row {len(rows) + 1}: {why}") from None
    return pd.DataFrame(rows, columns=["worker", "step", "seconds"])


def _whole(value: Any) -> int:
    return value.number() if isinstance(value, _Inert) else int(value)


SOURCE = Source(
    name="lambda",
    title="AWS Lambda's workers",
    tells=tells,
    read=read,
    where="public repository mamaj/Sequential-Gradient-Coding-2, delay_profiles/*/*.pkl",
    licence="none stated: do not redistribute",
    files=("w*-n*-l*.pkl",),
)

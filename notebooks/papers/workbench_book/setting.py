"""Options of the book: quick or full form, path of recorded times, whether to download and to measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.base.settings import SettingError

VARIABLE = "WORKBENCH_EC2_TRACES"  # path of the recorded times, or of a folder with them
TRACES = "ec2_traces.csv"


def _silent(done: int, total: int) -> None:
    return None


@dataclass(frozen=True)
class Setting:
    """Options of the book.

    `traces`: path of the recorded EC2 times, or None if there are none. `download`: whether real data may be
    downloaded from OpenML. `measure`: whether real runs are made. `facts`: results of entries that this one needs, by
    name. `report(done, total)` is called with the progress of an entry.
    """

    quick: bool = False
    seed: int = 0
    traces: Path | None = None
    download: bool = False
    measure: bool = True
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    report: Callable[[int, int], None] = _silent

    def pick(self, quick: Any, full: Any) -> Any:
        """Return the value for the quick or for the full form."""
        return quick if self.quick else full


def find_traces(given: str | Path | None = None) -> Path | None:
    """Return the path of the recorded EC2 times, or None if there are none.

    These places are searched in order: `given` (a file, or a folder with ec2_traces.csv), the path in the environment
    variable WORKBENCH_EC2_TRACES, and the folder `data` of the working directory.

    Raises
    ------
    SettingError
        A path was given, by argument or by the variable, and the file does not exist.
    """
    for field_, path in (("traces", given), (VARIABLE, os.environ.get(VARIABLE))):
        if path:
            return _existing(field_, Path(path).expanduser())
    default = Path("data") / TRACES
    return default if default.is_file() else None


def _existing(where: str, path: Path) -> Path:
    file = path / TRACES if path.is_dir() else path
    if not file.is_file():
        raise SettingError(f"{where} = {str(path)!r}: no such file; give {TRACES} or the folder that has it")
    return file

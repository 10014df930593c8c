"""Sources of recordings: one module each, with a `SOURCE` that detects and reads its files, and names their origin."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Source:
    """Kind of file. `read(path)` returns rows with worker, step, seconds, and other columns of the schema.

    Some sources also take the names of their columns, and the unit of their times.

    `tells(path)`: returns whether the file is of that kind. `where`: where the files are published; `licence`: their
    licence. `files`: name patterns of public files. `published`: their names where they are published. `how`:
    instructions, if copying them into a folder is not enough. `takes_columns`: whether `read` takes names and a unit.
    """

    name: str
    title: str
    tells: Callable[[Path], bool]
    read: Callable[..., pd.DataFrame]
    where: str = ""
    licence: str = ""
    units: str = "s"
    files: tuple[str, ...] = ()
    published: str = ""
    how: str = ""
    takes_columns: bool = False

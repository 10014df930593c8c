"""Where recordings come from: a file each, with a `SOURCE` that tells its files, reads them, says where to get them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd


@dataclass(frozen=True)
class Source:
    """One kind of file. `read(path)` gives rows with worker, step, seconds, and what else there is of the schema.

    The source "table" also takes the names of its columns, and the unit of its times.

    `tells(path)`: is this file of that kind? `where`: the public place, in words; `licence` of what lies there.
    `files`: patterns of names by which public files are found, `published`: their names in the public place, and
    `how`: what to do with these, where it is more than to put them where they are looked for.
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

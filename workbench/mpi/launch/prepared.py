"""Transfer of prepared data: a machine asks another one whether it has them, and sends what is missing."""

import os
import shutil
from pathlib import Path
from typing import Any

from workbench.core import problems
from workbench.core.base.reading import open_regular
from workbench.core.problems.data.cache import ours as private
from workbench.core.problems.data.cache import root
from workbench.mpi.launch.gateway import Connection
from workbench.mpi.launch.reports import ProgressCallback

CHUNK_BYTES = 2**20  # bytes of one message


def has(key: str, make: dict[str, Any] | None = None) -> bool:
    """Return whether prepared data are here, or can be made here. Users that map them check their hashes."""
    if not _place(key).is_dir() and make is not None:
        problems.get(make["problem"])(**make["problem_args"]).open()  # type: ignore[attr-defined]
    return _place(key).is_dir()


def send(link: Connection, data: Any, progress: ProgressCallback) -> None:
    """Send prepared data to a machine, unless they are there or can be made there."""
    if link.ask("have", **data)[0]["have"]:
        return
    files = sorted(_place(data["key"]).iterdir())
    total, done = sum(path.stat().st_size for path in files), 0
    pieces = [(path, at) for path in files for at in range(0, max(path.stat().st_size, 1), CHUNK_BYTES)]
    for i, (path, at) in enumerate(pieces):
        with open_regular(path) as file:
            file.seek(at)
            text = file.read(CHUNK_BYTES)
        link.ask("put", text, key=data["key"], name=path.name, first=i == 0, last=i == len(pieces) - 1)
        done += len(text)
        progress("bringing data, KiB", done // 1024, total // 1024)


def receive(data: bytes, key: str, name: str, first: bool, last: bool) -> None:
    """Append a piece from `send` to a file. `first` and `last`: first and last piece of the whole folder."""
    place = _place(key)
    # One process serves one connection, so the name is unique.
    aside = place.with_name(f".{key}-{os.uname().nodename}-{os.getpid()}.tmp")
    if first:
        shutil.rmtree(aside, ignore_errors=True)
        private(place.parent)
        aside.mkdir()
    if Path(name).name != name:
        raise ValueError(f"name = {name!r}: is not a plain file name")
    with (aside / name).open("ab") as out:
        out.write(data)
    if not last:
        return
    try:
        aside.rename(place)
    except OSError:  # another process was faster
        shutil.rmtree(aside, ignore_errors=True)
        if not place.is_dir():
            raise


def _place(key: str) -> Path:
    if Path(key).name != key:
        raise ValueError(f"key = {key!r}: is not a plain folder name")
    return root() / "data" / key

"""Prepared data sets on disk: found by their options, checked before use, built by whoever comes first."""

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from workbench.core.base.errors import reason
from workbench.core.base.files import atomic_folder, private_folder, sha256, temporary_name, write_file
from workbench.core.base.reading import read_npy
from workbench.core.base.settings import user_path
from workbench.core.base.text import read_json

from .options import DataError, Options
from .prepare import FORMAT, digest

MAX_ATTEMPTS = 5  # another process may take a damaged folder away while we read it
_ELSEWHERE = "set WORKBENCH_CACHE, or XDG_CACHE_HOME for all caches, to a folder that you can write"

RACY_INTERVAL_S = 2.0  # s since its last change after which a file that is written to shows it in its time

_hashes: dict[tuple[str, int, int, int], str] = {}  # of files by path, number, size and time, see `hashed`


class DamagedError(Exception):
    """A prepared folder is not what its meta.json says."""


@dataclass(frozen=True)
class Prepared:
    """The content of a prepared folder."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, np.dtype[np.float64]]]


def root() -> Path:
    """Where prepared and downloaded data lie: WORKBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("WORKBENCH_CACHE")
    return user_path(chosen, "WORKBENCH_CACHE") if chosen else platformdirs.user_cache_path("workbench")


def ours(folder: Path) -> Path:
    """Make a folder of the cache, for this user alone; in one that the user chose, what is there stays as is."""
    return private_folder(folder, fix="WORKBENCH_CACHE" not in os.environ)


def stored(room: str, content: bytes, ending: str) -> Path:
    """A file of the cache with that content, in a room of its own; written on first use."""
    file = root() / room / f"{hashlib.sha256(content).hexdigest()[:32]}{ending}"
    if not file.is_file():
        _make_parent(file)
        write_file(file, content)
    return file


def folder_for(options: Options, identity: str) -> Path:
    """Name the folder of these options; `identity` changes whenever the source's content does."""
    # The identity stands for the source: the same file under another path is the same data.
    choices = {**vars(options), "source": identity, "format": FORMAT}
    del choices["target"]  # the identity tells of it, where there is a choice
    if isinstance(options.test, str | None):
        del choices["test"]  # likewise; and keys of data without held-out samples stay as they were
    key = hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()
    return root() / "data" / key[:32]


def ensure(folder: Path, build: Callable[[Path], None]) -> Prepared:
    """Open a prepared folder, building it first if it is absent or damaged.

    Warns where the folder was damaged and is built again; raises `DataError` where the cache cannot be written.
    """
    for _ in range(MAX_ATTEMPTS):
        if folder.exists():
            try:
                return open_folder(folder)
            except DamagedError as error:
                if not folder.exists():
                    continue  # another process is already replacing it
                warnings.warn(f"prepared data were damaged ({error}) and are built again", RuntimeWarning, 3)
                _discard(folder)
        _make_parent(folder)
        with atomic_folder(folder) as temporary:
            build(temporary)
    raise DataError(f"cache: {folder} is damaged again and again; {_ELSEWHERE}")


def open_folder(folder: Path) -> Prepared:
    """Map the arrays of a prepared folder into memory, checked once per process.

    Raises `DamagedError` where something is missing or differs from what was written.
    """
    try:
        meta = read_json(folder / "meta.json")
        if meta["format"] != FORMAT or meta["digest"] != digest(meta["classes"], meta["arrays"]):
            raise DamagedError("meta.json was changed")
        arrays = {name: _mapped(folder / f"{name}.npy", entry) for name, entry in meta["arrays"].items()}
        return Prepared(meta, arrays)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{type(error).__name__}: {error}") from error


def hashed(path: Path, cached: bool = False) -> str:
    """Hash a file, once a process as long as it stays what it was: 262 MB take a moment. `kept`: never written to."""
    status = path.stat()
    stamp = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    found = _hashes.get(stamp) or sha256(path)
    if cached or time.time() - status.st_mtime > RACY_INTERVAL_S:
        _hashes[stamp] = found
    return found


def hashes(*places: Path) -> list[list[Any]]:
    """What is known of files at these places or in these folders, for `trust` in other processes of a machine."""
    near = {str(place) for place in places}
    return [
        [*stamp, found] for stamp, found in _hashes.items() if near & {stamp[0], str(Path(stamp[0]).parent)}
    ]


def trust(found: Iterable[Sequence[Any]]) -> None:
    """Take another process's word for what files hold, as long as they stay what they were."""
    _hashes.update((tuple(stamp), known) for *stamp, known in found)


def _mapped(path: Path, entry: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array: np.ndarray[Any, np.dtype[np.float64]] = read_npy(path, mapped=True)
    if list(array.shape) != entry["shape"] or hashed(path, cached=True) != entry["sha256"]:
        raise DamagedError(f"{path.name} is not what was written")
    return array


def _discard(folder: Path) -> None:
    """Take a damaged folder out of the way in one step, so that no one opens half of it."""
    aside = temporary_name(folder)
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return  # another process did
    shutil.rmtree(aside, ignore_errors=True)


def _make_parent(folder: Path) -> None:
    try:
        ours(folder.parent)
    except OSError as error:
        why = f"cannot be made ({reason(error, folder.parent)})"
        raise DataError(f"cache: {folder.parent} {why}; {_ELSEWHERE}") from error
    if not os.access(folder.parent, os.W_OK):
        raise DataError(f"cache: {folder.parent} cannot be written; {_ELSEWHERE}")

"""Prepared data sets on disk. They are found by their options, checked before use, and built by the first process."""

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from workbench.core.base.errors import reason
from workbench.core.base.files import atomic_folder, private_folder, sha256, temporary_name, write_file
from workbench.core.base.locks import Lock
from workbench.core.base.reading import read_npy
from workbench.core.base.settings import SettingError, user_path
from workbench.core.base.text import read_json

from .options import DataError, Options
from .prepare import FORMAT, digest

# max number of attempts to read a folder, because another process may remove a damaged one meanwhile
MAX_ATTEMPTS = 5
_ELSEWHERE = "set WORKBENCH_CACHE, or XDG_CACHE_HOME for all caches, to a folder that you can write"

# resolution of file times, s: a file that is written again within this time may keep its modification time
RACY_INTERVAL_S = 2.0

LOCK = ".lock"  # file beside the folders, locked by the process that builds one
MAX_WAIT_S = 600.0  # max s of waiting for another process that builds

# hashes of files by path, inode, size and time, see `hashed`
_hashes: dict[tuple[str, int, int, int], str] = {}


class DamagedError(Exception):
    """Error of a prepared folder that differs from its meta.json."""


@dataclass(frozen=True)
class Prepared:
    """Content of a prepared folder."""

    meta: dict[str, Any]
    arrays: dict[str, np.ndarray[Any, np.dtype[np.float64]]]


def root() -> Path:
    """Return the folder of prepared and downloaded data: WORKBENCH_CACHE, or the user's cache folder."""
    chosen = os.environ.get("WORKBENCH_CACHE")
    return user_path(chosen, "WORKBENCH_CACHE") if chosen else platformdirs.user_cache_path("workbench")


def ours(folder: Path) -> Path:
    """Make a folder of the cache, readable only by this user.

    Permissions of a folder that the user chose do not change.
    """
    return private_folder(folder, fix="WORKBENCH_CACHE" not in os.environ)


def stored(room: str, content: bytes, ending: str) -> Path:
    """Return a file of the cache with that content, in the subfolder `room`. It is written on first use."""
    file = root() / room / f"{hashlib.sha256(content).hexdigest()[:32]}{ending}"
    if not file.is_file():
        _make_parent(file)
        write_file(file, content)
    return file


def folder_for(options: Options, identity: str) -> Path:
    """Return the folder for some options. `identity` changes with the content of the source."""
    # the identity replaces the source, because a file has the same data under any path
    choices = {**vars(options), "source": identity, "format": FORMAT}
    del choices["target"]  # if the source has several possible targets, the identity contains the chosen one
    if isinstance(options.test, str | None):
        # the identity contains this as well; without held-out samples, keys of the cache are as in version 1.0
        del choices["test"]
    key = hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()
    return root() / "data" / key[:32]


def ensure(folder: Path, build: Callable[[Path], None]) -> Prepared:
    """Open a prepared folder, building it first if it is absent or damaged.

    Warns if the folder was damaged and is built again. Raises `DataError` if the cache cannot be written.
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
        with _alone(folder):
            if not folder.exists():
                with atomic_folder(folder) as temporary:
                    build(temporary)
    raise DataError(f"cache: {folder} is damaged again and again; {_ELSEWHERE}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait while another process of this host builds data, unless it takes too long: it may be paused."""
    lock, until, taken = Lock(folder.parent / LOCK), time.monotonic() + MAX_WAIT_S, False
    try:
        with suppress(OSError, SettingError):  # the file cannot be locked
            while not (taken := lock.take()) and time.monotonic() < until:
                pass
        yield
    finally:
        if taken:
            lock.path.unlink(missing_ok=True)
            lock.release()


def open_folder(folder: Path) -> Prepared:
    """Map the arrays of a prepared folder into memory, checked once per process.

    Raises `DamagedError` if something is missing or differs from what was written.
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
    """Return the hash of a file. It is computed once per process, unless the file changes.

    `cached`: whether the file is in the cache, where files never change.
    """
    status = path.stat()
    stamp = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
    found = _hashes.get(stamp) or sha256(path)
    if cached or time.time() - status.st_mtime > RACY_INTERVAL_S:
        _hashes[stamp] = found
    return found


def hashes(*places: Path) -> list[list[Any]]:
    """Return the known hashes of these files, and of files in these folders, for `trust` in other processes."""
    near = {str(place) for place in places}
    return [
        [*stamp, found] for stamp, found in _hashes.items() if near & {stamp[0], str(Path(stamp[0]).parent)}
    ]


def trust(found: Iterable[Sequence[Any]]) -> None:
    """Use hashes that another process has computed, as long as the files do not change."""
    _hashes.update((tuple(stamp), known) for *stamp, known in found)


def _mapped(path: Path, entry: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array: np.ndarray[Any, np.dtype[np.float64]] = read_npy(path, mapped=True)
    if list(array.shape) != entry["shape"] or hashed(path, cached=True) != entry["sha256"]:
        raise DamagedError(f"{path.name} is not what was written")
    return array


def _discard(folder: Path) -> None:
    """Move a damaged folder away in one step, so that no process opens half of it."""
    aside = temporary_name(folder)
    try:
        folder.rename(aside)
    except FileNotFoundError:
        return  # another process has moved it
    shutil.rmtree(aside, ignore_errors=True)


def _make_parent(folder: Path) -> None:
    try:
        ours(folder.parent)
    except OSError as error:
        why = f"cannot be made ({reason(error, folder.parent)})"
        raise DataError(f"cache: {folder.parent} {why}; {_ELSEWHERE}") from error
    if not os.access(folder.parent, os.W_OK):
        raise DataError(f"cache: {folder.parent} cannot be written; {_ELSEWHERE}")

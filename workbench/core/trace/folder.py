"""New run folders. Those of runs without a given folder are in the user's cache, which keeps the newest."""

import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

from workbench.core.base.errors import reason
from workbench.core.base.files import made_cache_folder
from workbench.core.base.locks import Lock
from workbench.core.base.settings import SettingError, path_of
from workbench.core.trace.layout import ENDED, RUN_LOCK

MAX_CACHED_RUNS = 20
# min time for which the folder of an ended run is kept, s, because it may still be read
MIN_CACHE_TIME_S = 3600.0


def new_folder(folder: str | Path | None) -> Path:
    """Make the run folder. Raise `SettingError` if it is not empty, or cannot be made."""
    if folder is not None:
        path = path_of(folder, "folder").absolute()
        if path.exists() and (not path.is_dir() or not _empty(path)):
            raise _taken(folder)
    else:
        path = _cache() / f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"folder = {str(folder)!r}: cannot be made ({reason(error, path)})") from None
    return path


def locked_new(folder: Path) -> Lock:
    """Lock a new run folder for one run. Raise `SettingError` if another run was faster."""
    lock = Lock(folder / RUN_LOCK)
    if lock.take() and _empty(folder):
        return lock
    lock.release()
    raise _taken(folder)


def _empty(folder: Path) -> bool:
    return all(path.name == RUN_LOCK for path in folder.iterdir())


def _taken(folder: str | Path) -> SettingError:
    return SettingError(f"folder = {str(folder)!r}: exists already; choose a new name")


def _cache() -> Path:
    """Return the folder of unnamed runs, after removing old ended runs except the newest."""
    runs, ended = made_cache_folder("runs"), []
    for path in runs.iterdir():
        with suppress(OSError):
            if (path / ENDED).stat().st_mtime < time.time() - MIN_CACHE_TIME_S:
                ended.append(path)
    for old in sorted(ended)[:-MAX_CACHED_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    return runs

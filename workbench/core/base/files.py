"""Files and folders that appear whole or not at all, and the hashes of what a folder keeps.

The hashes are in a file as `sha256sum -c` reads it: what was changed since is refused, and named. A folder without
one is taken as it is, unless its run.json says that a version which writes hashes has written it.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from workbench.core.base.errors import MIN_INODES, reason
from workbench.core.base.reading import check_size, open_regular, parse_json, read_bytes
from workbench.core.base.settings import SettingError


@contextmanager
def atomic_write(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file for writing that takes its name only when it is complete.

    The bytes go to a temporary file in the same folder, reach the disk, and are renamed: readers see
    the old file or the new one, never half of either. When the block raises, the temporary file is
    removed and what stood at `path` stays.

    The folder of `path` must exist; `mode` is "wb", or "w" for text in UTF-8. Raises `ValueError` for another mode and
    `OSError` where the file cannot be written.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.txt"
    >>> with atomic_write(path, "w") as file:
    ...     _ = file.write("complete")
    >>> path.read_text()
    'complete'
    """
    if mode not in ("wb", "w"):
        raise ValueError(f"mode: {mode!r} cannot be written atomically; use 'wb' or 'w'")
    path = Path(path)
    temporary = temporary_name(path)
    try:
        # A plain open, unlike tempfile's, gives the file the permissions that the user's umask asks for.
        with temporary.open(mode, encoding="utf-8" if mode == "w" else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], new: bool = False) -> Iterator[Path]:
    """Fill a folder that takes its name only when it is complete.

    The block gets an empty temporary folder next to `path`. At its end the content reaches the disk and
    the folder is renamed. When another process was faster (or `path` has content already), theirs
    stays and ours is removed, without an error unless `new`. When the block raises, ours is removed as well.

    The parent of `path` must exist. Raises `FileExistsError` where another process was faster and ours was to be
    `new`, and `OSError` where the folder cannot be written or `path` is a file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run"
    >>> with atomic_folder(path) as folder:
    ...     _ = (folder / "result.txt").write_text("42")
    >>> [file.name for file in path.iterdir()]
    ['result.txt']
    """
    path = Path(path)
    temporary = temporary_name(path)
    temporary.mkdir()
    try:
        yield temporary
        _sync_content(temporary)
        try:
            temporary.rename(path)
        except OSError:
            # A folder cannot be renamed onto one with content: whoever came first has won.
            if not path.is_dir():
                raise
            if new:
                raise FileExistsError(f"{path} exists already") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync_folder(path.parent)


def sha256(path: str | os.PathLike[str]) -> str:
    """Hash a file's content: 64 hexadecimal digits. Raises `OSError` where the file cannot be read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> sha256(path)[:8]
    'e3b0c442'
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a whole file, at once or not at all, text in UTF-8; raises OSError."""
    with atomic_write(path, "w" if isinstance(content, str) else "wb") as out:
        out.write(content)


def write_json(path: str | os.PathLike[str], fields: Mapping[str, Any], indent: int | None = None) -> None:
    """Write fields as JSON, at once or not at all, on lines of their own with `indent`; raises OSError."""
    write_file(path, json.dumps(fields, indent=indent) + "\n")


def private_folder(path: Path, fix: bool = True) -> Path:
    """Make a folder, and those above it, that nobody else may enter, whatever the umask.

    `fix`: take the others' rights away where the folder is there already, and refuse one that is not the user's own.
    Without it, only one that anybody may write into is refused.

    Raises OSError where it cannot be made, and `SettingError` where somebody else could put files there.

    >>> import tempfile
    >>> oct(private_folder(Path(tempfile.mkdtemp()) / "runs").stat().st_mode & 0o777)
    '0o700'
    """
    for each in reversed([path, *path.parents]):
        if not each.exists():
            with suppress(FileExistsError):  # another process was faster
                each.mkdir(mode=0o700)  # `parents=True` would leave those above to the umask
                each.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    _check_own(path, fix)
    if fix and path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # a file system without rights
            path.chmod(0o700)
    return path


def _check_own(path: Path, strictly: bool) -> None:
    """Raise `SettingError` where somebody else owns a folder or its link, or could put another in its place."""
    if os.name == "nt":  # whose rights are others
        return
    for status in (path.lstat(), path.stat()):
        open_to_all = bool(status.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode)
        if status.st_uid != os.geteuid() and (strictly or open_to_all):
            raise _not_own(path, f"belongs to another user ({status.st_uid})")
    for above in (*path.absolute().parents, *path.resolve().parents):
        if above.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise _not_own(path, f"lies in {above}, where anybody may replace it")


def _not_own(path: Path, why: str) -> SettingError:
    return SettingError(
        f"{path}: {why}; take one of your own (XDG_CACHE_HOME, WORKBENCH_CACHE, or the cluster's folder)"
    )


def is_own(path: Path) -> bool:
    """Is this a folder of the user's that nobody else may write into?"""
    try:
        _check_own(path, strictly=True)
        return not path.stat().st_mode & 0o022
    except (OSError, SettingError):
        return False


def cache_folder(name: str) -> Path:
    """A folder of ours in the user's cache; it need not be there."""
    from platformdirs import user_cache_path

    return user_cache_path("straggler-workbench") / name


def made_cache_folder(name: str) -> Path:
    """Make a private folder in the user's cache; raise `SettingError` where nothing can be written there."""
    return writable_folder(cache_folder(name), "XDG_CACHE_HOME")


def writable_folder(folder: Path, variable: str) -> Path:
    """Make a private folder and check that it can be written; `variable` is the one that chooses another place.

    Raises `SettingError`, one sentence: the folder, the reason, and the remedy.
    """
    try:
        private_folder(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        probe = temporary_name(folder / "probe")
        probe.mkdir()  # a file system may be read-only, or have no room for one file more
        probe.rmdir()
        room = os.statvfs(folder)
        if room.f_files and room.f_favail < MIN_INODES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        why = f"cannot be written ({reason(error, folder)})"
        raise SettingError(f"{folder}: {why}; set {variable} to a folder that you can write") from None
    return folder


def temporary_name(path: Path) -> Path:
    """Make up a name next to `path` (so that a rename stays on one disk) that nobody else uses."""
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def _sync_content(folder: Path) -> None:
    """Push every file of a folder to the disk, so that a rename never outlives the bytes."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(parent))


def _sync_folder(folder: Path) -> None:
    """Push a folder's list of names to the disk, where the system can (Windows cannot open folders)."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


SUMS, WRITER = "SHA256SUMS", "run.json"  # hashes; the file that says which version wrote a folder
FIRST_WITH_SUMS = 1  # major version from which on every folder has hashes
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)\n")


def write_sums(folder: Path, names: Iterable[str], more: Mapping[str, bytes] | None = None) -> None:
    """Write the hashes of files that are there, and of others that are to be written with that content.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "model.npy").write_bytes(b"1")
    >>> write_sums(folder, ["model.npy"])
    >>> _ = (folder / "model.npy").write_bytes(b"2")
    >>> check_sums(folder, ["model.npy"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    workbench.core.base.settings.SettingError: ...model.npy is not what was written (see SHA256SUMS); run it again
    """
    hashes = {name: sha256(folder / name) for name in names}
    hashes |= {name: hashlib.sha256(content).hexdigest() for name, content in (more or {}).items()}
    with atomic_write(folder / SUMS, "w") as out:
        out.writelines(f"{hashed}  {name}\n" for name, hashed in hashes.items())


def read_sums(folder: Path) -> dict[str, str] | None:
    """Hash of each file by its name; None where none were written. Raises `SettingError` where they are damaged."""
    try:
        text = read_bytes(folder / SUMS).decode(errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, SettingError) as error:
        raise _damaged(folder, SUMS, f"cannot be read ({_reason(error)})") from None
    lines = _LINE.findall(text)
    if sum(len(hashed) + len(name) + 3 for hashed, name in lines) != len(text):
        raise _damaged(folder, SUMS, "holds something else than hashes and names")
    return {name: hashed for hashed, name in lines}


def check_sums(folder: Path, names: Iterable[str], whole: bool = True) -> None:
    """Raise `SettingError` for the first of the files that is not what was written.

    whole: they are to be read as a whole, so that none may be larger than memory.
    """
    known = read_sums(folder)
    if known is None:
        if _had_sums(folder):
            raise _damaged(folder, SUMS, f"is missing, and the version that wrote {WRITER} has written one")
        return
    for name in names:
        if name not in known:
            raise _damaged(folder, name, f"does not stand in {SUMS}")
        try:
            if whole:
                check_size(folder / name, (folder / name).stat().st_size)
            same = sha256(folder / name) == known[name]
        except (OSError, SettingError) as error:
            raise _damaged(folder, name, f"cannot be read ({_reason(error)})") from None
        if not same:
            raise _damaged(folder, name, f"is not what was written (see {SUMS})")


def _had_sums(folder: Path) -> bool:
    """Was a folder written by a version that writes hashes? What cannot be read is left to its reader."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        versions = parse_json(read_bytes(folder / WRITER), folder / WRITER)["versions"]
        return int(str(versions["straggler-workbench"]).partition(".")[0]) >= FIRST_WITH_SUMS
    return False


def _reason(error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error).rpartition(": ")[2]
    return str(why).partition(";")[0]


def unchanged(folder: Path, name: str) -> bool:
    """Is the file there, and what it was when hashes were written?"""
    known = read_sums(folder) or {}
    return name in known and (folder / name).is_file() and sha256(folder / name) == known[name]


def _damaged(folder: Path, name: str, what: str) -> SettingError:
    return SettingError(f"folder = {str(folder)!r}: {name} {what}; run it again")

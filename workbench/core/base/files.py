"""Atomic writing of files and folders, and hashes of the files in a folder.

The hashes are in a file that `sha256sum -c` can read. A file that was changed later is refused, with its name in the
message. A folder without hashes is accepted, unless it was written by a version of the package that writes hashes.
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
    """Open a file for writing that gets its name only when it is complete.

    The bytes are written to a temporary file in the same folder, which is synchronised to the disk and then renamed.
    Readers see the old file or the new one, but never a part. If the block raises, the temporary file is removed, and
    the file at `path` is unchanged.

    The folder of `path` must exist. `mode`: "wb", or "w" for text in UTF-8. Raises `ValueError` for another mode, and
    `OSError` if the file cannot be written.

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
        # not `tempfile`, whose files have permissions that ignore the user's umask
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
    """Fill a folder that gets its name only when it is complete.

    The block gets an empty temporary folder next to `path`. At its end, the content is synchronised to the disk, and
    the folder is renamed. If `path` has content by then, for example from another process, that content stays and the
    temporary folder is removed. This is an error only with `new`. If the block raises, the temporary folder is removed.

    The parent of `path` must exist. Raises `FileExistsError` if `new` and the folder exists already, and `OSError` if
    the folder cannot be written or `path` is a file.

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
            # a folder with content cannot be replaced, so the folder of the faster process stays
            if not path.is_dir():
                raise
            if new:
                raise FileExistsError(f"{path} exists already") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _sync_folder(path.parent)


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 hash of a file as 64 hexadecimal digits. Raises `OSError` if it cannot be read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> sha256(path)[:8]
    'e3b0c442'
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_file(path: str | os.PathLike[str], content: bytes | str, private: bool = False) -> None:
    """Write bytes or text (in UTF-8) to a file, atomically. `private`: only the owner can read it. Raises OSError."""
    with atomic_write(path, "w" if isinstance(content, str) else "wb") as out:
        if private:
            os.fchmod(out.fileno(), 0o600)
        out.write(content)


def write_json(path: str | os.PathLike[str], fields: Mapping[str, Any], indent: int | None = None) -> None:
    """Write fields as JSON, atomically; `indent` as in `json.dumps`. Raises OSError."""
    write_file(path, json.dumps(fields, indent=indent) + "\n")


def private_folder(path: Path, fix: bool = True) -> Path:
    """Make a folder and its parents with access for the user only, whatever the umask.

    `fix`: remove the rights of others from an existing folder, and refuse a folder of another user. Without `fix`, a
    folder of another user is refused only if all users may write to it.

    Raises OSError if the folder cannot be made, and `SettingError` if another user could put files there.

    >>> import tempfile
    >>> oct(private_folder(Path(tempfile.mkdtemp()) / "runs").stat().st_mode & 0o777)
    '0o700'
    """
    for each in reversed([path, *path.parents]):
        if not each.exists():
            with suppress(FileExistsError):  # another process was faster
                each.mkdir(mode=0o700)  # with `parents=True`, parents would get the rights of the umask
                each.chmod(0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    _check_own(path, fix)
    if fix and path.stat().st_mode & 0o077:
        with suppress(PermissionError):  # the file system may not support access rights
            path.chmod(0o700)
    return path


def _check_own(path: Path, strictly: bool) -> None:
    """Raise `SettingError` if another user owns a folder (or a link to it), or could replace it."""
    if os.name == "nt":  # Windows has other access rights
        return
    for status in (path.lstat(), path.stat()):
        open_to_all = bool(status.st_mode & stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode)
        if status.st_uid != os.geteuid() and (strictly or open_to_all):
            raise _not_own(path, f"belongs to another user ({status.st_uid})")
    for above in (*path.absolute().parents, *path.resolve().parents):
        if above.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
            raise _not_own(path, f"is in {above}, where any user may replace it")


def _not_own(path: Path, why: str) -> SettingError:
    return SettingError(
        f"{path}: {why}; take one of your own (XDG_CACHE_HOME, WORKBENCH_CACHE, or the cluster's folder)"
    )


def is_own(path: Path) -> bool:
    """Return whether a folder belongs to the user, and no other user may write to it."""
    try:
        _check_own(path, strictly=True)
        return not path.stat().st_mode & 0o022
    except (OSError, SettingError):
        return False


def cache_folder(name: str) -> Path:
    """Return the path of a workbench folder in the user's cache, which may not exist yet."""
    from platformdirs import user_cache_path

    return user_cache_path("straggler-workbench") / name


def made_cache_folder(name: str) -> Path:
    """Make a private folder in the user's cache. Raises `SettingError` if it cannot be written."""
    return writable_folder(cache_folder(name), "XDG_CACHE_HOME")


def writable_folder(folder: Path, variable: str) -> Path:
    """Make a private folder and check that it can be written.

    `variable`: environment variable that chooses another folder. Raises `SettingError` with the folder, the reason and
    the variable.
    """
    try:
        private_folder(folder)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        probe = temporary_name(folder / "probe")
        probe.mkdir()  # raises an error if the file system is read-only or full
        probe.rmdir()
        room = os.statvfs(folder)
        if room.f_files and room.f_favail < MIN_INODES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        why = f"cannot be written ({reason(error, folder)})"
        raise SettingError(f"{folder}: {why}; set {variable} to a folder that you can write") from None
    return folder


def temporary_name(path: Path) -> Path:
    """Return a random path in the folder of `path`, so that a rename stays within one file system."""
    return path.with_name(f".{secrets.token_hex(8)}.tmp")


def _sync_content(folder: Path) -> None:
    """Synchronise every file of a folder to the disk, so that no content is missing after a rename."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(parent))


def _sync_folder(folder: Path) -> None:
    """Synchronise a folder's list of names to the disk, except on Windows, which cannot open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


SUMS, WRITER = "SHA256SUMS", "run.json"  # file of hashes, and file with the version that wrote a folder
FIRST_WITH_SUMS = 1  # first major version that writes hashes to every folder
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)\n")


def write_sums(folder: Path, names: Iterable[str], more: Mapping[str, bytes] | None = None) -> None:
    """Write the hashes of the existing files `names`, and of files that are written later (`more`: name -> content).

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
    """Return the hash of each file by its name, or None if the folder has no hashes.

    Raises `SettingError` if they are damaged.
    """
    try:
        text = read_bytes(folder / SUMS).decode(errors="replace")
    except FileNotFoundError:
        return None
    except (OSError, SettingError) as error:
        raise _damaged(folder, SUMS, f"cannot be read ({_reason(error)})") from None
    lines = _LINE.findall(text)
    if sum(len(hashed) + len(name) + 3 for hashed, name in lines) != len(text):
        raise _damaged(folder, SUMS, "has other content than hashes and names")
    return {name: hashed for hashed, name in lines}


def check_sums(folder: Path, names: Iterable[str], whole: bool = True) -> None:
    """Raise `SettingError` for the first of the files that was changed since its hash was written.

    `whole`: check also that each file fits into memory, because it will be read as a whole.
    """
    known = read_sums(folder)
    if known is None:
        if _had_sums(folder):
            raise _damaged(folder, SUMS, f"is missing, and the version that wrote {WRITER} has written one")
        return
    for name in names:
        if name not in known:
            raise _damaged(folder, name, f"is not in {SUMS}")
        try:
            if whole:
                check_size(folder / name, (folder / name).stat().st_size)
            same = sha256(folder / name) == known[name]
        except (OSError, SettingError) as error:
            raise _damaged(folder, name, f"cannot be read ({_reason(error)})") from None
        if not same:
            raise _damaged(folder, name, f"is not what was written (see {SUMS})")


def _had_sums(folder: Path) -> bool:
    """Return whether the version that wrote a folder writes hashes; False if that version cannot be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        versions = parse_json(read_bytes(folder / WRITER), folder / WRITER)["versions"]
        return int(str(versions["straggler-workbench"]).partition(".")[0]) >= FIRST_WITH_SUMS
    return False


def _reason(error: Exception) -> str:
    why = error.strerror if isinstance(error, OSError) else str(error).rpartition(": ")[2]
    return str(why).partition(";")[0]


def unchanged(folder: Path, name: str) -> bool:
    """Return whether a file exists and is unchanged since its hash was written."""
    known = read_sums(folder) or {}
    return name in known and (folder / name).is_file() and sha256(folder / name) == known[name]


def _damaged(folder: Path, name: str, what: str) -> SettingError:
    return SettingError(f"folder = {str(folder)!r}: {name} {what}; run it again")

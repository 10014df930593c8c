"""Limits on user-defined code that a file names. Reading the file runs no such code. Running it runs only trusted code.

A file may name code: a class of a user file ("mine.py:Half"), or a function of a module ("os:abort"). Within
`limited`, such a name is resolved only if this process has run the code already, or if the hash of its source is
allowed. Outside `limited`, a name comes from the user, and the code is run.

Files that processes of the user write are signed with the user's key, as Jupyter signs notebooks (HMAC-SHA256). The key
is in the user's data folder, and only the user can read it. Without a usable key, nothing is signed, and no signature
is valid.
"""

import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.base.settings import SettingError

KEY_BYTES = 32


@dataclass
class Limit:
    """Code that may be run, by its name and the hash of its source, and the names that were refused."""

    allowed: Mapping[str, str] = field(default_factory=dict)  # name -> hash of its source
    refused: list[str] = field(default_factory=list)  # messages of the errors for refused names
    names: list[str] = field(default_factory=list)  # refused names of code

    def refuse(self, name: str, field: str) -> SettingError:
        """Record the name of code that may not run, and return the error for it."""
        self.names.append(name)
        return self.unknown(SettingError(f"{field} = {name!r}: names code, which reading does not run"))

    def unknown(self, error: SettingError) -> SettingError:
        """Record the error for an unknown name, and return it."""
        self.refused.append(str(error))
        return error


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)


def limit() -> Limit | None:
    """Return the current limit, or None outside of `limited`, where names come from the user."""
    return _limit.get() or _everywhere


@contextmanager
def limited(allowed: Mapping[str, str] | None = None) -> Iterator[Limit]:
    """Refuse within a block to run code that a file names, except `allowed` code: name -> hash of its source.

    >>> with limited() as now:
    ...     limit() is now
    True
    """
    now = Limit(allowed or {})
    token = _limit.set(now)
    try:
        yield now
    finally:
        _limit.reset(token)


def limit_to(allowed: Mapping[str, str]) -> None:
    """Limit this whole process, as `limited` limits a block. It is for kernels that a limited process starts."""
    global _everywhere
    _everywhere = Limit(allowed)


_everywhere: Limit | None = None


# ---------------------------------------------------------------- the user's key


def key_file() -> Path:
    """Return the path of the key, which may not exist yet."""
    from platformdirs import user_data_path

    return user_data_path("straggler-workbench") / "trust" / "key"


def signature(fields: Mapping[str, Any]) -> str | None:
    """Return the signature of some fields with the user's key, or None without a usable key."""
    key = _key(make=True)
    return None if key is None else _signed(key, fields)


def is_signed(fields: Mapping[str, Any], signed: object) -> bool:
    """Return whether `signed` is the signature of these fields with the user's key."""
    key = _key(make=False) if isinstance(signed, str) else None
    return key is not None and hmac.compare_digest(_signed(key, fields).encode(), str(signed).encode())


def _signed(key: bytes, fields: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(fields, sort_keys=True).encode(), "sha256").hexdigest()


def _key(make: bool) -> bytes | None:
    """Return the key, or None if other users could read it. With `make`, a missing key is made."""
    file = key_file()
    try:
        if not file.is_absolute() or (not make and not file.exists()):
            return None
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _private(file.parent.lstat(), stat.S_ISDIR):
            return None
        if not file.exists():
            _make(file)
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as opened:
            found = opened.read(KEY_BYTES + 1) if _private(os.fstat(handle), stat.S_ISREG) else b""
    except OSError:
        return None
    return found if len(found) == KEY_BYTES else None


def _private(found: os.stat_result, kind: Any) -> bool:
    """Return whether a file or folder belongs to the user, and no other user may read or change it."""
    if os.name == "nt":  # the user's data folder is private there
        return bool(kind(found.st_mode))
    return bool(kind(found.st_mode)) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _make(file: Path) -> None:
    """Write a new key, unless another process has written one first."""
    temporary = file.with_name(f".{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
            out.flush()
            os.fsync(handle)
        try:
            os.link(temporary, file)  # a rename could replace a key that is already in use
        except OSError:
            if not file.exists():  # the file system does not support links
                temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)

"""Which code may be run on behalf of a file: none while it is read; when it is run, what the user trusts.

A file may name code: a class of a loose file ("mine.py:Half"), or a function of a module ("os:abort"). Within `limited`
such names are looked up only where this process has run that code already, or where the source that they stand for has
the hash that was allowed. Outside, the user has named the code, and it is run.

What the user's own processes write is signed with a key of the user's own, as Jupyter signs notebooks (HMAC-SHA256).
The key lies in the user's data folder, readable by its owner only. Without a usable key nothing is signed, and nothing
counts as signed.
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
    """What may be run: code by its name, and the hash of its source. `refused`: what was not looked up, and why."""

    allowed: Mapping[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of code that was refused

    def refuse(self, name: str, field: str) -> SettingError:
        """Note that a name of code is not looked up; returns the error that says so."""
        self.names.append(name)
        return self.unknown(SettingError(f"{field} = {name!r}: names code, which reading does not run"))

    def unknown(self, error: SettingError) -> SettingError:
        """Note that a name stands for nothing here; returns the error."""
        self.refused.append(str(error))
        return error


_limit: ContextVar[Limit | None] = ContextVar("limit", default=None)


def limit() -> Limit | None:
    """Return the limit that holds now; None where the user has named the code."""
    return _limit.get() or _everywhere


@contextmanager
def limited(allowed: Mapping[str, str] | None = None) -> Iterator[Limit]:
    """Run no code for the names in a file, within a block, but what is `allowed`: hashes of sources by name.

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
    """The same for all that this process does, in a kernel that works for one which is limited so."""
    global _everywhere
    _everywhere = Limit(allowed)


_everywhere: Limit | None = None


# ---------------------------------------------------------------- the user's key


def key_file() -> Path:
    """Return where the key lies; it need not be there."""
    from platformdirs import user_data_path

    return user_data_path("straggler-workbench") / "trust" / "key"


def signature(fields: Mapping[str, Any]) -> str | None:
    """Return the signature of some fields, made with the user's key; None where there can be no key."""
    key = _key(make=True)
    return None if key is None else _signed(key, fields)


def is_signed(fields: Mapping[str, Any], signed: object) -> bool:
    """Is it the signature of these fields, made with the user's key?"""
    key = _key(make=False) if isinstance(signed, str) else None
    return key is not None and hmac.compare_digest(_signed(key, fields).encode(), str(signed).encode())


def _signed(key: bytes, fields: Mapping[str, Any]) -> str:
    return hmac.new(key, json.dumps(fields, sort_keys=True).encode(), "sha256").hexdigest()


def _key(make: bool) -> bytes | None:
    """Return the key, made where there is none yet; None where it cannot be kept from others."""
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
    """Is it a file or folder of the user's own, that nobody else may read or change?"""
    if os.name == "nt":  # the user's folder is the user's own there
        return bool(kind(found.st_mode))
    return bool(kind(found.st_mode)) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _make(file: Path) -> None:
    """Write a new key; where another process is faster, its key stays."""
    temporary = file.with_name(f".{secrets.token_hex(8)}.tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(secrets.token_bytes(KEY_BYTES))
            out.flush()
            os.fsync(handle)
        try:
            os.link(temporary, file)  # a rename would replace a key that something was signed with
        except OSError:
            if not file.exists():  # a file system without links
                temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)

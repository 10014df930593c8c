"""Hashes of the files that a folder keeps: what was changed since is refused, and named.

They stand in a file as `sha256sum -c` reads it. A folder without one, of an older version, is taken as it is.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from workbench.base.files import atomic_write, sha256
from workbench.base.settings import SettingError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)\n")


def write_sums(folder: Path, names: Iterable[str], more: Mapping[str, bytes] | None = None) -> None:
    """Write the hashes of files that are there, and of others that are to be written with that content.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "model.npy").write_bytes(b"1")
    >>> write_sums(folder, ["model.npy"])
    >>> _ = (folder / "model.npy").write_bytes(b"2")
    >>> check_sums(folder, ["model.npy"])
    Traceback (most recent call last):
        ...
    workbench.base.settings.SettingError: ...model.npy is not what was written (see SHA256SUMS); run it anew
    """
    hashes = {name: sha256(folder / name) for name in names}
    hashes |= {name: hashlib.sha256(content).hexdigest() for name, content in (more or {}).items()}
    with atomic_write(folder / SUMS, "w") as out:
        out.writelines(f"{hashed}  {name}\n" for name, hashed in hashes.items())


def read_sums(folder: Path) -> dict[str, str] | None:
    """Hash of each file by its name; None where none were written. Raises `SettingError` where they are damaged."""
    try:
        text = (folder / SUMS).read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _damaged(folder, SUMS, f"cannot be read ({error.strerror})") from None
    lines = _LINE.findall(text)
    if sum(len(hashed) + len(name) + 3 for hashed, name in lines) != len(text):
        raise _damaged(folder, SUMS, "holds something else than hashes and names")
    return {name: hashed for hashed, name in lines}


def check_sums(folder: Path, names: Iterable[str]) -> None:
    """Raise `SettingError` for the first of the files that is not what was written."""
    known = read_sums(folder)
    if known is None:
        return
    for name in names:
        if name not in known:
            raise _damaged(folder, name, f"does not stand in {SUMS}")
        try:
            same = sha256(folder / name) == known[name]
        except OSError as error:
            raise _damaged(folder, name, f"cannot be read ({error.strerror})") from None
        if not same:
            raise _damaged(folder, name, f"is not what was written (see {SUMS})")


def unchanged(folder: Path, name: str) -> bool:
    """Is the file there, and what it was when hashes were written?"""
    known = read_sums(folder) or {}
    return name in known and (folder / name).is_file() and sha256(folder / name) == known[name]


def _damaged(folder: Path, name: str, what: str) -> SettingError:
    return SettingError(f"folder = {str(folder)!r}: {name} {what}; run it anew")

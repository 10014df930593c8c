"""Signatures of folders: what a run or a sweep names to be run, code and cluster, as this user's processes wrote it.

A folder that names code of its own (a loose file, a function of a module) is run, gone on with or replayed where its
signature is of this user's key and holds for its spec, for the sources that lie beside it, and for the source that the
names stand for now. One that nobody has signed, that was altered, or that comes from elsewhere needs `trust = True`,
and is then signed. A function of this kernel counts as code: a folder could name any. A folder that names what the
workbench ships, or a scheme and the like that this kernel has defined, needs nothing.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from workbench.core.base.files import write_json
from workbench.core.base.older import renamed
from workbench.core.base.reading import read_bytes, read_text
from workbench.core.base.settings import SettingError, check_kind
from workbench.core.base.sources import digest_in
from workbench.core.base.text import read_json, read_yaml
from workbench.core.base.trust import is_signed, limited, signature
from workbench.core.base.user_code import is_defined, run_hash, source_hash
from workbench.core.experiment import Description, Experiment, described
from workbench.core.trace.definitions import check_kept, kept_in, not_the_same, where_kept
from workbench.core.trace.layout import OWN_SOURCE, SIGNATURE, SPEC

CODE_NOTE, OWNER_NOTE = "code", "holder"  # what a folder's signatures are of
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # package.module:Net


def code_names(value: Any) -> set[str]:
    """Names in nested fields that may be names of code.

    >>> sorted(code_names({"scheme": "mine.py:Half", "args": [{"loss": "os:abort"}], "data": "digits"}))
    ['mine.py:Half', 'os:abort']
    """
    found, left = set[str](), [value]
    for each in left:  # which grows
        if isinstance(each, Mapping):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
        elif isinstance(each, str) and (".py:" in each or _NAME.fullmatch(each) or is_defined(each)):
            found.add(each)
    return found


def _prompt_text(what: str, folder: Path, spec: Any, code: Mapping[str, str]) -> dict[str, Any]:
    """What is signed of a folder that names code."""
    kept = {path.name: sha256(read_bytes(path)).hexdigest() for path in kept_in(folder)}
    found = {name: hashed for name, hashed in code.items() if hashed}  # what is installed has none
    return {"what": what, "spec": json.loads(json.dumps(spec)), "code": found, "kept": kept}


def sign_code(what: str, folder: Path, spec: Any, needed: bool = False) -> None:
    """Sign a folder that names code, as it was run in this process; where that cannot be, leave it unsigned.

    `needed`: sign one that names no code, too.
    """
    with suppress(OSError):
        hashes = {name: run_hash(name) for name in code_names(spec)}
        code = {name: found for name, found in hashes.items() if found is not None}
        if code or needed:
            _note(folder, CODE_NOTE, _prompt_text(what, folder, spec, code))


def sign_owner(folder: Path, fields: Mapping[str, Any]) -> None:
    """Sign what owner.json says, so that the run is followed where its cluster's file has changed since."""
    with suppress(OSError):
        _note(folder, OWNER_NOTE, {"what": OWNER_NOTE, "words": dict(fields)})


def owner_is_signed(folder: Path, fields: Mapping[str, Any]) -> bool:
    """Did this user's processes write what owner.json says?"""
    return is_signed({"what": OWNER_NOTE, "words": dict(fields)}, _noted(folder).get(OWNER_NOTE))


def _noted(folder: Path) -> dict[str, Any]:
    """Return the signatures of a folder, empty where there are none."""
    file = folder / SIGNATURE
    with suppress(OSError, SettingError):
        return read_json(file) if file.is_file() else {}
    return {}


def _note(folder: Path, name: str, fields: Mapping[str, Any]) -> None:
    if (signed := signature(fields)) is not None:
        write_json(folder / SIGNATURE, {**_noted(folder), name: signed}, indent=2)


def permitted(what: str, folder: Path, spec: Any, trust: bool, refusal: SettingError) -> dict[str, str]:
    """Hashes of the code that a folder names, by its name, where it is signed or trusted; else raises `refusal`."""
    check_kind("trust", trust, bool)
    signed = _noted(folder).get(CODE_NOTE)
    if not trust and signed is None:
        raise refusal
    code = {name: source_hash(name) for name in code_names(spec)}
    text = _prompt_text(what, folder, spec, code)
    if is_signed(text, signed):
        return code
    if not trust:
        _check_definitions(folder, code)
        raise refusal
    with suppress(OSError):
        _note(folder, CODE_NOTE, text)
    return code


def _check_definitions(folder: Path, code: Mapping[str, str]) -> None:
    """Raise `SettingError` where a file's definition is not the one that is kept in a run folder, by its text."""
    for name in code:
        text, _, wanted = name.rpartition(":")
        kept = folder / OWN_SOURCE.format(wanted)
        with suppress(OSError, UnicodeDecodeError, SyntaxError, RuntimeError, MemoryError):
            file = Path(text).expanduser()
            now, before = (read_text(path) if path.is_file() else "" for path in (file, kept))
            if now and before and digest_in(now, wanted) != digest_in(before, wanted):
                raise not_the_same(wanted)


def _made(folder: Path, fields: Mapping[str, Any]) -> Experiment:
    try:
        return Experiment(**fields)
    except SettingError as error:
        raise SettingError(f"{folder / SPEC}: {error}") from None


@contextmanager
def runnable(
    folder: Path, trust: bool = False, spec: Mapping[str, Any] | None = None
) -> Iterator[Experiment]:
    """Give the experiment of a run folder to run it, within a block in which no other code of the folder is run.

    `spec`: its fields, where they were read already.

    Raises `SettingError` where it names code that is neither signed nor trusted, and where a definition of the user's
    own is not the one of the run any more.
    """
    check_kind("trust", trust, bool)
    fields = renamed(read_yaml(folder / SPEC, "scheme: CR")) if spec is None else spec
    found, code = described(fields), {}
    if isinstance(found, Description):
        if not found.names_code:
            raise SettingError(f"{folder / SPEC}: {found.error}{where_kept(folder)}")
        how = f"look at it, then trust=True (--trust) runs it and trusts {str(folder)!r} from then on"
        refusal = f"{folder / SPEC}: {found.error}; {how}"
        code = permitted("run", folder, dict(fields), trust, SettingError(refusal))
    with limited(code):
        if code:
            found = _made(folder, fields)
        check_kept(folder, found)
        yield found

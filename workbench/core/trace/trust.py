"""Signatures of folders, for the code and the cluster that a run or a sweep names.

A folder may name user-defined code: a class of a user file, or a function of a module. Such a folder is run, resumed or
replayed only with a signature by this user's key. The signature covers the folder's spec, the sources in the folder,
and the current sources of the named code. Without a valid signature, `trust = True` is needed, which signs the folder.
A function of this kernel counts as code, because a folder could name any function. A folder that names only classes of
workbench or of this kernel, such as schemes, needs no signature.
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
from workbench.core.base.settings import SettingError, check_kind, errors_of
from workbench.core.base.sources import digest_in
from workbench.core.base.text import read_json, read_yaml
from workbench.core.base.trust import is_signed, limited, signature
from workbench.core.base.user_code import is_defined, run_hash, source_hash
from workbench.core.experiment import Description, Experiment, described
from workbench.core.trace.definitions import check_kept, kept_in, not_the_same, where_kept
from workbench.core.trace.layout import OWN_SOURCE, SIGNATURE, SPEC

CODE_NOTE, OWNER_NOTE = "code", "holder"  # names of the signatures in a folder
_NAME = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")  # package.module:Net


def code_names(value: Any) -> set[str]:
    """Return the names in nested fields that may be names of code.

    >>> sorted(code_names({"scheme": "mine.py:Half", "args": [{"loss": "os:abort"}], "data": "digits"}))
    ['mine.py:Half', 'os:abort']
    """
    found, left = set[str](), [value]
    for each in left:  # the list grows in the loop
        if isinstance(each, Mapping):
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
        elif isinstance(each, str) and (".py:" in each or _NAME.fullmatch(each) or is_defined(each)):
            found.add(each)
    return found


def _prompt_text(what: str, folder: Path, spec: Any, code: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of the signature of a folder that names code."""
    kept = {path.name: sha256(read_bytes(path)).hexdigest() for path in kept_in(folder)}
    # code of installed packages has no hash and needs none
    found = {name: hashed for name, hashed in code.items() if hashed}
    return {"what": what, "spec": json.loads(json.dumps(spec)), "code": found, "kept": kept}


def sign_code(what: str, folder: Path, spec: Any, needed: bool = False) -> None:
    """Sign a folder that names code, with the code that was run in this process. On failure, it remains unsigned.

    `needed`: sign also a folder that names no code.
    """
    with suppress(OSError):
        hashes = {name: run_hash(name) for name in code_names(spec)}
        code = {name: found for name, found in hashes.items() if found is not None}
        if code or needed:
            _note(folder, CODE_NOTE, _prompt_text(what, folder, spec, code))


def sign_owner(folder: Path, fields: Mapping[str, Any]) -> None:
    """Sign the content of owner.json, so that the run can be followed after a change of its cluster's file."""
    with suppress(OSError):
        _note(folder, OWNER_NOTE, {"what": OWNER_NOTE, "words": dict(fields)})


def owner_is_signed(folder: Path, fields: Mapping[str, Any]) -> bool:
    """Return whether this user's processes wrote the content of owner.json."""
    return is_signed({"what": OWNER_NOTE, "words": dict(fields)}, _noted(folder).get(OWNER_NOTE))


def _noted(folder: Path) -> dict[str, Any]:
    """Return the signatures of a folder, empty if there are none."""
    file = folder / SIGNATURE
    with suppress(OSError, SettingError):
        return read_json(file) if file.is_file() else {}
    return {}


def _note(folder: Path, name: str, fields: Mapping[str, Any]) -> None:
    if (signed := signature(fields)) is not None:
        write_json(folder / SIGNATURE, {**_noted(folder), name: signed}, indent=2)


def permitted(what: str, folder: Path, spec: Any, trust: bool, refusal: SettingError) -> dict[str, str]:
    """Return name -> hash of the code that a folder names, if it is signed or trusted. Otherwise raise `refusal`."""
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
    """Raise `SettingError` if a file's definition differs from the text that is kept in a run folder."""
    for name in code:
        text, _, wanted = name.rpartition(":")
        kept = folder / OWN_SOURCE.format(wanted)
        with suppress(OSError, UnicodeDecodeError, SyntaxError, RuntimeError, MemoryError):
            file = Path(text).expanduser()
            now, before = (read_text(path) if path.is_file() else "" for path in (file, kept))
            if now and before and digest_in(now, wanted) != digest_in(before, wanted):
                raise not_the_same(wanted)


@contextmanager
def runnable(
    folder: Path, trust: bool = False, spec: Mapping[str, Any] | None = None
) -> Iterator[Experiment]:
    """Yield the experiment of a run folder in a context in which no other code of the folder is run.

    `spec`: fields of the experiment, if they were already read.

    Raises `SettingError` if the folder names code that is neither signed nor trusted, or if a user-defined class or
    function has changed since the run.
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
            with errors_of(folder / SPEC):
                found = Experiment(**fields)
        check_kept(folder, found)
        yield found

"""Which definitions are a user's own, of a notebook's cell, a script or a loose file, and where they fail."""

import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from workbench.core.base.errors import RunError, WorkbenchError
from workbench.core.base.settings import SettingError, user_path

LOOSE = "own_"  # begins the name of a loose file's module

_named: dict[str, Any] = {}  # functions and classes that settings hold by a bare name, the newest of each
_came: dict[str, Any] = {}  # the same in a rank: what its task brought, whatever the rank's own code calls so


def is_own(thing: Any) -> bool:
    """Is a class, function or module of a cell, a script or a loose file, so that other processes cannot import it?

    >>> is_own(is_own), is_own(int)
    (False, False)
    """
    module = getattr(thing, "__module__", None) or "builtins"
    name = thing.__name__ if isinstance(thing, ModuleType) else module
    top = name.partition(".")[0]
    if _ours(top) or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    files = [getattr(sys.modules.get(known), "__file__", None) for known in (name, top)]
    file = files[0] or files[1]
    return top == "__main__" or file is None or not _installed(file)


def _ours(top: str) -> bool:
    """Is it the workbench, or one of the packages that lie beside it?"""
    return top.partition("_")[0] == "workbench"


@cache
def _installed(file: str) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(place) for place in _places())


@cache  # for a thousand modules sysconfig takes seconds
def _places() -> set[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return {Path(sysconfig.get_path(name)).resolve() for name in names}


def name_of(value: Any, field: str) -> str:
    """Name that stands for a function or class in settings, which hold text only: `thing_of` finds it again by it.

    What a cell defines is remembered by its bare name; running the cell again puts the new one in its place. Raises
    `SettingError` for what has no name.

    >>> name_of(name_of, "problem_args.loss")
    'workbench.core.base.own:name_of'
    """
    if isinstance(value, str):
        return value
    name = getattr(value, "__name__", "")
    if not (callable(value) and name.isidentifier()):
        why = "has no name to be found by; define it with def or class"
        raise SettingError(f"{field} = {value!r:.60}: {why}")
    module = sys.modules.get(value.__module__)
    if module is not None and getattr(module, name, None) is value:
        if not is_own(value):
            return f"{module.__name__}:{name}"
        if module.__name__.startswith(LOOSE):
            return f"{module.__file__}:{name}"
    _named[name] = value
    return name


def thing_of(name: str, field: str) -> Any:
    """What `name_of` gave a name to, or "mine.py:Net", or "package.module:Net"; raises `SettingError`."""
    if name in _came:
        return _came[name]
    if ".py:" in name:
        return _in_file(name, field, "function or class")
    if ":" in name:
        return _imported(name, field)
    newest, known = vars(sys.modules["__main__"]).get(name), _named.get(name)
    if callable(newest) and (known is None or known.__module__ == "__main__"):
        return newest
    if known is None:
        raise SettingError(
            f"{field} = {name!r}: nothing of that name is defined here; run the cell that does, or write"
            ' "FILE.py:NAME"'
        )
    return known


def came(things: Mapping[str, Any]) -> None:
    """Keep what a run's task has brought to this rank, by its names."""
    _came.update(things)


def _imported(name: str, field: str) -> Any:
    module, _, wanted = name.partition(":")
    try:
        return getattr(import_module(module), wanted)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"{field} = {name!r}: cannot be imported ({error}); write MODULE:NAME") from error


def class_of(name: str, field: str) -> type:
    """Class of a loose file, named as in ``"mine.py:Half"``; the file is read again once it has changed.

    Raises `SettingError` where file or class are not there, or the file cannot be run, with its line.
    """
    found = _in_file(name, field, "class")
    if not isinstance(found, type):
        text, _, wanted = name.rpartition(":")
        raise SettingError(f"{field} = {name!r}: {text!r} defines no class {wanted!r}")
    return found


def _in_file(name: str, field: str, what: str) -> Any:
    text, _, wanted = name.rpartition(":")
    file = user_path(text, field).resolve()
    if not file.is_file():
        raise SettingError(f"{field} = {name!r}: there is no file {text!r}; write FILE.py:CLASS")
    state = file.stat()
    try:
        module = _module(str(file), (state.st_mtime_ns, state.st_size))
    except Exception as error:  # a user's own code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(f"{field} = {name!r}: line {line} of the file cannot be run ({why})") from error
    found = getattr(module, wanted, None)
    if not callable(found):
        raise SettingError(f"{field} = {name!r}: {text!r} defines no {what} {wanted!r}")
    return found


@lru_cache(maxsize=32)
def _module(file: str, stamp: tuple[int, int]) -> ModuleType:
    linecache.checkcache(file)
    spec = spec_from_file_location(f"{LOOSE}{Path(file).stem}_{sha256(file.encode()).hexdigest()[:8]}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Fault(NamedTuple):
    """Where an error arose in a user's own code: what of it was called first, and the innermost line."""

    code: CodeType
    line: str  # file (or cell) and line
    why: str  # the error in words

    @property
    def sentence(self) -> str:
        """What failed, why and where."""
        return f"`{self.code.co_qualname}` failed: {self.why} ({self.line})"


def fault_of(error: BaseException) -> Fault | None:
    """Where in a user's own code an error arose; None where none took part, or where it is an error of ours."""
    codes, line, trace = [], "", error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        file = code.co_filename
        if not (_ours(module.partition(".")[0]) or _installed(file) or file.startswith("<frozen")):
            codes.append(code)
            line = f"{file}, line {trace.tb_lineno}"
        trace = trace.tb_next
    own = isinstance(error, WorkbenchError | SettingError) or _ours(type(error).__module__.partition(".")[0])
    if own or not codes:
        return None
    return Fault(codes[0], line, " ".join(f"{type(error).__name__}: {error}".split()))


def told(error: Exception) -> Exception:
    """An error, as a sentence where it arose in a user's own code."""
    fault = fault_of(error)
    if fault is None:
        return error
    new = RunError(fault.sentence)
    new.__cause__ = error
    return new


def functions_of(thing: Any) -> Iterator[Any]:
    """A function itself, or a class's own functions, whatever they are wrapped in."""
    for value in vars(thing).values() if isinstance(thing, type) else [thing]:
        inner = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if inspect.isfunction(inner):
            yield inspect.unwrap(inner)

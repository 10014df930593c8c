"""Definitions of a user's own, from a notebook's cell or a file: their source as text, and themselves by value.

By value (`sent`, `received`) code goes from its owner's kernel to the owner's ranks only, in a task's words, which lie
in the pool's private folder until they are taken. Nothing that is kept holds any: a run's folder keeps the source.
"""

from __future__ import annotations

import ast
import base64
import inspect
import linecache
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.base.settings import SettingError, user_path

LOOSE = "own_"  # begins the name of a loose file's module
MOST = 20 * 2**20  # bytes of a definition with all that it holds


_named: dict[str, Any] = {}  # functions and classes that settings hold by a bare name, the newest of each
_came: dict[str, Any] = {}  # the same in a rank: what its task brought, whatever the rank's own code calls so


@dataclass(frozen=True)
class Source:
    """Where a class or function is defined: `text` of the whole cell or file, and a hash, comments apart.

    The hash of a class is its own; that of a function is also of what it names in the same text.
    """

    name: str
    text: str
    digest: str


def is_own(cls: Any) -> bool:
    """Is a class or function defined in a cell, a script or a loose file, so that others cannot import it?

    >>> is_own(Source)
    False
    """
    top = cls.__module__.partition(".")[0]
    if _ours(top):
        return False
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return top == "__main__" or file is None or not _installed(file)


def _ours(top: str) -> bool:
    """Is it the workbench, or one of the packages that lie beside it?"""
    return top.partition("_")[0] == "workbench"


@cache
def _installed(file: str) -> bool:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).resolve().is_relative_to(Path(path).resolve()) for path in paths)


def name_of(value: Any, field: str) -> str:
    """Name that stands for a function or class in settings, which hold text only: `thing_of` finds it again by it.

    What a cell defines is remembered by its bare name; running the cell again puts the new one in its place. Raises
    `SettingError` for what has no name.

    >>> name_of(name_of, "problem_args.loss")
    'workbench.base.own:name_of'
    """
    if isinstance(value, str):
        return value
    name = getattr(value, "__name__", "")
    if not (callable(value) and name.isidentifier()):
        raise SettingError(
            f"{field} = {value!r:.60}: has no name to be found by; define it with def or class"
        )
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
        raise SettingError(
            f"{field} = {name!r}: there is no file {text!r}; write FILE.py:{what[-5:].upper()}"
        )
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


def own_line(error: BaseException) -> str | None:
    """Where in a user's own code an error arose, innermost: file (or cell) and line; None where none took part."""
    found, trace = None, error.__traceback__
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__", ""))
        if not (
            _ours(module.partition(".")[0])
            or _installed(code.co_filename)
            or code.co_filename[:7] == "<frozen"
        ):
            found = f"{code.co_filename}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def source_of(thing: Any) -> Source:
    """Source of a class or function, wherever it was compiled; raises `SettingError` where no text is known."""
    for code in (function.__code__ for function in _functions(thing)):
        text = "".join(linecache.getlines(code.co_filename))
        tree = ast.parse(text)
        for node in _definitions(tree, thing.__name__):
            if _first_line(node) <= code.co_firstlineno <= (node.end_lineno or node.lineno):
                return Source(thing.__name__, text, _digest(node, tree))
    raise SettingError(f"{thing.__name__}: its source is not to be had; define it in a cell or a file")


def digest_in(text: str, name: str) -> str:
    """Hash of the class or function of that name in a source text, the last one; empty where there is none."""
    tree = ast.parse(text)
    found = _definitions(tree, name)
    return _digest(found[-1], tree) if found else ""


_Definition = ast.ClassDef | ast.FunctionDef


def _definitions(tree: ast.Module, name: str) -> list[_Definition]:
    return [node for node in ast.walk(tree) if isinstance(node, _Definition) and node.name == name]


def _first_line(node: _Definition) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


def _digest(node: _Definition, tree: ast.Module) -> str:
    texts, left = {}, [node]
    while left:
        each = left.pop()
        texts[each.name] = ast.unparse(each)
        if isinstance(node, ast.FunctionDef):  # it may only say what to make of others
            names = {used.id for used in ast.walk(each) if isinstance(used, ast.Name)} - set(texts)
            left += [d for d in tree.body if isinstance(d, _Definition) and d.name in names]
    return sha256("\n".join(text for _, text in sorted(texts.items())).encode()).hexdigest()


def _functions(thing: Any) -> Iterator[Any]:
    """A function itself, or a class's own functions, whatever they are wrapped in."""
    for value in vars(thing).values() if isinstance(thing, type) else [thing]:
        inner = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if inspect.isfunction(inner):
            yield inspect.unwrap(inner)


def sent(classes: Sequence[Any]) -> str:
    """Classes and functions by value, as text; raises `SettingError` that names what cannot be sent."""
    import cloudpickle

    names = [each.__name__ for each in classes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"{twice[0]}: two definitions of this run have that name; rename one of them")
    with _by_value(classes):
        try:
            data = cloudpickle.dumps(list(classes))
        except Exception as error:  # whatever it meets
            raise _unsendable(classes, error) from error
        if len(data) > MOST:
            raise SettingError(
                f"{classes[0].__name__}: holds {len(data) / 2**20:.0f} MB with all that it uses, and at most"
                f" {MOST // 2**20} MB are sent to real processes; {_largest(classes)}"
            )
    return base64.b64encode(data).decode()


def received(code: str) -> list[Any]:
    """The classes and functions of `sent`. Only for what the own client wrote: loading it runs it."""
    import cloudpickle

    found: list[Any] = cloudpickle.loads(base64.b64decode(code))
    return found


@contextmanager
def _by_value(classes: Sequence[Any]) -> Iterator[None]:
    """Loose files are as unknown to other processes as the classes in them: by value, for as long as this lasts."""
    import cloudpickle

    loose = [module for module in list(sys.modules.values()) if _loose(module, classes)]
    for module in loose:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in loose:
            cloudpickle.unregister_pickle_by_value(module)


def _loose(module: ModuleType, classes: Sequence[Any]) -> bool:
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if _ours(name.partition(".")[0]) or name == "__main__" or file is None or name not in sys.modules:
        return False
    beside = {getattr(sys.modules.get(cls.__module__), "__file__", None) for cls in classes}
    folders = {str(Path(f).parent) for f in beside if f} | {str(Path.cwd())}
    return not _installed(file) and any(str(Path(file).parent) == folder for folder in folders)


def _unsendable(classes: Sequence[Any], error: Exception) -> SettingError:
    found = _blamed(classes, _fails)
    where = f"{found[0]} holds {found[1]}" if found else " ".join(str(error).split())
    return SettingError(
        f"{classes[0].__name__}: cannot be sent to real processes, as {where}; make it in the method"
    )


def _largest(classes: Sequence[Any]) -> str:
    import cloudpickle

    found = _blamed(classes, lambda value: len(cloudpickle.dumps(value)) > MOST // 2)
    return f"{found[0]} holds {found[1]}; make or load it in the method" if found else "make them smaller"


def _fails(value: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(value)
    except Exception:
        return True
    return False


def _blamed(classes: Sequence[Any], wrong: Callable[[Any], bool]) -> tuple[str, str] | None:
    """The variable that is the cause, and what it holds in words."""
    seen: set[int] = set()

    def look(function: Any, where: str) -> tuple[str, str] | None:
        if id(function) in seen:
            return None
        seen.add(id(function))
        names = inspect.getclosurevars(function)
        for name, value in {**names.globals, **names.nonlocals}.items():
            if inspect.ismodule(value) or not wrong(value):
                continue
            inner = look(value, name) if inspect.isfunction(value) else None
            return inner or (f"the variable {name!r} of {where}", f"a {type(value).__name__}")
        return None

    for cls in classes:
        for name, value in vars(cls).items():  # a function has none, as a rule
            if not callable(value) and not name.startswith("_") and wrong(value):
                return f"{cls.__name__}.{name}", f"a {type(value).__name__}"
        for function in _functions(cls):
            own = f"{cls.__name__}." if isinstance(cls, type) else ""
            if found := look(function, own + function.__name__):
                return found
    return None


__all__ = [
    "Source", "came", "class_of", "digest_in", "is_own", "name_of", "own_line", "received", "sent", "source_of",
    "thing_of",
]  # fmt: skip

"""User-defined functions and classes of cells, scripts and user files: look them up, and locate their errors."""

import ast
import inspect
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

from workbench.core.base.errors import RunError, WorkbenchError
from workbench.core.base.reading import read_bytes
from workbench.core.base.settings import SettingError, user_path
from workbench.core.base.trust import limit

MAX_SOURCE_BYTES = 2**24  # bytes of a source file that is hashed
LOOSE_MODULE_PREFIX = "own_"  # prefix of the module name of a user file

_named: dict[str, Any] = {}  # bare name in settings -> newest function or class
_received: dict[str, Any] = {}  # on a rank or kernel: bare name -> received function or class
_imports: dict[str, Any] = {}  # "package.module:Net" -> its value, for names that this process has used
_used: set[tuple[str, str]] = set()  # (path, name) of definitions in user files that this process has used


def is_own(obj: Any) -> bool:
    """Return whether a class, function or module is user-defined, so that other processes cannot import it.

    Such definitions are in a notebook cell, in a script, or in a user file: a Python file outside any package.

    >>> is_own(is_own), is_own(int)
    (False, False)
    """
    module = getattr(obj, "__module__", None) or "builtins"
    name = obj.__name__ if isinstance(obj, ModuleType) else module
    top = name.partition(".")[0]
    if _ours(top) or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    files = [getattr(sys.modules.get(known), "__file__", None) for known in (name, top)]
    file = files[0] or files[1]
    return top == "__main__" or file is None or not _installed(file)


def _ours(top: str) -> bool:
    """Return whether a top-level package is workbench or one of its companions, such as the book."""
    return top.partition("_")[0] == "workbench"


@cache
def _installed(file: str) -> bool:
    path = Path(file).resolve()
    return any(path.is_relative_to(place) for place in _places())


@cache  # sysconfig would take seconds for a thousand modules
def _places() -> set[Path]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return {Path(sysconfig.get_path(name)).resolve() for name in names}


def name_of(value: Any, field: str) -> str:
    """Return a name of a function or class for settings, which contain only text. `thing_of` finds it by this name.

    A definition of a notebook cell is registered by its bare name, and replaced if the cell is run again. Raises
    `SettingError` for a value without a name.

    >>> name_of(name_of, "problem_args.loss")
    'workbench.core.base.user_code:name_of'
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
            full_name = f"{module.__name__}:{name}"
            _imports[full_name] = value
            return full_name
        if module.__name__.startswith(LOOSE_MODULE_PREFIX):
            return f"{module.__file__}:{name}"
    _named[name] = value
    return name


def thing_of(name: str, field: str) -> Any:
    """Resolve a name made by `name_of`, "FILE.py:NAME" or "package.module:NAME". Raises `SettingError` if unknown."""
    if name in _received:
        return _received[name]
    if ".py:" in name:
        return _in_file(name, field, "function or class", any_name=False)
    if ":" in name:
        return _imported(name, field)
    newest, known, now = vars(sys.modules["__main__"]).get(name), _named.get(name), limit()
    if now is not None and known is None and name not in now.allowed and is_defined(name):
        raise now.refuse(name, field)
    # under a limit, imported names are not resolved
    usable = callable(newest) and (now is None or is_own(newest))
    if usable and (known is None or known.__module__ == "__main__"):
        _named[name] = newest
        return newest
    if known is None:
        how = 'run the cell that does, or write "FILE.py:NAME"'
        error = SettingError(f"{field} = {name!r}: nothing of that name is defined here; {how}")
        raise error if now is None else now.unknown(error)
    return known


def is_defined(name: str) -> bool:
    """Return whether the user has defined a function or class of that name in this kernel."""
    found = vars(sys.modules["__main__"]).get(name)
    return callable(found) and is_own(found)


def note_received(objects: Mapping[str, Any]) -> None:
    """Register the functions and classes that this rank or kernel has received, by their names."""
    _received.update(objects)


def _imported(name: str, field: str) -> Any:
    now = limit()
    if now is not None and name in _imports:
        return _imports[name]
    if now is not None and (name not in now.allowed or now.allowed[name] != source_hash(name)):
        raise now.refuse(name, field)
    module, _, wanted = name.partition(":")
    try:
        with _from_source() if now is not None else nullcontext():
            found = getattr(import_module(module), wanted)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(f"{field} = {name!r}: cannot be imported ({error}); write MODULE:NAME") from error
    _imports[name] = found
    return found


def class_of(name: str, field: str) -> type:
    """Return a class of a user file, such as ``"mine.py:Half"``. A changed file is run again.

    Raises `SettingError` if the file or the class does not exist. If the file cannot be run, the message has its line.
    """
    found = _in_file(name, field, "class")
    if not isinstance(found, type):
        text, _, wanted = name.rpartition(":")
        raise SettingError(f"{field} = {name!r}: {text!r} defines no class {wanted!r}")
    return found


def _in_file(name: str, field: str, what: str, any_name: bool = True) -> Any:
    """Return a definition of a user file.

    Under a limit, the file must be allowed, or have been run in this process. Without `any_name`, this process must
    also have used this name of the file.
    """
    text, _, wanted = name.rpartition(":")
    now, file = limit(), user_path(text, field).resolve()
    known = str(file) in _files and (any_name or (str(file), wanted) in _used)
    if now is not None and name not in now.allowed and not known:
        raise now.refuse(name, field)
    if not file.is_file():
        raise SettingError(f"{field} = {name!r}: there is no file {text!r}; write FILE.py:CLASS")
    try:
        module = _module(name, field, file)
    except _Refused as refused:
        raise refused.error from None
    except Exception as error:  # user-defined code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(f"{field} = {name!r}: line {line} of the file cannot be run ({why})") from error
    found = getattr(module, wanted, None)
    if not callable(found):
        raise SettingError(f"{field} = {name!r}: {text!r} defines no {what} {wanted!r}")
    _used.add((str(file), wanted))
    return found


class _Loaded(NamedTuple):
    """User file that was run in this process."""

    stamp: tuple[int, ...]  # modification time (ns), size (bytes) and inode
    module: ModuleType
    hash: str  # hash of its source (see `source_hash`)


class _Refused(Exception):
    def __init__(self, error: SettingError) -> None:
        self.error = error


_files: dict[str, _Loaded] = {}  # path -> user file as it was last run


def _module(name: str, field: str, file: Path) -> ModuleType:
    """Return the module of a user file. A changed file is run again, from the same bytes that are hashed."""
    state, known, now = file.stat(), _files.get(str(file)), limit()
    stamp = (state.st_mtime_ns, state.st_size, state.st_ino)
    if known is not None and known.stamp == stamp:
        return known.module
    if now is not None and name not in now.allowed:
        raise _Refused(now.refuse(name, field))
    tree = ast.parse(read_bytes(file), str(file))
    hashed = _hash(tree)
    if now is not None and now.allowed[name] != hashed:
        raise _Refused(now.refuse(name, field))
    linecache.checkcache(str(file))
    spec = spec_from_file_location(
        f"{LOOSE_MODULE_PREFIX}{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}", str(file)
    )
    assert spec is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with _from_source() if now is not None else nullcontext():
        # The loader of the module's spec could run code from __pycache__, whose hash is not checked, so it is not used.
        exec(compile(tree, str(file), "exec", dont_inherit=True), vars(module))
    _files[str(file)] = _Loaded(stamp, module, hashed)
    return module


@contextmanager
def _from_source() -> Iterator[None]:
    """Import only from sources within a block, because the hashes of __pycache__ are not checked."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = os.devnull, True
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


# ---------------------------------------------------------------- hashes of code by its name


def source_hash(name: str) -> str:
    """Return the hash of the source of "mine.py:Net" or "package.module:Net", without running it.

    For a user file, this is a hash of its code without comments, and of the user files that it imports. For a module of
    the user, it is a hash of the module's files. For an installed or missing module, it is empty.
    """
    text, _, _ = name.rpartition(":")
    if ".py:" not in name:
        files = [(str(f), sha256(read_bytes(f)).hexdigest()) for f in _own_files(text.partition(".")[0])]
        return sha256(repr(files).encode()).hexdigest() if files else ""
    try:
        file = user_path(text, "name").resolve()
        source = read_bytes(file) if file.is_file() and file.stat().st_size <= MAX_SOURCE_BYTES else b""
    except (OSError, SettingError):
        return ""
    if not source:
        return ""
    try:
        return _hash(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return sha256(source).hexdigest()


def run_hash(name: str) -> str | None:
    """Return the hash of the source that was run in this process under that name, or None if it was not run."""
    text, _, _ = name.rpartition(":")
    if ".py:" not in name:
        return source_hash(name) if name in _imports or name in _named else None
    with suppress(SettingError, OSError):
        if (known := _files.get(str(user_path(text, "name").resolve()))) is not None:
            return known.hash
    return None


def _hash(tree: ast.Module) -> str:
    """Return a hash of a file's code, and of all user files that it imports, directly or not."""
    parts, trees, seen = [ast.dump(tree)], [tree], set[str]()
    for each in trees:  # the list grows in the loop
        for top in sorted(set(_imported_by(each)) - seen):
            seen.add(top)
            for file in _own_files(top):
                source = read_bytes(file)
                parts.append(f"{top} {file.name} {sha256(source).hexdigest()}")
                with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    trees.append(ast.parse(source))
    return sha256("\n".join(parts).encode()).hexdigest()


def _imported_by(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the top-level modules or packages that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _own_files(top: str) -> list[Path]:
    """Return the files of a module or package, or none if it is installed or part of the workbench."""
    if not top.isidentifier() or top == "workbench":
        return []
    spec = None
    with suppress(ImportError, ValueError, OSError):
        spec = PathFinder.find_spec(top)
    if spec is None:
        return []
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    files += [Path(spec.origin)] if spec.origin and not folders else []
    return [file for file in files if file.is_file() and not _installed(str(file))]


class Fault(NamedTuple):
    """Origin of an error in user-defined code."""

    code: CodeType  # the first user-defined function in the traceback
    line: str  # file (or cell) and line of the innermost user-defined function
    why: str  # type and message of the error

    @property
    def sentence(self) -> str:
        """Message with the function that failed, the error and its line."""
        return f"`{self.code.co_qualname}` failed: {self.why} ({self.line})"


def fault_of(error: BaseException) -> Fault | None:
    """Return the origin of an error in user-defined code, or None if there is none, or it is a workbench error."""
    codes, line = [], ""
    for frame, number in traceback.walk_tb(error.__traceback__):
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        file = code.co_filename
        if not (_ours(module.partition(".")[0]) or _installed(file) or file.startswith("<frozen")):
            codes.append(code)
            line = f"{file}, line {number}"
    own = isinstance(error, WorkbenchError | SettingError) or _ours(type(error).__module__.partition(".")[0])
    if own or not codes:
        return None
    return Fault(codes[0], line, " ".join(f"{type(error).__name__}: {error}".split()))


def with_fault(error: Exception) -> Exception:
    """Return a `RunError` of one sentence for an error of user-defined code, and other errors unchanged."""
    fault = fault_of(error)
    if fault is None:
        return error
    new = RunError(fault.sentence)
    new.__cause__ = error
    return new


def functions_of(obj: Any) -> Iterator[Any]:
    """Yield a function, or the functions that a class defines itself, without their wrappers."""
    for value in vars(obj).values() if isinstance(obj, type) else [obj]:
        inner = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if inspect.isfunction(inner):
            yield inspect.unwrap(inner)

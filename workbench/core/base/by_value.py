"""User-defined classes by value (pickled).

They are sent from a user's kernel only to ranks and kernels of the same user.

They are a field of a task, or are in a private folder until they are received. No saved file contains pickled classes,
since a run folder has their source.
"""

import base64
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError
from workbench.core.base.sources import SOURCE_ATTRIBUTE, Source, source_of
from workbench.core.base.user_code import functions_of, is_own, note_received

MAX_DEFINITION_BYTES = 20 * 2**20  # bytes of the pickled definitions of a run


def sent(classes: Sequence[Any]) -> str:
    """Return classes and functions by value, as text. Raises `SettingError` for a value that cannot be sent."""
    import cloudpickle

    names = [each.__name__ for each in classes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise SettingError(f"{twice[0]}: two definitions of this run have that name; rename one of them")
    with _by_value(classes):
        try:
            data = cloudpickle.dumps([(cls, _source(cls)) for cls in classes])
        except Exception as error:  # pickling user-defined values may raise anything
            raise _unsendable(classes, error) from error
        if len(data) > MAX_DEFINITION_BYTES:
            raise SettingError(
                f"{classes[0].__name__}: holds {len(data) / 2**20:.0f} MB with all that it uses, and at most"
                f" {MAX_DEFINITION_BYTES // 2**20} MB are sent to real processes; {_largest(classes)}"
            )
    return base64.b64encode(data).decode()


def received(code: str) -> list[Any]:
    """Unpickle the classes and functions of `sent`. Call it only for text from the same user's client."""
    import cloudpickle

    found: list[tuple[Any, Source | None]] = cloudpickle.loads(base64.b64decode(code))
    for cls, source in found:
        if source is not None:
            setattr(cls, SOURCE_ATTRIBUTE, source)
    return [cls for cls, _ in found]


def register(code: str) -> None:
    """Register the classes and functions of `sent` by name in this process, in place of others with these names."""
    objects = received(code)
    for obj in objects:
        if (family := getattr(obj, "catalogue", None)) is not None:
            family.replace(obj)
    note_received({obj.__name__: obj for obj in objects})


def register_file(path: str) -> None:
    """Register the classes and functions of `sent` from a private file of the same user."""
    register(read_text(path))


def _source(cls: Any) -> Source | None:
    with suppress(SettingError):
        return source_of(cls)
    return None


@contextmanager
def _by_value(classes: Sequence[Any]) -> Iterator[None]:
    """Let modules of user files be pickled by value within the block, because other processes cannot import them."""
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
    if name == "__main__" or file is None or name not in sys.modules:
        return False
    beside = {getattr(sys.modules.get(cls.__module__), "__file__", None) for cls in classes}
    folders = {str(Path(f).parent) for f in beside if f} | {str(Path.cwd())}
    return str(Path(file).parent) in folders and is_own(module)


def _unsendable(classes: Sequence[Any], error: Exception) -> SettingError:
    found = _blamed(classes, inf)
    where = f"{found[0]} holds {found[1]}" if found else " ".join(str(error).split())
    why = f"cannot be sent to real processes, as {where}; make it in the method"
    return SettingError(f"{classes[0].__name__}: {why}")


def _largest(classes: Sequence[Any]) -> str:
    found = _blamed(classes, MAX_DEFINITION_BYTES // 2 + 1)
    return f"{found[0]} holds {found[1]}; make or load it in the method" if found else "make them smaller"


def _blamed(classes: Sequence[Any], least: float) -> tuple[str, str] | None:
    """Return name and type of the variable that cannot be pickled, or that needs `least` bytes or more."""
    import cloudpickle

    seen: set[int] = set()

    def wrong(value: Any) -> bool:
        try:
            return len(cloudpickle.dumps(value)) >= least
        except Exception:  # this value cannot be pickled
            return True

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
        for name, value in vars(cls).items():  # class attributes; functions rarely have attributes
            if not callable(value) and not name.startswith("_") and wrong(value):
                return f"{cls.__name__}.{name}", f"a {type(value).__name__}"
        for function in functions_of(cls):
            own = f"{cls.__name__}." if isinstance(cls, type) else ""
            if found := look(function, own + function.__name__):
                return found
    return None

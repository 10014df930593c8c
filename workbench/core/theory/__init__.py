"""Closed forms of the five papers and of further schemes, and exact means where a paper only simulates.

Times are in seconds. Loads are shares of the data set unless a function counts parts. An argument out of its range
raises `SettingError`, whether or not the docstring repeats it. If a paper's printed formula or number is wrong, the
docstring says so and the function returns the right one.

To add a formula, add a file, or a function to an existing file. Nothing else needs an edit. The formulas of a module
are those in its `__all__`, or else all its public functions. Files whose names begin with _ are shared helpers.

>>> from workbench import theory
>>> theory.cr_load(children=3, layers=2, stragglers=1) == 4 / 15
True
"""

from importlib import import_module as _import_module
from inspect import getmodule as _getmodule
from inspect import isfunction as _isfunction
from pkgutil import iter_modules as _iter_modules
from types import ModuleType
from typing import Any


def _public(module: ModuleType) -> list[str]:
    """Return the names of a module's formulas."""
    own = [name for name, value in vars(module).items() if _isfunction(value) and _getmodule(value) is module]
    return list(getattr(module, "__all__", [name for name in own if not name.startswith("_")]))


def _found() -> dict[str, Any]:
    """Return every formula by its name."""
    names = [each.name for each in _iter_modules(__path__) if not each.name.startswith("_")]
    modules = [_import_module(f"{__name__}.{name}") for name in names]
    return {name: getattr(module, name) for module in modules for name in _public(module)}


def __getattr__(name: str) -> Any:
    """Search the modules again, because a file may have been added. `__all__` is the current list."""
    if name == "__all__":
        return sorted(_found())
    if not name.startswith("_") and name in (found := _found()):
        globals().update(found)
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_found())


# done after all modules are loaded, because a formula may have the name of its module
globals().update(_found())

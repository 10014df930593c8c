"""Figures: pure functions from traces, plans and experiments to plotly figures in one style.

To add a figure, add a file to `gallery` with a function of the file's name. Nothing else has to be edited.
"""

from importlib import import_module as _import_module
from pkgutil import iter_modules as _iter_modules
from typing import Any

from workbench.core.base.arguments import kinds_checked
from workbench.lab.figures import gallery
from workbench.lab.figures.round_events import Moment, moments
from workbench.lab.figures.save import NoBrowser, save
from workbench.lab.figures.scheme_grid import SchemeGrid
from workbench.lab.figures.speedups import speedups
from workbench.lab.figures.style import Style, register, scheme_style

__all__ = [
    "Moment",
    "NoBrowser",
    "SchemeGrid",
    "Style",
    "moments",
    "names",
    "save",
    "scheme_style",
    "speedups",
]

register()


def names() -> list[str]:
    """Return the names of all figures.

    >>> "gantt" in names()
    True
    """
    return sorted(module.name for module in _iter_modules(gallery.__path__))


def __getattr__(name: str) -> Any:
    """Return a figure, loaded at first use."""
    if name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    figure = kinds_checked(getattr(_import_module(f"{gallery.__name__}.{name}"), name))
    return globals().setdefault(name, figure)


def __dir__() -> list[str]:
    return sorted({*__all__, *names()})


__all__ += names()  # for `import *`

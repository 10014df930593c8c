"""Lectures: sliders with figures, animated runs on the virtual clock, and self-checking exercises.

A lecture is a module whose `lecture` is a `Script`. It has sliders (`Knobs`), a function for each figure, the
experiments to run, and three exercises whose answers the package computes. Its notebook in `notebooks/lecture/` has
the prose, and cells that show these parts.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench_lectures.lecture import Script

__all__ = ["scripts"]


def scripts() -> dict[str, Script[Any]]:
    """Return all lectures by their notebooks' names, in their order.

    >>> list(scripts())[:2]
    ['1-stragglers', '2-by-hand']
    """
    modules = (import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__))
    found = (getattr(module, "lecture", None) for module in modules)
    return {each.notebook: each for each in sorted(filter(None, found), key=lambda each: each.notebook)}

"""Schemes: one file each (or a family). Importing this package finds every file in it and registers it.

To add a scheme, add a file with a subclass of `Scheme` that has a `name`; nothing else needs an edit.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from workbench.base.settings import unknown_name
from workbench.core.scheme import Scheme

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def names() -> list[str]:
    """Names of all schemes, as users write them.

    >>> "CR" in names()
    True
    """
    return sorted(Scheme.catalogue)


def get(name: str) -> type[Scheme]:
    """Class of a scheme; raises `SettingError` with the nearest name.

    >>> get("GC").title
    'Gradient coding'
    """
    if name not in list(Scheme.catalogue):  # a list has no hash
        raise unknown_name("scheme", name, names())
    return Scheme.catalogue[name]

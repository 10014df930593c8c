"""Schemes, one file for each scheme or family. The catalogue imports every file of this package.

To add a scheme, add a file with a subclass of `Scheme` that has a `name`; nothing else needs an edit.
"""

from workbench.core.contract.scheme import Scheme

__all__ = ["Scheme", "get", "names"]


def names() -> list[str]:
    """Return the names of all schemes, as users write them.

    >>> "CR" in names()
    True
    """
    return list(Scheme.catalogue)


def get(name: str) -> type[Scheme]:
    """Return the class of a scheme. Raise `SettingError` with the nearest name if there is none.

    >>> get("GC").title
    'Gradient coding'
    >>> get("FRC")(replication=2).loads(workers=6, samples=60).tolist()  # samples that each worker goes through
    [20, 20, 20, 20, 20, 20]
    """
    return Scheme.catalogue.get_class(name)


def __dir__() -> list[str]:
    return sorted(__all__)

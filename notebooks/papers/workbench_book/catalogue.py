"""Entries of the book by name: one for every figure and table of the five papers, and for the misprints.

For later papers, an entry is one comparison. To add some, add a module with a `PLACE` in the book and its `ENTRIES`;
nothing else needs an edit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from workbench.core.base.settings import unknown_name
from workbench_book.setting import Setting
from workbench_book.values import Result

PAPERS = {
    1: "CodedReduce: a fast and robust framework for gradient aggregation in distributed learning",
    2: "Communication-computation efficient gradient coding (CEGC)",
    3: "Adaptive worker grouping for communication-efficient and straggler-tolerant distributed SGD (G-CADA)",
    4: "Approximate gradient coding for heterogeneous nodes (AGC)",
    5: "Gradient coding with clustering and multi-message communication (GC-MMC)",
    6: "Later papers, one comparison each: sequential, pipelined and straggler-ignoring codes, hierarchical SGD",
}


@dataclass(frozen=True)
class Entry:
    """Figure, table or list of misprints. `find` computes it. `needs`: entries whose facts it uses.

    `weight`: approximate share of the time.
    """

    name: str
    title: str
    find: Callable[[Setting], Result]
    needs: tuple[str, ...] = ()
    measured: bool = False  # whether a part of it runs on real processes
    paper: int = 0
    weight: float = 1.0


@dataclass(frozen=True)
class Outcome:
    """Entry with its result, or the reason why it has none."""

    entry: Entry
    result: Result | None
    error: str = ""
    seconds: float = 0.0
    reused: bool = False  # whether it is from the cache of an earlier run
    versions: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """Return all entries by name, in the order of the book, from the modules that have a place in it."""
    package = import_module("workbench_book")
    modules = (import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__))
    placed = sorted((m for m in modules if hasattr(m, "PLACE")), key=lambda module: module.PLACE)
    return {each.name: replace(each, paper=module.PLACE[0]) for module in placed for each in module.ENTRIES}


def names() -> list[str]:
    """Return the names of all entries.

    >>> "fig8" in names() and "table3" in names()
    True
    """
    return list(entries())


def get(name: str) -> Entry:
    """Return the entry of a name. Raises `SettingError` with the nearest name."""
    known = entries()
    if name not in known:
        raise unknown_name("name", name, ["all", *known])
    return known[name]


def chosen(name: str) -> list[Entry]:
    """Return the entries of a name, or all for "all". Each entry follows those that it needs."""
    wanted = entries().values() if name == "all" else [get(name)]
    ordered: dict[str, Entry] = {}
    for entry in wanted:
        for need in entry.needs:
            ordered.setdefault(need, get(need))
        ordered.setdefault(entry.name, entry)
    return list(ordered.values())


def of_paper(paper: int) -> list[str]:
    """Return the names of a paper's entries."""
    return [entry.name for entry in entries().values() if entry.paper == paper]

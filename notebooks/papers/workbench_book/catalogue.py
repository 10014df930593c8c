"""The entries of the book by name: one for every figure and table of the five papers, and for the misprints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from workbench.base.settings import unknown_name
from workbench_book.setting import Setting
from workbench_book.values import Result

PAPERS = {
    1: "CodedReduce: a fast and robust framework for gradient aggregation in distributed learning",
    2: "Communication-computation efficient gradient coding (CEGC)",
    3: "Adaptive worker grouping for communication-efficient and straggler-tolerant distributed SGD (G-CADA)",
    4: "Approximate gradient coding for heterogeneous nodes (AGC)",
    5: "Gradient coding with clustering and multi-message communication (GC-MMC)",
}
_MODULES = {  # in the order of the book
    1: ("codedreduce_tables", "ec2", "codedreduce", "figure13", "codedreduce_misprints"),
    2: ("cegc", "cegc_example", "cegc_runs"),
    3: ("cada_sweep", "cada_curves", "cada_numbers", "cada_misprints"),
    4: ("ec2_traces", "agc", "agc_runs", "agc_replay"),
    5: ("mmc",),
}


@dataclass(frozen=True)
class Entry:
    """One figure, table or list of misprints: `find` computes it; `needs` names entries whose facts it uses."""

    name: str
    title: str
    find: Callable[[Setting], Result]
    needs: tuple[str, ...] = ()
    measured: bool = False  # does it have a part on real processes?
    paper: int = 0


@lru_cache(maxsize=1)
def entries() -> dict[str, Entry]:
    """All entries by name, paper by paper."""
    found: dict[str, Entry] = {}
    for paper, modules in _MODULES.items():
        for module in modules:
            for each in import_module(f"workbench_book.{module}").entries():
                found[each.name] = Entry(**{**vars(each), "paper": paper})
    return found


def names() -> list[str]:
    """Names of all entries.

    >>> "fig8" in names() and "table3" in names()
    True
    """
    return list(entries())


def get(name: str) -> Entry:
    """Entry of that name; raises `SettingError` with the nearest one."""
    known = entries()
    if name not in known:
        raise unknown_name("name", name, ["all", *known])
    return known[name]


def chosen(name: str) -> list[Entry]:
    """Entries that a name stands for, "all" for every one; those that they need come first."""
    wanted = entries().values() if name == "all" else [get(name)]
    ordered: dict[str, Entry] = {}
    for entry in wanted:
        for need in entry.needs:
            ordered.setdefault(need, get(need))
        ordered.setdefault(entry.name, entry)
    return list(ordered.values())


def of_paper(paper: int) -> list[str]:
    """Names of a paper's entries."""
    return [entry.name for entry in entries().values() if entry.paper == paper]

"""Computation of the book: entry after entry, with a cache of finished ones, then the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.core.base.bar import Bar
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError, path_of
from workbench.core.problems.data import DataError
from workbench_book import keeping
from workbench_book.catalogue import Entry, Outcome, chosen
from workbench_book.page import write
from workbench_book.setting import Setting
from workbench_book.values import Result

FINISHED_FOLDER = "kept"  # folder of finished entries, inside the folder of the book
_FAILURES = (RunError, SettingError, DataError, ArithmeticError, MemoryError, OSError)


def find(
    name: str, setting: Setting, folder: Path, fresh: bool = False, progress: bool = False
) -> list[Outcome]:
    """Compute the entries of a name, in the book's order. The entries that they need come first.

    Parameters
    ----------
    name
        Name of an entry, or "all".
    setting
        Options of the book.
    folder
        Folder of the book. Finished entries are stored there, and used again while their inputs are the same.
    fresh
        Compute cached entries again.
    progress
        Show a progress bar with the remaining time.

    Returns
    -------
    list of Outcome
        One outcome for each entry. An entry that fails does not stop the others.

    Raises
    ------
    SettingError
        There is no entry of that name.
    """
    wanted = chosen(name)
    outcomes: list[Outcome] = []
    facts: dict[str, Any] = {}
    with Steps([entry.weight for entry in wanted], progress) as steps:
        for entry in wanted:
            steps.begin(entry.name)
            now = replace(setting, facts=facts, report=steps.within)
            outcome = _one(entry, now, folder, fresh)
            if outcome.result is not None:
                facts[entry.name] = outcome.result.to_json()["facts"]
            outcomes.append(outcome)
            steps.end()
    return outcomes


def _one(entry: Entry, setting: Setting, folder: Path, fresh: bool) -> Outcome:
    missing = [need for need in entry.needs if need not in setting.facts]
    if missing:
        return Outcome(entry, None, f"needs the entry {missing[0]}, which failed")
    place = keeping.place(folder / FINISHED_FOLDER, entry, keeping.key(entry, setting))
    text = None if fresh else keeping.read(place)
    kept = text is not None
    if text is None:
        began = time.perf_counter()
        try:
            result = entry.find(setting)
        except _FAILURES as error:
            return Outcome(entry, None, " ".join(str(error).split()) or type(error).__name__)
        keeping.write(place, result, time.perf_counter() - began)
        text = keeping.read(place)
        assert text is not None
    versions = tuple(sorted(text["versions"].items()))
    return Outcome(entry, Result.from_json(text["result"]), "", text["seconds"], kept, versions)


class Steps:
    """Progress bar over entries of different weights, with the time left."""

    def __init__(self, weights: Sequence[float], wanted: bool) -> None:
        self.weights, self.wanted = list(weights), wanted
        self.place, self.before = -1, 0.0

    def __enter__(self) -> Steps:
        form = "{desc} {percentage:3.0f} %|{bar}| {elapsed}, left {remaining}{postfix}"
        self.bar = Bar("reproducing", "", sum(self.weights), self.wanted, form=form)
        return self

    def begin(self, name: str) -> None:
        """Begin the next entry."""
        self.place += 1
        self.bar.note(name)

    def within(self, done: int, total: int) -> None:
        """Set the progress within the current entry."""
        self.bar.update(self.before + self.weights[self.place] * done / max(total, 1))

    def end(self) -> None:
        """End the current entry."""
        self.before += self.weights[self.place]
        self.bar.update(self.before)

    def __exit__(self, *error: object) -> None:
        self.bar.close()


def reproduce(
    name: str = "all",
    setting: Setting | None = None,
    folder: str | Path = "reports",
    fresh: bool = False,
    progress: bool = True,
    message: Callable[[str], None] = print,
) -> list[Outcome]:
    """Compute entries and write the page: `reproduction.html` for "all", else `NAME.html`.

    Parameters
    ----------
    name
        Name of an entry (see `workbench_book.names`), or "all".
    setting
        Options of the book, by default those of the full form.
    folder
        Folder for the page and for finished entries.
    fresh, progress
        As in `find`.
    message
        Function that is called with the path of the page, in a sentence.

    Returns
    -------
    list of Outcome
        One outcome for each entry, computed or from the cache.

    Raises
    ------
    SettingError
        There is no entry of that name.

    Examples
    --------
    >>> import tempfile
    >>> quick = Setting(quick=True, measure=False)
    >>> found = reproduce("mmc-misprints", quick, tempfile.mkdtemp(), progress=False, message=lambda text: None)
    >>> [m.confirmed for m in found[0].result.misprints]
    [True, True]
    """
    chosen_setting = setting or Setting()
    target = path_of(folder, "folder")
    outcomes = find(name, chosen_setting, target, fresh, progress)
    shown = outcomes if name == "all" else [each for each in outcomes if each.entry.name == name]
    path = target / ("reproduction.html" if name == "all" else f"{name}.html")
    write(shown, chosen_setting, path)
    message(f"written to {path}")
    return shown

"""Rows of the table of all runs: run folders, with settings and results of each."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.tables.about import RunNotes
from workbench.analysis.tables.status import Status, is_run, is_running, remains, run_names, taken
from workbench.core.base.files import SUMS, check_sums
from workbench.core.base.older import renamed
from workbench.core.base.reading import open_parquet, printable
from workbench.core.base.settings import SettingError
from workbench.core.base.text import read_json, read_yaml
from workbench.core.engine.timeline import COUNTS
from workbench.core.experiment import Description, Experiment, described
from workbench.core.trace.definitions import experiment_of
from workbench.core.trace.layout import (
    ABOUT,
    ATTEMPTS,
    ENDED,
    FILES,
    OWN_SOURCE,
    PLAN,
    ROUNDS,
    RUN,
    SHARDS,
    SPEC,
    STATUS,
    TASK,
    TRACE,
)
from workbench.core.trace.metrics import first_reached
from workbench.core.trace.records import check_rounds
from workbench.core.trace.trace import Trace, incomplete

# columns that are summed over the rounds; of `residual`, the mean is taken
_SUMMED_COLUMNS = (*COUNTS, "overrun", "rejected", "abandoned")
_OWN_PREFIX = OWN_SOURCE.split("{")[0]
_FILES_OF_A_ROW = (SPEC, RUN, ROUNDS, SUMS, ABOUT, ENDED)  # files that a row depends on


@dataclass(frozen=True)
class Place:
    """Place of a run: name, folder of the run, folder that `Trace.load` reads, and an error if it cannot be read."""

    name: str
    home: Path
    folder: Path
    error: str = ""

    @property
    def about(self) -> Path:
        """Folder of the user's notes on it."""
        return self.folder if self.folder.is_dir() else self.home

    def stamp(self) -> str | None:
        """Return a stamp that changes when a source of the row changes, or None if changes cannot be detected."""
        try:
            found = _stats(self.folder, _FILES_OF_A_ROW) if self.folder.is_dir() else {}
            outer = _stats(self.home, (STATUS, ABOUT)) if self.home != self.folder else {}
            found |= {f"../{name}": stat for name, stat in outer.items()}
        except OSError:
            return None
        # User-defined classes change when their cells are run again.
        return None if self.error or OWN_SOURCE in found else json.dumps(found)


def _stats(folder: Path, names: Collection[str]) -> dict[str, list[int]]:
    """Return time, size and inode of the existing files. `OWN_SOURCE` is included if there are user-defined classes."""
    found: dict[str, list[int]] = {}
    with os.scandir(folder) as entries:  # one system call for all names
        for entry in entries:
            if entry.name in names:
                stat = entry.stat()
                found[entry.name] = [stat.st_mtime_ns, stat.st_size, stat.st_ino]
            elif entry.name.startswith(_OWN_PREFIX):
                found[OWN_SOURCE] = []
    return dict(sorted(found.items()))


def places(root: Path, shards: list[Path] | None = None) -> Iterator[Place]:
    """Yield all runs below a folder, also incomplete ones: those of a sweep in its order, else by name.

    Folders of sweeps with runs in shards are added to `shards`.
    """
    unread: list[OSError] = []
    for here, below, files in os.walk(root, onerror=unread.append):
        folder = Path(here)
        below.sort()
        if PLAN in files:
            order = {name: i for i, name in enumerate(run_names(folder))}
            below.sort(key=lambda name, order=order: (order.get(name, len(order)), name))  # type: ignore[misc]
            if shards is not None and SHARDS in below:
                shards.append(folder)
            below[:] = [name for name in below if name not in (ATTEMPTS, SHARDS)]
        if is_run(files):
            below.clear()
        elif not remains(folder, files):
            yield from _linked(folder, (*below, *files), root)
            continue
        yield _place(folder, root, STATUS in files)
    for error in unread:
        folder = Path(error.filename or root)
        yield Place(_name(folder, root), folder, folder, f"cannot be read ({error.strerror})")


def _linked(folder: Path, names: Collection[str], root: Path) -> Iterator[Place]:
    """Yield runs in other folders to which links point. Other links are not followed, because they may form cycles."""
    shown = sorted(folder / name for name in names if not name.startswith("."))
    for link in [path for path in shown if path.is_symlink()]:
        try:
            found = [path.name for path in link.iterdir()]
        except NotADirectoryError:
            continue
        except OSError as error:
            yield Place(_name(link, root), link, link, f"cannot be read ({error.strerror})")
            continue
        if is_run(found):
            yield _place(link, root, STATUS in found)


def _place(home: Path, root: Path, in_sweep: bool) -> Place:
    shown = printable(home)
    error = "" if shown == str(home) else "its name is not text in UTF-8; rename the folder"
    home, folder = (home, home / TRACE if in_sweep else home) if not error else (Path(shown), Path(shown))
    return Place(_name(home, Path(printable(root))), home, folder, error)


def _name(folder: Path, root: Path) -> str:
    name = folder.relative_to(root).as_posix() if folder != root else root.resolve().name
    return printable(name)


def _status(place: Place) -> Status:
    """Return the status of a run, derived from its files and locks."""
    folder = place.folder
    if place.error:
        return Status("damaged", error=place.error)
    if place.home != folder:
        return _of_sweep(place.home)
    if all((folder / name).is_file() for name in (SPEC, RUN, ROUNDS)):
        return Status("done")
    if (folder / SPEC).is_file() and (folder / TASK).is_file():
        if taken(folder):
            return Status("running", _spec(folder), "mpi")
        try:
            check_rounds(folder, _floats(folder))
        except SettingError as error:
            return Status("damaged", _spec(folder), "mpi", error=str(error))
        advice = "wb.resume resumes it, wb.attach follows it where it runs elsewhere"
        return Status("unfinished", _spec(folder), "mpi", error=f"no process here runs it; {advice}")
    lacks = ", ".join(name for name in FILES if not (folder / name).is_file())
    return Status("damaged", error=f"incomplete run folder: {lacks or RUN} is missing; run it again")


def _of_sweep(home: Path) -> Status:
    """Return the status of a run in a sweep. If the sweep has ended, a "running" run was killed."""
    status = Status.read(home)
    if status is None:
        return Status("damaged", error=f"{STATUS} cannot be read")
    if status.state == "running" and not is_running(home.parent):
        return replace(status, state="unfinished", error="the sweep was killed while it ran")
    return status


def _floats(folder: Path) -> int | None:
    """Return the number of parameters of a run's model, or None if that needs code, or data that must be opened."""
    with suppress(Exception):  # a spec that is damaged, or of another version
        e = described(_spec(folder))
        if not isinstance(e, Description) and e.problem_spec.declared_samples() is not None:
            return e.shape()[1]
    return None


def _spec(folder: Path) -> dict[str, Any]:
    with suppress(OSError, SettingError):
        return dict(renamed(read_json(folder / SPEC)))
    return {}


@dataclass(frozen=True)
class Row:
    """One row of the table: status, settings, quantities that follow from them, results, and notes."""

    state: str
    error: str
    chosen: dict[str, Any]
    results: dict[str, Any]
    notes: dict[str, Any]
    lasts: bool = True  # whether the row may be cached: one that names code, or something unknown, may change


def read(place: Place, target: float | None = None, metric: str = "loss") -> Row:
    """Read one run, or only the settings of an unfinished one. With a target, add the time and round that reach it."""
    about = RunNotes.read(place.about)
    notes = {**asdict(about), "tags": ", ".join(about.tags)}
    try:
        status = _status(place)
        chosen: dict[str, Any] = {"engine": status.engine, "cluster": status.cluster}
        if status.state != "done":
            e = described(renamed(status.spec)) if status.spec else None
            asked, follows = _asked(e) if e is not None else ({}, {})
            lasts = not isinstance(e, Description)
            return Row(status.state, status.error, {**chosen, **asked}, follows, notes, lasts)
    except Exception as error:
        return Row("damaged", _words(error), {}, {}, notes)
    try:
        check_sums(place.folder, (SPEC, RUN, ROUNDS))
        run = read_json(place.folder / RUN, "engine")
        chosen["engine"] = str(run["engine"])
        e = experiment_of(place.folder)
        asked, follows = _asked(e, run.get("load"))
        lasts = not isinstance(e, Description)
        chosen.update(asked)
        rounds = _rounds(place.folder)
        if why := incomplete(e, run, len(rounds["time"])):
            return Row("damaged", why, chosen, follows, notes)
        if not len(rounds["time"]):  # the run has no trace, as it was stopped before its first round
            then = "wb.resume resumes it" if (place.folder / TASK).is_file() else "run it again"
            return Row("stopped", f"stopped before its first round; {then}", chosen, follows, notes, lasts)
        when = {} if target is None else reached(place, target, metric)
        return Row(*_end(e, rounds), chosen, {**follows, **_results(rounds), **when}, notes, lasts)
    except Exception as error:  # after any error, the other runs must be shown
        return Row("damaged", _words(error), chosen, {}, notes)


def row_of(trace: Trace) -> Row:
    """Return the row of a trace in memory, as it would be read from its run folder."""
    rounds = {name: array for name, array in trace.columns.items() if np.asarray(array).dtype.kind in "iuf"}
    asked, follows = _asked(trace.experiment, trace.info.get("load"))
    chosen = {"engine": trace.engine, "cluster": "", **asked}
    return Row(*_end(trace.experiment, rounds), chosen, {**follows, **_results(rounds)}, {})


def _end(e: Experiment, rounds: Mapping[str, NDArray[Any]]) -> tuple[str, str]:
    """Return the state of a run that has rounds, done or stopped, and a text about a run that was stopped."""
    count = len(rounds["time"])
    return ("done", "") if count == e.rounds else ("stopped", f"stopped after {count} of {e.rounds} rounds")


def has_rounds(row: Mapping[Any, Any]) -> bool:
    """Return whether a row of the table is of a run with rounds: it is done, or was stopped after its first round.

    >>> has_rounds({"state": "stopped", "rounds_done": 3.0}), has_rounds({"rounds_done": float("nan")})
    (True, False)
    """
    return bool(row.get("rounds_done", 0) > 0)


def _words(error: Exception) -> str:
    kind = "" if isinstance(error, SettingError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())


def _rounds(folder: Path, names: Collection[str] = ()) -> dict[str, NDArray[Any]]:
    """Return the numeric columns of all rounds, or only the named ones. Pandas would take three times as long."""
    from pyarrow import types

    with open_parquet(folder / ROUNDS) as file:
        schema = file.schema_arrow
        numbers = [f.name for f in schema if types.is_integer(f.type) or types.is_floating(f.type)]
        table = file.read([n for n in numbers if not names or n in names], use_threads=False)
    return {name: column.to_numpy() for name, column in zip(table.column_names, table.columns, strict=True)}


def _asked(e: Experiment, load: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return settings and quantities that follow from them: tolerated share of stragglers, largest load of a worker.

    `load`: largest load from run.json. No data are opened.
    """
    follows = dict[str, Any]()
    if isinstance(e, Description):
        return settings_of(e), follows
    scheme = e.built_scheme
    if late := scheme.tolerated(e.workers):
        follows["straggler_fraction"] = late[0] / late[1]
    with suppress(Exception):  # a user-defined scheme may fail
        if (samples := e.problem_spec.declared_samples()) is not None:
            follows["load"] = float(scheme.loads(e.workers, samples).max()) * e.share / samples
        elif isinstance(load, float | int):
            follows["load"] = float(load) / scheme.epochs_per_round
    return settings_of(e), follows


def settings_of(experiment: Experiment) -> dict[str, Any]:
    """Return every setting by its dotted name, including defaults.

    >>> settings_of(Experiment(scheme="GC", scheme_args={"stragglers": 2}))["scheme_args.stragglers"]
    2
    """
    e, flat = experiment, dict[str, Any]()
    nested = e.model_dump(mode="json")
    if not isinstance(e, Description):  # the defaults of a `Description` are unknown
        parts = {"scheme": e.built_scheme, "problem": e.problem_spec, "optimiser": e.build_optimiser()}
        nested |= {f"{name}_args": args.model_dump(mode="json") for name, args in parts.items()}
    for name, value in nested.items():
        for key, item in _flat(name, value):
            flat[key] = json.dumps(item) if isinstance(item, list | tuple | dict) else item
    return flat


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield settings by their dotted names."""
    if not isinstance(value, dict) or ("." in name and "kind" not in value):
        yield name, value
        return
    for key, item in value.items():
        yield from _flat(f"{name}.{key}", item)


def _results(rounds: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    count = len(rounds["time"])
    time = float(rounds["time"][-1])
    found: dict[str, Any] = {"rounds_done": count, "time": time, "round_time": time / count}
    for name, column in rounds.items():
        if name not in ("round", "time"):
            last = column.mean() if name == "residual" else column[-1]
            found[name] = np.asarray(column.sum() if name in _SUMMED_COLUMNS else last).item()
    return found


def reached(place: Place, target: float, metric: str) -> dict[str, float]:
    """Return when a run's metric first was at the target: time_to (s) and rounds_to.

    They are as in `Trace.time_to`, and NaN without the metric. Raises the errors of reading the rounds.
    """
    columns = _rounds(place.folder, ("time", metric))
    batch = read_yaml(place.folder / SPEC, "scheme: CR").get("batch")
    first = first_reached(columns.get(metric, [np.nan]), target, metric, batch)
    if first is None:
        return {"time_to": np.nan, "rounds_to": np.nan}
    return {"time_to": float(columns["time"][first]), "rounds_to": float(first + 1)}

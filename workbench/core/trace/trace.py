"""Trace of a run: the tables of its rounds and events, and its folder on disk."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.base.files import atomic_folder, atomic_write, check_sums, write_file, write_sums
from workbench.core.base.plugins import registered
from workbench.core.base.reading import read_bytes, read_npy, read_parquet
from workbench.core.base.settings import SettingError, check_kind, check_writable, path_of
from workbench.core.base.text import in_seconds, read_json, read_yaml
from workbench.core.base.types import Array
from workbench.core.contract.adaptive import Change
from workbench.core.engine.timeline import EVENT_COLUMNS
from workbench.core.experiment import Description, Experiment
from workbench.core.trace import definitions
from workbench.core.trace.layout import (
    ATTEMPTS,
    EVENTS,
    FILES,
    LEDGERS,
    MODEL,
    ROUNDS,
    RUN,
    SPEC,
    ledgers_path,
)
from workbench.core.trace.metrics import first_reached
from workbench.core.trace.trust import runnable, sign_code

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMED_SCHEMES = 4  # max number of schemes in the name of a run
_RECORDED_PACKAGES = ("numpy", "scipy", "pandas", "pydantic", "scikit-learn", "straggler-workbench")


@dataclass(frozen=True, eq=False)
class Trace:
    """Outcome of a run.

    `rounds`: one row per round. Columns: round, time (s from the start to the commit), loss and metrics (after the
    commit), messages and bytes (received gradient messages), downloads (received models), samples (computed to the
    end), started (samples of all work that was begun), residual (``|decoding vector - 1|^2``), stale (answers that came
    too late). `events`: one row per event. Columns: round, rank, kind (compute, send, drop, decode, commit, fault or
    dead), start, begun (when the receiver's port took it), end (all s), to, bytes, messages (number in the row).
    `model`: final parameters, shape (p,). `initial`: loss and metrics before the first round.

    `experiment`, `engine`: the experiment and the engine that ran it. `columns`, `event_rows`: sources of the two
    tables. `info`: versions, seed, platform. `folder`: its run folder, if it has one.

    >>> import workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5))
    >>> trace.label, trace.engine, len(trace.rounds), trace.model.shape
    ('UMW', 'sim', 5, (20,))
    """

    experiment: Experiment
    engine: str
    columns: dict[str, Any]  # columns of `rounds`
    # rows of `events`, as the engine wrote them or as columns
    event_rows: list[tuple[Any, ...]] | dict[str, Any]
    model: Array
    initial: dict[str, float] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)  # versions, seed, host's platform
    folder: Path | None = None

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Table with one row per round."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    @cached_property
    def events(self) -> pd.DataFrame:
        """Table with one row per event. The messages of a rank in one all-reduce are one event."""
        import pandas as pd

        return pd.DataFrame(events_as_columns(self.event_rows))

    @property
    def changes(self) -> list[Change]:
        """Changes of scheme of an adaptive run (`adaptive = True`), each with its reason."""
        return [Change(**fields) for fields in self.info.get("changes", [])]

    def __repr__(self) -> str:
        """Return one line, because the tables would fill the screen."""
        e, times = self.experiment, self.columns["time"]
        took = f"{len(times)} rounds in {in_seconds(float(times[-1]))}" if len(times) else "no round"
        loss = f", loss {self.columns['loss'][-1]:.6g}" if len(times) and "loss" in self.columns else ""
        return f"<Trace: {self.label}, {e.workers} workers, {self.engine}: {took}{loss}>"

    @property
    def label(self) -> str:
        """Name of the run in titles and legends."""
        return name_of_run(self.experiment, self.changes)

    def time_to(self, target: float, metric: str = "loss") -> float:
        """Return the seconds until the metric first is at the target, or NaN if it never is.

        At the target means at or below it; for accuracy and AUC, at or above. With mini-batches, the mean of the last
        five evaluated values is compared.
        """
        check_kind("target", target, float)
        if metric not in self.columns:
            raise SettingError(f"metric = {metric!r}: this trace has {', '.join(self.columns)}")
        first = first_reached(self.columns[metric], target, metric, self.experiment.batch)
        return float("nan") if first is None else float(self.columns["time"][first])

    def save(self, folder: str | Path) -> Path:
        """Write the run folder atomically. Raise `SettingError` if one of that name exists.

        It is also raised if a sweep has removed the attempt to which the folder belongs.

        It contains spec.json, run.json, rounds.parquet, events.parquet, model.npy, and the sources of user-defined
        code. SHA256SUMS has their hashes. The ledgers of a real run's ranks are added.
        """
        target = path_of(folder, "folder")
        if ATTEMPTS in target.parts and not target.parent.exists():
            raise SettingError(f"folder = {str(target)!r}: its sweep has removed this attempt at the run")
        check_writable(target, "folder", target.parent)
        if not target.exists():
            with suppress(FileExistsError), atomic_folder(target, new=True) as temporary:
                more = []
                if self.folder is not None and ledgers_path(self.folder).is_file():
                    write_file(temporary / LEDGERS, read_bytes(ledgers_path(self.folder)))
                    more.append(LEDGERS)
                self.write_into(temporary, more)
                return target
        raise SettingError(f"folder = {str(target)!r}: exists already; choose a new name")

    def write_into(self, folder: Path, more: Iterable[str] = ()) -> None:
        """Write the run folder's files into an existing folder, with their hashes and those of `more` files in it.

        Each file is written atomically. An older run.json is removed first, and the new one is written last.
        """
        (folder / RUN).unlink(missing_ok=True)
        self.experiment.write(folder / SPEC)
        own = definitions.keep(folder, self.experiment, self.folder)
        for name, table in ((ROUNDS, self.rounds), (EVENTS, self.events)):
            with atomic_write(folder / name) as out:
                table.to_parquet(out)
        with atomic_write(folder / MODEL) as out:
            np.save(out, self.model, allow_pickle=False)
        run = json.dumps({"engine": self.engine, "initial": self.initial, **self.info}, indent=2) + "\n"
        there = [name for name in FILES if name != RUN]
        write_sums(folder, [*there, *own, *more], {RUN: run.encode()})
        # the hashes of a trace with a `Description` are not signed
        if not isinstance(self.experiment, Description):
            sign_code("run", folder, read_yaml(folder / SPEC, "scheme: CR"))
        write_file(folder / RUN, run.encode())

    @classmethod
    def load(cls, folder: str | Path, *, trust: bool = False) -> Trace:
        """Read a run folder. Raise `SettingError` if it is not one, or if a file in it has changed.

        No code is run. If the folder names code, such as "mine.py:Half", the trace's experiment only contains the
        name. `trust`: run that code, so that the experiment can be run and forecast, and sign the folder as trusted.
        """
        check_kind("trust", trust, bool)
        path = path_of(folder, "folder")
        missing = [f for f in FILES if not (path / f).is_file()]
        if missing:
            raise SettingError(
                f"folder = {str(path)!r}: is not a run folder, {', '.join(missing)} is missing"
            )
        check_sums(path, FILES)
        run = read_json(path / RUN, "engine", "initial")
        tables = [_read(read_parquet, path / name) for name in (ROUNDS, EVENTS)]
        rounds, events = ({str(name): table[name].to_numpy() for name in table} for table in tables)
        model = _read(read_npy, path / MODEL)
        with runnable(path, trust) if trust else nullcontext(definitions.experiment_of(path)) as e:
            engine, initial = run.pop("engine"), run.pop("initial")
            if why := incomplete(e, run, len(rounds.get("time", ()))):
                raise SettingError(f"folder = {str(path)!r}: {why}")
        return cls(e, engine, rounds, events, model, initial, run, path)

    def replay(self, *, trust: bool = False) -> Trace:
        """Run the same experiment again. On the virtual clock this gives the same bits.

        `trust`: run code that the folder names and that another user has written or changed. `trust` is needed once.

        Raises `SettingError` if `trust` is needed, and if a user-defined class or function has changed since the run.
        """
        check_kind("trust", trust, bool)
        options = {name: self.info[name] for name in ("numeric", "events") if name in self.info}
        e = self.experiment
        spec = e.spec if isinstance(e, Description) else e.model_dump(mode="json")
        with nullcontext(e) if self.folder is None else runnable(self.folder, trust, spec) as e:
            e = e.current()
            if self.folder is None:  # traces with a folder were compared with the sources in it
                definitions.check_same(e, self.info.get("own", {}))
            again: Trace = registered("workbench.runners", "run")(e, engine=self.engine, **options)
        return again

    def same(self, other: Trace) -> bool:
        """Return whether rounds, events and model are equal bit by bit."""
        if not isinstance(other, Trace):
            raise SettingError(f"other = {other!r:.60}: give a wb.Trace")
        tables = (self.rounds.equals(other.rounds), self.events.equals(other.events))
        return all(tables) and np.array_equal(self.model, other.model)


def name_of_run(e: Experiment, changes: Iterable[Change] = ()) -> str:
    """Return the scheme of a run. For an adaptive run, return its schemes in the order of their first use.

    >>> name_of_run(Experiment(scheme="GC")), name_of_run(Experiment(scheme="GC", adaptive=True))
    ('GC', 'adaptive (GC)')
    """
    if not e.adaptive:
        return e.scheme
    first, *later = dict.fromkeys([e.scheme, *(change.scheme for change in changes)])
    text = ", ".join(later) if len(later) < MAX_NAMED_SCHEMES else f"{len(later)} other schemes"
    return f"adaptive ({first}, then {text})" if later else f"adaptive ({first})"


def incomplete(e: Experiment, run: Mapping[str, Any], rounds: int) -> str:
    """Return what is missing in a trace whose run was not stopped, or "" if nothing is missing.

    >>> incomplete(Experiment(rounds=30), {"state": "finished"}, 26)
    'rounds.parquet has 26 of 30 rounds, and the run was not stopped; run it again'
    """
    stopped = run.get("stopped") is True or run.get("state", "finished") != "finished"
    if stopped or rounds == e.rounds:
        return ""
    return f"{ROUNDS} has {rounds} of {e.rounds} rounds, and the run was not stopped; run it again"


def _read(read: Callable[[Path], Any], path: Path) -> Any:
    try:
        return read(path)
    except SettingError:
        raise
    except Exception as error:  # Arrow and NumPy raise many types of errors
        raise SettingError(f"{path}: is damaged ({' '.join(str(error).split())}); run it again") from None


def run_info(experiment: Experiment, **more: Any) -> dict[str, Any]:
    """Return the fields of run.json: seed, versions, platform, and hashes of user-defined code."""
    own = {source.name: source.digest for source in definitions.sources_of(experiment)}
    known: dict[str, Any] = {"seed": experiment.seed, "versions": versions(), "platform": platform.platform()}
    known |= {"data": data} if (data := experiment.problem_spec.description()) else {}
    known |= {"inexact": why} if (why := experiment.problem_spec.inexact) else {}
    return {**known, **({"own": own} if own else {}), **more}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that affect results."""
    return dict(_versions())


@cache  # a look-up of an installed version takes a millisecond
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _RECORDED_PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # the package is not installed, only its source tree is used
            found[name] = "not installed"
    return found


def events_as_columns(events: list[tuple[Any, ...]] | dict[str, Any]) -> dict[str, Any]:
    """Return the columns of the events, as arrays."""
    if isinstance(events, dict):
        return events
    rows = zip(*events, strict=True) if events else [()] * len(EVENT_COLUMNS)
    return {name: np.array(column) for name, column in zip(EVENT_COLUMNS, rows, strict=True)}

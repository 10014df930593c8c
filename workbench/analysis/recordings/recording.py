"""Schema of recorded stragglers: seconds of each worker in each step, by phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from workbench.analysis.planning.delay_fits import fitted_models
from workbench.analysis.planning.profile import scaled
from workbench.analysis.recordings.card import Card, habits, whole
from workbench.analysis.recordings.croissant import described
from workbench.core.base.extras import not_installed
from workbench.core.base.files import atomic_write
from workbench.core.base.formulas import to_csv
from workbench.core.base.plugins import registered
from workbench.core.base.settings import SettingError, check_ending, check_kind, path_of
from workbench.core.base.tables import TableError, in_order
from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayModel, DelayStream, Replay
from workbench.core.contract.recorded import (
    COLUMNS,
    COMPUTE_PHASE,
    WORK_COLUMNS,
    checked_times,
    own_times,
    refuse,
)

# imported from here by other modules
from workbench.core.contract.recorded import LAYER_PREFIX as LAYER_PREFIX
from workbench.core.problems.data.cache import stored

# max ratio of workers' usual times; a larger ratio means that their units differ, such as ms and s
MAX_RATIO = 300.0
# times above both this multiple of a worker's median and this number of s are not computations
MAX_JUMP, MIN_JUMP_S = 1e4, 60.0
ONE_UNIT = "Bring all to one unit, or state it, e.g. unit = 's'"
VALUES = ("seconds", "processor_seconds")
How = Literal["recorded", "blocks", "fitted"]
# names of delay models, or of distributions of scipy.stats
Names = Sequence[str]


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded times of one or several jobs.

    `frame`: one row per worker, step and phase, with columns recording, worker, host, step, phase, seconds, samples,
    and processor_seconds (NaN if unknown), and if known tokens and squares (sum of squared lengths of sequences).
    `units`: unit of all times ("s", or what they were normalised to). `source`: name, title, origin, licence, file.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"worker": [0, 1], "step": [0, 0], "seconds": [0.5, 0.7]})
    >>> Recording.of_rows(rows, "two workers").table().to_numpy().tolist()
    [[0.5, 0.7]]
    """

    frame: pd.DataFrame
    units: str = "s"
    source: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `SettingError` with the field's name for an invalid table of recorded times."""
        needed = tuple(name for name in COLUMNS if name not in ("tokens", "squares"))
        _check_frame("frame", self.frame, needed, "wb.traces.load reads a file, Recording.of_rows a table")
        _check_text("units", self.units)
        if not isinstance(self.source, Mapping):
            raise SettingError(
                f"source = {self.source!r:.60}: give a mapping of text, e.g. {{'name': 'mine'}}"
            )
        with _named(str(self.source.get("name", "frame"))):
            _check_names(self.frame)
            checked_times(self.frame)

    @classmethod
    def of_rows(cls, rows: pd.DataFrame, name: str, units: str = "s", **source: str) -> Recording:
        """Build a recording, with defaults for missing columns. Raise `SettingError` for rows that are not times.

        `rows`: at least worker, step and seconds; `name`: name of the recording, if rows have none. `source`: see
        `Recording`. With a `unit` that is stated there, times that are very far apart are accepted.
        """
        _check_frame("rows", rows, (), "its columns are worker, step and seconds at least")
        _check_text("name", name)
        file = source.get("file", name)
        # an index without these names means a frame in memory; line numbers in errors then count as in a file
        if rows.index.name not in ("line", "row"):
            first, kind = (2, "line") if file.endswith(".csv") else (1, "row")
            rows = rows.set_axis(pd.RangeIndex(first, len(rows) + first, name=kind), axis=0)
        defaults: dict[str, Any] = {"recording": name, "host": "", "phase": COMPUTE_PHASE}
        defaults |= dict.fromkeys((*WORK_COLUMNS, "processor_seconds"), np.nan)
        with _named(file):
            _check_names(rows)
            rows = checked_times(rows)
            for column, value in defaults.items():
                rows = rows if column in rows else rows.assign(**{column: [value] * len(rows)})
            _refuse_other_units(rows, "unit" in source)
        return cls(rows[list(COLUMNS)].reset_index(drop=True), units, {"name": name, **source})

    @cached_property
    def names(self) -> list[str]:
        """Names of the recorded jobs."""
        return [str(name) for name in pd.unique(self.frame["recording"])]

    def job(self, name: str | None = None) -> Recording:
        """Return one job of several. Raise `SettingError` with their names if the job does not exist."""
        if name is None and len(self.names) == 1:
            return self
        if not isinstance(name, str) or name not in self.names:
            raise SettingError(
                f"recording = {_shown(repr(name))}: choose one of {', '.join(map(repr, self.names))}"
            )
        mine = self.frame[self.frame["recording"].astype(str) == name].reset_index(drop=True)
        return replace(self, frame=mine, source={**self.source, "recording": str(name)})

    def table(self, phase: str | None = None, values: str = "seconds") -> pd.DataFrame:
        """Return seconds of every worker (columns) in every step (rows), or NaN if not recorded.

        `phase`: by default the worker's own work ("compute" and the layers "compute: NAME"), if it was recorded;
        otherwise all phases together. Waiting for other workers would make all times of a step equally long. `values`:
        "seconds", or those of a processor ("processor_seconds"). Raises `SettingError` for an unknown phase.
        """
        frame = self.job().frame
        phases = sorted(set(frame["phase"]))
        if not isinstance(values, str) or values not in VALUES:
            raise SettingError(
                f"values = {_shown(repr(values))}: choose one of {', '.join(map(repr, VALUES))}"
            )
        if phase is not None and (not isinstance(phase, str) or phase not in phases):
            raise SettingError(f"phase = {phase!r}: choose one of {', '.join(map(repr, phases))}")
        rows = own_times(frame) if phase in (None, COMPUTE_PHASE) else frame[frame["phase"] == phase]
        # the column is complete or empty
        whole: Any = "sum" if values == "seconds" else partial(pd.Series.sum, skipna=False)
        found = rows.pivot_table(
            index="step", columns="worker", values=values, aggfunc=whole, observed=True, sort=True
        )
        return found[in_order(found.columns.tolist())]

    def card(self, kinds: Names = ()) -> Card:
        """Summarise the recording: spread, bursts, permanently slow workers, changes, and delay models that fit.

        `kinds`: delay models to fit, or distributions of `scipy.stats` by their names, such as ["gamma", "invgauss"].

        >>> import pandas as pd
        >>> times = [(w, t, 1 + (w == 2)) for t in range(20) for w in range(5)]
        >>> rows = pd.DataFrame(times, columns=["worker", "step", "seconds"])
        >>> round(Recording.of_rows(rows, "one slow").card().chronic, 2)
        1.0
        """
        job = self.job()
        return Card.of(job.names[0], job.units, job.table(), kinds)

    def figure(self, theme: str = "light") -> Any:
        """Return a heat map of late workers by step: see `lateness`."""
        return registered("workbench.displays", "Recording")(self.job(), theme)

    def delays(
        self, how: How = "recorded", block: int | None = None, samples: float | None = None, kinds: Names = ()
    ) -> DelayModel:
        """Return a delay model for any number of workers, in the recording's own units.

        "recorded": in recorded order, from a random start; bursts, changes and permanently slow workers are kept.
        "blocks": blocks of `block` consecutive steps (default: the square root of their number), each drawn separately;
        bursts shorter than a block are kept, changes are not. "fitted": the best delay model of `card(kinds)`, which
        keeps what it can describe.

        samples: number of samples that a recorded time is for; default: as in the recording. Other loads take
        proportionally longer. If neither is known, recorded times are for loads of one sample, and "fitted" raises
        `SettingError`.
        """
        if not isinstance(how, str) or how not in get_args(How):
            raise SettingError(
                f"how = {_shown(repr(how))}: choose one of {', '.join(map(repr, get_args(How)))}"
            )
        if block is not None:
            _check_count("block", block, 1)
        job = self.job()
        if how == "fitted":
            known = job._samples if samples is None else samples
            if known is None:
                why = "the samples of a recorded time are not known; give samples = 1 if each time is of one sample"
                raise SettingError(f"recording = {job.names[0]!r}: {why}")
            return scaled(fitted_models(whole(job.names[0], job.table()), kinds)[0].delays, 1 / known)
        steps = len(job.table())
        drawn = {"block": block or max(1, round(steps**0.5))} if how == "blocks" else {}
        path = stored("recordings", job._packed(".parquet"), ".parquet")
        return Replay(path=str(path), samples=samples, **drawn)

    @property
    def _samples(self) -> float | None:
        """Number of samples of a time if it is the same in all rows, else None."""
        found = pd.unique(own_times(self.frame)["samples"])
        return float(found[0]) if len(found) == 1 and not np.isnan(found[0]) else None

    def replays(self, workers: int | None = None, rounds: int = 200, seed: int = 0) -> pd.DataFrame:
        """Compare replays with the recording: one row for the recording, and one for each kind of replay.

        Columns: late (share of times above 1.2 times the step's median), burst (mean number of consecutive late steps),
        maximum (mean ratio of a step's maximum to its median). `workers`, `rounds`, `seed`: fields of the replays. By
        default, the number of workers is the recorded one.

        >>> import pandas as pd
        >>> times = [(w, t, 1 + (w == 2)) for t in range(20) for w in range(5)]
        >>> made = Recording.of_rows(pd.DataFrame(times, columns=["worker", "step", "seconds"]), "one slow")
        >>> made.replays().loc["as it was", "maximum"]
        np.float64(2.0)
        """
        for name, value, least in (("workers", workers, 1), ("rounds", rounds, 1), ("seed", seed, 0)):
            if name != "workers" or value is not None:
                _check_count(name, value, least)
        job = self.job()
        times = whole(job.names[0], job.table())
        n = times.shape[1] if workers is None else workers
        found = {"as it was": habits(times)}
        for how in get_args(How):
            stream = DelayStream(job.delays(how, samples=1.0), seed, n)
            drawn = [stream.model.compute(stream.draw(r), np.ones(n)) for r in range(rounds)]
            found[how] = habits(np.stack(drawn))
        return pd.DataFrame(found, index=["late", "burst", "maximum"]).T

    def croissant(self, file: str = "times.csv") -> dict[str, Any]:
        """Return Croissant metadata (JSON-LD) of the file of that name that `write` makes. Needs the extra `metadata`.

        >>> import pandas as pd
        >>> rows = pd.DataFrame({"worker": [0, 1], "step": [0, 0], "seconds": [0.5, 0.7]})
        >>> Recording.of_rows(rows, "two workers").croissant()["name"]
        'two workers'
        """
        path = path_of(file, "file")
        check_ending(path, (".csv", ".parquet"), "file")
        try:
            return described(self.source, self.units, str(file), self._packed(path.suffix))
        except ImportError as error:
            raise not_installed("Recording.croissant", error) from None

    def write(self, path: str | Path) -> Path:
        """Write a .csv or .parquet table that "replay" and `wb.traces.load` read: worker, step, seconds, ..."""
        file = path_of(path, "path")
        check_ending(file, (".csv", ".parquet"), "path")
        with atomic_write(file) as out:
            out.write(self._packed(file.suffix))
        return file

    def _packed(self, ending: str) -> bytes:
        keys = ["recording", "worker", "step"]
        groups = own_times(self.frame).groupby(keys, observed=True, sort=False)
        rows = groups.agg(seconds=("seconds", "sum"), samples=("samples", "first")).reset_index()
        rows = rows if rows["samples"].notna().any() else rows.drop(columns="samples")
        packed = to_csv(rows) if ending == ".csv" else rows.to_parquet(index=False)
        return bytes(packed)

    def __repr__(self) -> str:
        """Return one line, because the table would fill the screen."""
        workers, steps = self.frame["worker"].nunique(), self.frame["step"].nunique()
        jobs = "" if len(self.names) == 1 else f", {len(self.names)} jobs"
        return f"Recording({self.source.get('name', '')}: {workers} workers, {steps} steps{jobs})"

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return int(self.frame["step"].nunique())


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Add the name of the file to errors."""
    try:
        yield
    except TableError as error:
        raise SettingError(error.of(f"path = {file!r}")) from None


def _check_frame(field: str, frame: object, columns: tuple[str, ...], hint: str) -> None:
    """Raise `SettingError` unless the frame is a non-empty table that has each of these columns once."""
    if not isinstance(frame, pd.DataFrame):
        raise SettingError(f"{field} = {_shown(repr(frame))}: give a pandas DataFrame; {hint}")
    twice = [str(name) for name in frame.columns[frame.columns.duplicated()].unique()]
    if twice:
        raise SettingError(
            f"{field}: has more than one column {', '.join(twice)}; give each column a different name"
        )
    missing = [name for name in columns if name not in frame]
    if missing:
        raise SettingError(f"{field}: lacks columns {missing}; {hint}")
    if columns and frame.empty:
        raise SettingError(f"{field}: there is no row; {hint}")


def _check_count(field: str, value: Any, least: int) -> None:
    check_kind(field, value, int)
    if value < least:
        raise SettingError(f"{field} = {value}: take {least} or more")


def _check_text(field: str, value: object) -> None:
    if not isinstance(value, str):
        raise SettingError(f"{field} = {_shown(repr(value))}: is not text; give a name in quotes")


def _check_names(frame: pd.DataFrame) -> None:
    """Raise `SettingError` for invalid names of recordings, workers, hosts or phases, except missing ones."""
    for column in (name for name in ("recording", "worker", "host", "phase") if name in frame):
        values, numbers = frame[column].astype(object), column != "phase"
        known = {kind: _is_name(kind, numbers) for kind in set(values.map(type))}
        wrong = ~values.map(type).map(known).astype(bool) & values.notna()
        refuse(frame, wrong, values, f"is not a name; give text{' or a whole number' * numbers}")
        texts = {value for value in set(values[values.notna()]) if isinstance(value, str)}
        broken = {value for value in texts if value != value.encode(errors="replace").decode()}
        if broken:
            refuse(frame, values.isin(broken), values.map(ascii), "is not valid Unicode; give other text")


def _is_name(kind: type, numbers: bool) -> bool:
    """Return whether values of this type can be names: text, and with `numbers` also real numbers."""
    real = issubclass(kind, Real | np.number) and not issubclass(kind, complex | np.complexfloating | bool)
    return issubclass(kind, str) or (numbers and real)


def _refuse_other_units(frame: pd.DataFrame, is_stated: bool) -> None:
    """Raise `TableError` for workers or steps in other units, unless the unit is stated, and for changed clocks."""
    seconds, keys = frame["seconds"], ["recording", "phase"]
    plain = frame.assign(row=np.arange(len(frame)))
    own_medians = plain.groupby([*keys, "worker"], observed=True)["seconds"].transform("median").to_numpy()
    each = plain.assign(own=own_medians).drop_duplicates([*keys, "worker"])
    every = each.groupby(keys, observed=True)["own"].median()
    others = plain[keys].merge(every.rename("all").reset_index(), on=keys, how="left")["all"].to_numpy()
    far = (own_medians > MAX_RATIO * others) | (own_medians * MAX_RATIO < others)
    units = f"this worker's times and the others' are {MAX_RATIO:g} times apart, or more; in ms? {ONE_UNIT}"
    mine = own_times(plain)  # own times, because waiting times depend on other workers
    known = (own_medians > 0) & (others > 0) & np.isin(plain["row"], mine["row"]) & (not is_stated)
    refuse(frame, far & known, seconds, units)
    steps = mine.groupby([*keys, "step"], observed=True)["seconds"].median()
    for _, medians in () if is_stated else steps.groupby(level=keys, observed=True):
        if change := _other_units(medians.to_numpy()):
            job, phase, step = medians.index[change]
            there = (plain["recording"] == job) & (plain["phase"] == phase) & (plain["step"] == step)
            why = f"from here on all times are {MAX_RATIO:g} times as long, or as short, as before; in ms?"
            refuse(frame, there.to_numpy(), seconds, f"{why} {ONE_UNIT}")
    jumps = (
        (seconds.to_numpy() > MAX_JUMP * own_medians) & (seconds.to_numpy() > MIN_JUMP_S) & (own_medians > 0)
    )
    why = f"over {MAX_JUMP:g} times what that worker usually takes; was the clock set? Leave it out"
    refuse(frame, jumps, seconds, why)


def _other_units(medians: Array) -> int:
    """Return the step from which on all times are in other units, 0 if none. Each side has at least three steps.

    >>> _other_units(np.array([0.5, 0.6, 0.5, 400.0, 500.0, 600.0]))
    3
    """
    before, after = medians, medians[::-1]
    most, least = np.maximum.accumulate(before)[2:-3], np.minimum.accumulate(before)[2:-3]
    later_most = np.maximum.accumulate(after)[::-1][3:-2]
    later_least = np.minimum.accumulate(after)[::-1][3:-2]
    larger = (later_least > MAX_RATIO * most) & (most > 0)
    smaller = (MAX_RATIO * later_most < least) & (later_most > 0)
    return int((larger | smaller).argmax()) + 3 if (larger | smaller).any() else 0


def _shown(value: str) -> str:
    """Return the text of a value on one line, shortened if it is long."""
    return f"{' '.join(value.split()):.60}"

"""Delay model that replays recorded times."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting, user_path
from workbench.core.base.tables import TableError, in_order
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, PerSample, Tabulated
from workbench.core.contract.recorded import ENDINGS, own_times, place, read_times

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMED = 8  # recordings that an error message lists


class Replay(PerSample, Tabulated):
    r"""Replay of recorded times from a table, as `wb.traces.load` reads it.

    The columns of the table are worker, step, seconds, and optionally recording and samples. Each worker takes the
    times of one recorded worker, which is drawn for the run. Its times begin at a drawn step, continue in recorded
    order, and begin again after the last step. If the table has several recordings, each is scaled to the median of the
    first. A row without a worker, or one that repeats another row, raises an error with its line.

    A recorded time is for the number of samples in the field `samples`, or in the table's column samples. For other
    loads, the time is proportional to the load. If neither is given, only loads of one sample are accepted.

    `as_recorded`: nothing is drawn, and times do not depend on the load. Worker i takes the seconds of the i-th
    recorded worker from the first step on, and begins again after the last one. More workers than were recorded raise
    an error, and so do several recordings. With `slope`, samples beyond the recorded ones add time:
    delays + (load - base load) * slope, as in the search of Krishnan et al. 2023.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "times.csv"
    >>> _ = table.write_text("worker,step,seconds\n1,0,0.5\n1,1,0.7\n")
    >>> model = Replay(path=str(table))
    >>> model.compute(model.draw(CounterRNG(0), 0, 2, 0, None), np.array([1, 1])).shape
    (2,)
    """

    per_run = True
    kind = "replay"
    path: str = setting(description="table of recorded times: .csv or .parquet with worker, step, seconds")
    experiment: str | None = setting(None, "name of the only recording to use; empty = all of the table")
    samples: float | None = setting(
        None,
        "number of samples that a recorded time is for; empty = that of the table's column samples",
        "samples",
        gt=0,
    )
    scale: float = setting(1.0, "factor on the recorded seconds", gt=0)
    block: int | None = setting(
        None,
        "number of consecutive recorded steps after which a new start is drawn; empty = no new start",
        ge=1,
    )
    resample_seed: int | None = setting(
        None,
        "seed of a bootstrap sample of the recorded steps, which represents another recording; empty = as recorded",
        ge=0,
    )
    resample_block: int | None = setting(
        None,
        "number of consecutive recorded steps in a block of the bootstrap sample; empty = the root of their number",
        ge=1,
    )
    common_start: bool = setting(
        False, "all workers begin at the same recorded step, so that delays of all workers stay simultaneous"
    )
    same_workers: bool = setting(
        False, "worker i takes the times of the i-th recorded worker, from a drawn start"
    )
    as_recorded: bool = setting(
        False,
        "worker i takes the seconds of recorded worker i, unchanged and from the first step on, at any load",
    )
    slope: float = setting(
        0.0,
        "time that each sample beyond the recorded ones adds, with as_recorded; 0 = times do not depend on the load",
        "s/sample",
        ge=0,
    )

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the recorded seconds, (1, workers)."""
        times, lengths, _ = self._times()
        if self.as_recorded:
            return self._own(times, lengths, round, workers)
        rng = keyed.rng(-1)
        repeats = -(-workers // len(times))
        row = np.concatenate([rng.permutation(len(times)) for _ in range(repeats)])[:workers]
        row = np.arange(workers) % len(times) if self.same_workers else row
        share = rng.random(workers)
        if self.block is not None:
            number, round = divmod(round, self.block)
            share = keyed.rng(-1, number + 1).random(workers)
        start = np.floor((share[0] if self.common_start else share) * lengths[row]).astype(int)
        if self.resample_seed is None:
            return times[row, (start + round) % lengths[row]][None]
        start -= start % (
            self.resample_block or 1
        )  # so that blocks of the run do not cut those of the sample
        drawn = resampled_indices(times.shape[1], self.resample_seed, self.resample_block)
        return times[row, drawn[(start + round) % lengths[row]] % lengths[row]][None]

    def _times(self) -> Times:
        """Return the recorded times.

        If the table has the samples of each time, scale all times to the same number of samples.
        """
        free = not self.as_recorded
        return _times(self.path, self.experiment, free, one_load=free and self.samples is None)

    def _own(self, times: Array, lengths: NDArray[np.int64], round: int, workers: int) -> Array:
        """Return the seconds of the i-th recorded worker for worker i (`as_recorded`)."""
        if workers > len(times):
            raise SettingError(
                f"delays.as_recorded: {workers} workers, and {self.path!r} has {len(times)}; take {len(times)}"
                " workers or fewer, or as_recorded = false"
            )
        return times[np.arange(workers), round % lengths[:workers]][None]

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Return recorded * scale * samples / recorded samples, s; with `as_recorded`, recorded * scale + slope term.

        Raises `SettingError` if the number of recorded samples is needed and unknown.
        """
        if self.as_recorded:
            more = self.slope * (np.asarray(samples) - self.recorded_samples(samples)) if self.slope else 0.0
            return np.asarray(np.maximum(draw[0] * self.scale + more, 0.0))
        return np.asarray(draw[0] * (self.scale / self.recorded_samples(samples)) * self.work(samples))

    def times(self, samples: int) -> tuple[Array, Array] | None:
        """Return the seconds of all recorded steps. Each recorded worker has the same probability.

        None with `as_recorded` and `common_start`, whose draws are few different steps in a short run.
        """
        if self.as_recorded or self.common_start:
            return None
        times, lengths, _ = self._times()
        steps = np.arange(times.shape[1])
        if self.resample_seed is not None:
            steps = resampled_indices(len(steps), self.resample_seed, self.resample_block)
        drawn = np.concatenate([row[steps[:n] % n] for row, n in zip(times, lengths, strict=True)])
        shares = np.repeat(1 / (lengths * len(times)), lengths)
        return self.compute(drawn[None], np.full(len(drawn), samples)), shares

    def expected(self, samples: int) -> float | None:
        found = self.times(samples)
        return None if found is None else float(np.dot(*found))

    def check_loads(self, loads: NDArray[Any]) -> None:
        """Read the table, and raise `SettingError` if it has no times for these workers or loads."""
        self.compute(self.draw(CounterRNG(0), 0, len(loads), 0, None), loads)

    def recorded_samples(self, loads: NDArray[Any]) -> float:
        """Return the number of samples that a recorded time is for. Raises `SettingError` if it is unknown."""
        if self.samples is not None:
            return self.samples
        found = self._times().samples
        if found is None and (self.fixed or self.slope or np.max(loads, initial=0) > 1):
            raise SettingError(
                f"delays.samples: {self.path!r} does not say how many samples a recorded time is for; give the number"
                " of a worker's samples when it was recorded (1 if each time is of one sample), or as_recorded = true"
            )
        return 1.0 if found is None else found


def resampled(rounds: int, rng: np.random.Generator, block: int | None = None) -> NDArray[np.int64]:
    """Draw rounds with replacement, (rounds,), in blocks of consecutive rounds (default: the root of their number)."""
    block = block or max(1, round(rounds**0.5))
    starts = rng.integers(0, rounds, -(-rounds // block))
    return np.asarray((starts[:, None] + np.arange(block)).ravel()[:rounds] % rounds)


@lru_cache(maxsize=64)
def resampled_indices(rounds: int, seed: int, block: int | None) -> NDArray[np.int64]:
    """Return the recorded steps that are replayed in steps 0 to `rounds` - 1, drawn by `resampled`."""
    return resampled(rounds, np.random.default_rng(seed), block)


class Times(NamedTuple):
    """Recorded times of all workers."""

    seconds: Array  # (workers, steps), padded with NaN
    lengths: NDArray[np.int64]  # (workers,) number of recorded steps
    samples: float | None  # number of samples that a time is for, if known


def recorded(
    path: str, experiment: str | None = None, scaled: bool = True
) -> tuple[Array, NDArray[np.int64]]:
    """Read a table of recorded times: (seconds, lengths), one row for each recorded worker, padded with NaN.

    `scaled`: scale several recordings to the same median. Raises `SettingError` if the table is missing or does not
    fit, or if it has several recordings and `scaled` is False.
    """
    found = _times(path, experiment, scaled)
    return found.seconds, found.lengths


def _times(path: str, experiment: str | None, scaled: bool, one_load: bool = False) -> Times:
    file = user_path(path, "delays.path")
    if not file.exists():
        raise SettingError(f"delays.path = {path!r}: no such file; give a table in {', '.join(ENDINGS)}")
    state = file.stat()
    return _read(path, experiment, scaled, one_load, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=8)
def _read(path: str, experiment: str | None, scaled: bool, one_load: bool, stamp: tuple[int, int]) -> Times:
    """Read and cache a table. `stamp` (modification time and size of the file) is part of the cache's key."""
    table = _table(path)
    jobs = in_order(table["recording"].unique().tolist())
    if experiment is not None:
        if experiment not in jobs:
            there = ", ".join(map(repr, jobs[:MAX_NAMED]))
            raise SettingError(f"delays.experiment = {experiment!r}: not in {path!r}; it has {there}")
        table, jobs = table[table["recording"] == experiment], [experiment]
    if len(jobs) > 1 and not scaled:
        raise SettingError(
            f"delays.as_recorded: {path!r} has {len(jobs)} experiments; name one in delays.experiment:"
            f" {', '.join(jobs[:MAX_NAMED])}"
        )
    known = table["samples"].notna().all()
    samples = float(table["samples"].median()) if known else None
    if one_load and samples is not None:  # scale all times to the median load
        table = table.assign(seconds=table["seconds"] * (samples / table["samples"]))
    medians = table.groupby("recording")["seconds"].median()
    if len(jobs) > 1:
        usual = table["recording"].map(medians)
        if idle := [row for row, median in enumerate(usual) if median == 0][:1]:
            why = "its median is 0 s, which cannot be scaled to the others'; name one recording in delays.experiment"
            error = TableError(
                f"recording = {table['recording'].iloc[idle[0]]}: {why}", place(table, idle[0])
            )
            raise SettingError(error.of(f"delays.path = {path!r}"))
        table = table.assign(seconds=table["seconds"] / usual * medians[jobs[0]])
    return Times(*_by_worker(table, jobs), samples)


def _by_worker(table: pd.DataFrame, jobs: list[str]) -> tuple[Array, NDArray[np.int64]]:
    """Return the seconds in the order of the steps, (workers, steps), padded with NaN, and the number of steps."""
    groups = dict(iter(table.sort_values("step", kind="stable").groupby(["recording", "worker"])["seconds"]))
    workers = {job: in_order(table["worker"][table["recording"] == job].unique().tolist()) for job in jobs}
    rows = [groups[job, worker].to_numpy(float) for job in jobs for worker in workers[job]]
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), np.nan)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths


def _table(path: str) -> pd.DataFrame:
    """Return the seconds and samples of each worker's computing, by recording and step."""
    file = Path(path).expanduser()
    try:
        table = own_times(read_times(file))
    except SettingError as error:
        raise SettingError(f"delays.path: {error}") from None
    except TableError as error:
        raise SettingError(error.of(f"delays.path = {path!r}")) from None
    except (ValueError, OSError) as error:  # Arrow's own errors are subclasses of these
        reason = " ".join(str(error).split())
        raise SettingError(f"delays.path = {path!r}: cannot be read as a table ({reason})") from None
    table = table.assign(
        recording=table.get("recording", ""),
        samples=table.get("samples", np.nan),
    )
    if "phase" not in table:
        return table
    keys = ["recording", "worker", "step"]  # the seconds of all phases of a step are added
    first = table.groupby(keys)[["samples"]].transform("first")
    total = table.groupby(keys)["seconds"].transform("sum")
    return table.assign(seconds=total, samples=first["samples"])[~table.duplicated(keys)]

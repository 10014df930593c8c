"""The delay model that replays recorded times."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, setting, user_path
from workbench.core.base.tables import TableError, in_order
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, PerSample
from workbench.core.contract.recorded import ENDINGS, own_times, place, read_times

if TYPE_CHECKING:
    import pandas as pd

MAX_NAMED = 8  # recordings that a sentence names


class Replay(PerSample):
    r"""A recorded run: a table as `wb.traces.load` reads it, of worker, step, seconds and perhaps recording, samples.

    A worker takes the times of one recorded worker, drawn for the run, from a drawn start and in recorded order,
    round and round. Several recordings are of different tasks: each is scaled to the median of the first.
    A row that does not say whose time it is, or that repeats another one, is refused with its line.

    A time is for as many samples as `samples` says, or the table's own column samples. Another load takes
    proportionally longer. Where neither says it, only loads of one sample are accepted.

    `as_recorded`: nothing is drawn and nothing follows the load. Worker i takes the i-th recorded worker's seconds,
    from the first iteration on, whatever it has to do; at the end of its recording it begins again. More workers than
    were recorded are refused, and so are several experiments. With a `slope`, what it has to do beyond the recorded
    samples takes so much longer: delays + (load - base load) * slope, as in the search of Krishnan et al. 2023.

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
    experiment: str | None = setting(None, "take this recording of the table only; empty = all")
    samples: float | None = setting(
        None,
        "how many samples a recorded time is for; empty = as the table's column samples says",
        "samples",
        gt=0,
    )
    scale: float = setting(1.0, "multiply the recorded seconds by this", gt=0)
    block: int | None = setting(
        None,
        "iterations that are taken in one go; then others are drawn; empty = all of them, in order",
        ge=1,
    )
    resample_seed: int | None = setting(
        None,
        "seed by which iterations are drawn again first, as another recording may have them; empty = as recorded",
        ge=0,
    )
    common_start: bool = setting(
        False, "all workers begin at one recorded iteration: what held all of them up at once does so again"
    )
    same_workers: bool = setting(
        False, "worker i takes the times of the i-th recorded one, from a drawn start: the very workers again"
    )
    as_recorded: bool = setting(
        False, "worker i takes recorded worker i's seconds from the first on, as they are, whatever the load"
    )
    slope: float = setting(
        0.0,
        "what a sample beyond the recorded task's adds to seconds taken as recorded; 0 = nothing follows the load",
        "s/sample",
        ge=0,
    )

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Recorded seconds, one per worker."""
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
        place = (start + round) % lengths[row]
        if self.resample_seed is not None:
            place = resampled_indices(times.shape[1], self.resample_seed)[place] % lengths[row]
        return times[row, place][None]

    def _times(self) -> Times:
        """The recorded times; for one number of samples where the model takes that from the table."""
        recorded = self.as_recorded
        return _times(
            self.path, self.experiment, not recorded, one_load=self.samples is None and not recorded
        )

    def _own(self, times: Array, lengths: NDArray[np.int64], round: int, workers: int) -> Array:
        """Each worker's own recorded seconds of a round."""
        if workers > len(times):
            raise SettingError(
                f"delays.as_recorded: {workers} workers, and {self.path!r} has {len(times)}; take {len(times)}"
                " workers or fewer, or as_recorded = false"
            )
        rows = np.arange(workers)
        return times[rows, round % lengths[rows]][None]

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: recorded * scale * samples / recorded samples; as recorded: * scale, and by the slope more.

        Raises `SettingError` where nothing says how many samples a recorded time is for, and that makes a difference.
        """
        if self.as_recorded:
            more = self.slope * (np.asarray(samples) - self.recorded_samples(samples)) if self.slope else 0.0
            return np.asarray(np.maximum(draw[0] * self.scale + more, 0.0))
        return np.asarray(draw[0] * (self.scale / self.recorded_samples(samples)) * self.work(samples))

    def check_loads(self, loads: NDArray[Any]) -> None:
        """Read the table, and refuse workers or loads that it has no times for."""
        self.compute(self.draw(CounterRNG(0), 0, len(loads), 0, None), loads)

    def recorded_samples(self, loads: NDArray[Any]) -> float:
        """How many samples a recorded time is for."""
        if self.samples is not None:
            return self.samples
        found = self._times().samples
        if found is None and (self.fixed or self.slope or np.max(loads, initial=0) > 1):
            raise SettingError(
                f"delays.samples: {self.path!r} does not say how many samples a recorded time is for; give the number"
                " of a worker's samples when it was recorded (1 if each time is of one sample), or as_recorded = true"
            )
        return 1.0 if found is None else found


def resampled(rounds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rounds drawn with replacement, in blocks of neighbours so that what is correlated stays together: (rounds,)."""
    block = max(1, round(rounds**0.5))
    starts = rng.integers(0, rounds, -(-rounds // block))
    return np.asarray((starts[:, None] + np.arange(block)).ravel()[:rounds] % rounds)


@lru_cache(maxsize=64)
def resampled_indices(rounds: int, seed: int) -> NDArray[np.int64]:
    """Which of so many recorded iterations stand for them in another recording: see `resampled`."""
    return resampled(rounds, np.random.default_rng(seed))


class Times(NamedTuple):
    """Recorded seconds, one row a worker, padded with NaN; their numbers; the samples that a time is for, if known."""

    seconds: Array
    lengths: NDArray[np.int64]
    samples: float | None


def recorded(
    path: str, experiment: str | None = None, scaled: bool = True
) -> tuple[Array, NDArray[np.int64]]:
    """Read a table of recorded times: (seconds, lengths), one row a recorded worker, padded with NaN.

    `scaled`: several recordings are brought to one median; without it, several are refused.
    Raises `SettingError` where the table is missing or does not fit.
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
    """The same, read again once the file has changed."""
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
    if one_load and samples is not None:  # what was recorded for other loads would have taken so long
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
    """Seconds in the order of the steps, one row a worker, padded with NaN; and how many each has."""
    groups = dict(iter(table.sort_values("step", kind="stable").groupby(["recording", "worker"])["seconds"]))
    workers = {job: in_order(table["worker"][table["recording"] == job].unique().tolist()) for job in jobs}
    rows = [groups[job, worker].to_numpy(float) for job in jobs for worker in workers[job]]
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), np.nan)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths


def _table(path: str) -> pd.DataFrame:
    """Seconds and samples of what each worker did itself, by recording and step."""
    file = Path(path).expanduser()
    try:
        table = own_times(read_times(file))
    except SettingError as error:
        raise SettingError(f"delays.path: {error}") from None
    except TableError as error:
        raise SettingError(error.of(f"delays.path = {path!r}")) from None
    except (ValueError, OSError) as error:  # Arrow's own errors are of these kinds
        reason = " ".join(str(error).split())
        raise SettingError(f"delays.path = {path!r}: cannot be read as a table ({reason})") from None
    table = table.assign(
        recording=table.get("recording", ""),
        samples=table.get("samples", np.nan),
    )
    if "phase" not in table:
        return table
    keys = ["recording", "worker", "step"]  # several phases are one time
    first = table.groupby(keys)[["samples"]].transform("first")
    total = table.groupby(keys)["seconds"].transform("sum")
    return table.assign(seconds=total, samples=first["samples"])[~table.duplicated(keys)]

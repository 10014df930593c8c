"""The law that goes through recorded times, and the tables that they are recorded in."""

from __future__ import annotations

import csv
from functools import lru_cache
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.formulas import from_csv
from workbench.core.base.reading import open_regular, read_parquet, read_table
from workbench.core.base.settings import SettingError, setting, user_path
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import Keyed, PerSample

if TYPE_CHECKING:
    import pandas as pd


class Replay(PerSample):
    r"""A recorded run: a table with columns worker, iteration, seconds (and perhaps experiment).

    A worker takes the times of one recorded worker, drawn for the run, from a drawn start and in recorded order,
    round and round. Experiments recorded different tasks: with several, each is scaled to the median of the first.
    A row that does not say whose time it is, or that says what another has said, is refused with its line.

    `as_recorded`: nothing is drawn and nothing follows the load. Worker i takes the i-th recorded worker's seconds,
    from the first iteration on, whatever it has to do; at the end of its recording it begins again. More workers than
    were recorded are refused, and so are several experiments. With a `slope`, what it has to do beyond the recorded
    samples takes so much longer: delays + (load - base load) * slope, as in the search of Krishnan et al. 2023.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "times.csv"
    >>> _ = table.write_text("worker,iteration,seconds\n1,0,0.5\n1,1,0.7\n")
    >>> model = Replay(path=str(table))
    >>> model.compute(model.draw(Keyed(0), 0, 2, 0, None), np.array([1, 1])).shape
    (2,)
    """

    lasting = True
    kind: Literal["replay"] = "replay"
    path: str = setting(
        description="table of recorded times: .csv or .parquet with worker, iteration, seconds"
    )
    experiment: str | None = setting(None, "take this experiment of the table only; empty = all")
    samples: float = setting(1.0, "how many samples the recorded task stands for", "samples", gt=0)
    scale: float = setting(1.0, "multiply the recorded seconds by this", gt=0)
    block: int | None = setting(
        None,
        "iterations that are taken in one go; then others are drawn; empty = all of them, in order",
        ge=1,
    )
    again: int | None = setting(
        None,
        "seed by which iterations are drawn again first, as another recording may have them; empty = as recorded",
        ge=0,
    )
    together: bool = setting(
        False, "all workers begin at one recorded iteration: what held all of them up at once does so again"
    )
    placed: bool = setting(
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

    def draw(self, keyed: Keyed, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Recorded seconds, one per worker."""
        times, lengths = recorded(self.path, self.experiment, scaled=not self.as_recorded)
        if self.as_recorded:
            return self._own(times, lengths, round, workers)
        rng = keyed.rng(-1)
        repeats = -(-workers // len(times))
        row = np.concatenate([rng.permutation(len(times)) for _ in range(repeats)])[:workers]
        row = np.arange(workers) % len(times) if self.placed else row
        share = rng.random(workers)
        if self.block is not None:
            number, round = divmod(round, self.block)
            share = keyed.rng(-1, number + 1).random(workers)
        start = np.floor((share[0] if self.together else share) * lengths[row]).astype(int)
        place = (start + round) % lengths[row]
        if self.again is not None:
            place = drawn_again(times.shape[1], self.again)[place] % lengths[row]
        return times[row, place][None]

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
        """Seconds: recorded * scale * samples / recorded samples; as recorded: * scale, and by the slope more."""
        if self.as_recorded:
            more = self.slope * (np.asarray(samples) - self.samples)
            return np.asarray(np.maximum(draw[0] * self.scale + more, 0.0))
        return np.asarray(draw[0] * (self.scale / self.samples) * self.work(samples))


def resampled(rounds: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rounds drawn with replacement, in blocks of neighbours so that what is correlated stays together: (rounds,)."""
    block = max(1, round(rounds**0.5))
    starts = rng.integers(0, rounds, -(-rounds // block))
    return np.asarray((starts[:, None] + np.arange(block)).ravel()[:rounds] % rounds)


@lru_cache(maxsize=64)
def drawn_again(rounds: int, seed: int) -> NDArray[np.int64]:
    """Which of so many recorded iterations stand for them in another recording: see `resampled`."""
    return resampled(rounds, np.random.default_rng(seed))


def recorded(
    path: str, experiment: str | None = None, scaled: bool = True
) -> tuple[Array, NDArray[np.int64]]:
    """Read a table of recorded times: (seconds, lengths), one row a recorded worker, padded with NaN.

    `scaled`: several experiments are brought to one median; without it, several are refused.
    Raises `SettingError` where the table is missing or does not fit.
    """
    file = user_path(path, "delays.path")
    if not file.is_file():
        raise SettingError(f"delays.path = {path!r}: no such file; give a .csv or .parquet table")
    state = file.stat()
    return _recorded(path, experiment, scaled, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=8)
def _recorded(
    path: str, experiment: str | None, scaled: bool, stamp: tuple[int, int]
) -> tuple[Array, NDArray[np.int64]]:
    """The same, read again once the file has changed."""
    table = _table(path)
    if "experiment" not in table:
        table["experiment"] = ""
    if experiment is not None:
        known = sorted(set(table["experiment"].astype(str)))
        table = table[table["experiment"].astype(str) == experiment]
        if table.empty:
            raise SettingError(
                f"delays.experiment = {experiment!r}: not in {path!r}; it has {', '.join(known)}"
            )
    medians = table.groupby("experiment")["seconds"].median()
    if len(medians) > 1 and not scaled:
        raise SettingError(
            f"delays.as_recorded: {path!r} has {len(medians)} experiments; name one in delays.experiment:"
            f" {', '.join(map(str, medians.index[:8]))}"
        )
    if len(medians) > 1:
        idle = table["experiment"].map(medians) == 0
        why = "its median is 0 s, which cannot be scaled to the others'; name one experiment in delays.experiment"
        _refuse(path, idle, why, table["experiment"])
        table = table.assign(seconds=table["seconds"] / table["experiment"].map(medians) * medians.iloc[0])
    groups = table.sort_values("iteration").groupby(["experiment", "worker"])["seconds"]
    rows = [group.to_numpy(float) for _, group in groups]
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), np.nan)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths


def _table(path: str) -> pd.DataFrame:
    import pandas as pd

    file = Path(path).expanduser()
    try:
        table = (
            read_parquet(file).reset_index(drop=True)
            if file.suffix == ".parquet"
            else from_csv(read_table(file))
        )
    except SettingError:
        raise
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own errors are of these kinds
        reason = " ".join(str(error).split())
        raise SettingError(f"delays.path = {path!r}: cannot be read as a table ({reason})") from None
    missing = sorted({"worker", "iteration", "seconds"} - set(table.columns))
    if missing:
        raise SettingError(f"delays.path = {path!r}: lacks columns {missing}; it has {list(table.columns)}")
    if not isinstance(table.index, pd.RangeIndex):  # pandas takes what is too much for names of the rows
        raise SettingError(
            f"delays.path = {path!r}: rows have more fields than its first line; give each a name"
        )
    if table.empty:
        raise SettingError(
            f"delays.path = {path!r}: every row needs finite seconds >= 0, and there must be a row"
        )
    return _checked(path, table)


def _checked(path: str, table: pd.DataFrame) -> pd.DataFrame:
    """Refuse the first row that does not say whose time it is, or when and how long; text becomes numbers."""
    import pandas as pd

    keys = [name for name in ("experiment", "worker", "iteration") if name in table]
    for name in keys:
        _refuse(path, table[name].isna(), f"{name} is empty; say it in every row, or leave the row out")
    iteration, seconds = (pd.to_numeric(table[name], errors="coerce") for name in ("iteration", "seconds"))
    why = "iterations are numbers, as they tell the order"
    _refuse(path, ~np.isfinite(iteration), why, table["iteration"])
    why = "every row needs finite seconds >= 0"
    _refuse(path, ~(np.isfinite(seconds) & (seconds >= 0)), why, table["seconds"])
    table = table.assign(iteration=iteration, seconds=seconds)
    told = f"{', '.join(keys)} are those of a row before"
    why = f"{told}; give each recording a name of its own in a column experiment"
    _refuse(path, table.duplicated(keys), why)
    return table


def _refuse(path: str, wrong: pd.Series[bool], why: str, values: pd.Series[Any] | None = None) -> None:
    """Raise `SettingError` for the first row that is wrong."""
    if not wrong.any():
        return
    place = wrong.index[int(wrong.to_numpy().argmax())]
    value = "" if values is None else f"{values.name} = {values[place]}: "
    raise SettingError(f"delays.path = {path!r}, {_line(path, int(place))}: {value}{why}")


def _line(path: str, row: int) -> str:
    """Where a row of a table, counted from 0, stands in its file; the header and empty lines count as lines."""
    file = Path(path).expanduser()
    if file.suffix == ".parquet":
        return f"row {row + 1}"
    with TextIOWrapper(open_regular(file), newline="", encoding="utf-8") as text:
        reader = csv.reader(text)
        lines = (reader.line_num for fields in reader if len(fields) > 1 or "".join(fields).strip())
        return f"line {next(islice(lines, row + 1, None))}"

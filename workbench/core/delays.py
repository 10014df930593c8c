"""Delay models: how long a worker takes for its samples. Seconds and samples everywhere.

Draws are keyed by (seed, round, slot) and by the worker's place in the drawn vector, never by who asks
first, so all schemes that are compared meet the same stragglers.

Laws of few values (constant, heterogeneous, markov, replay) let several workers take the very same time. Who of them
comes first is drawn too, per (seed, round, worker) from a stream of its own (`DelayStream.ties`): nobody's rank counts,
and schemes that are compared on a seed share it. Where no times are equal it is never asked for.
"""

from __future__ import annotations

import csv
from abc import abstractmethod
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from workbench.base.settings import SettingError, Settings, setting
from workbench.base.types import Array
from workbench.core.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

TIES = (
    5  # random stream of who comes first at one moment; delays have stream 0, mini-batches 1, permutations 4
)


class Keyed:
    """Counter-based random numbers: a fresh generator for every (round, slot) of a seed."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self.stream = stream

    def rng(self, round: int, slot: int = 0) -> np.random.Generator:
        """Generator of that round; slot tells parts apart (-1 serves the whole run's draws)."""
        counter = np.array([0, slot + 1, self.stream, round + 1], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self.key, counter=counter))


class DelayModel(Settings):
    """Base class: `draw` gives the random numbers of a round, `compute` turns them into seconds.

    >>> sorted(delay_models())[:3]
    ['constant', 'exponential', 'heterogeneous']
    """

    memory: ClassVar[bool] = False  # does a round's draw depend on the round before?
    lasting: ClassVar[bool] = False  # are some workers slower than others for a whole run?

    @abstractmethod
    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Random numbers of a round, shape (k, workers); `before` is the last round's, for models with memory."""

    @abstractmethod
    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds to go through `samples` samples, per worker."""

    def sending(self, draw: Array, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes a worker, None for no such delay (see `TwoPart`)."""
        return None


class ShiftedExponential(DelayModel):
    """Paper 1, section III-C: samples * shift + Exp(mean samples / rate); paper 5 draws one X a worker too.

    >>> model = ShiftedExponential(shift=1e-3, rate=1e3)
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    kind: Literal["shifted_exponential"] = "shifted_exponential"
    shift: float = setting(5e-5, "least time for one sample", "s/sample", ge=0)
    rate: float = setting(2e4, "rate of the exponential part", "samples/s", gt=0)
    per: Literal["worker", "part"] = setting(
        "worker", "one draw for a worker's whole round, or an independent one for each of its parts"
    )

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """One standard exponential per worker."""
        return keyed.rng(round, slot).standard_exponential((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * (shift + E / rate)."""
        return np.asarray(samples * (self.shift + draw[0] / self.rate))


class Constant(DelayModel):
    """No randomness: samples * shift.

    >>> model = Constant(shift=0.5)
    >>> model.compute(model.draw(Keyed(0), round=0, workers=2), np.array([10, 20])).tolist()
    [5.0, 10.0]
    """

    kind: Literal["constant"] = "constant"
    shift: float = setting(5e-5, "time for one sample", "s/sample", ge=0)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Nothing is random."""
        return np.zeros((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift."""
        return np.asarray(samples * self.shift + 0.0 * draw[0])


class Exponential(DelayModel):
    """Paper 3: a worker's answer takes Exp(mean) seconds, whatever its load.

    >>> model = Exponential(mean=1e-3)
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    kind: Literal["exponential"] = "exponential"
    mean: float = setting(1e-4, "mean time of an answer", "s", gt=0)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """One standard exponential per worker."""
        return keyed.rng(round, slot).standard_exponential((1, workers))

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: mean * E, load or no load (nothing to compute costs nothing)."""
        return np.asarray(np.where(np.asarray(samples) > 0, self.mean * draw[0], 0.0))


class TwoPart(DelayModel):
    """Paper 2, section V: samples * (t1 + Exp(rate lambda1)) + share * (t2 + Exp(rate lambda2)).

    The second part is the sending of a message, `share` = its length over the model's (1/m).

    >>> model = TwoPart()
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    kind: Literal["two_part"] = "two_part"
    t1: float = setting(1.6, "least computing time of one sample", "s/sample", ge=0)
    lambda1: float = setting(0.8, "rate of the computing time's exponential part", "samples/s", gt=0)
    t2: float = setting(6.0, "least sending time of a whole gradient", "s", ge=0)
    lambda2: float = setting(0.1, "rate of the sending time's exponential part", "1/s", gt=0)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Two standard exponentials per worker: computing, sending."""
        rng = keyed.rng(round, slot)
        return rng.standard_exponential((workers, 2)).T

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * (t1 + E1 / lambda1)."""
        return np.asarray(samples * (self.t1 + draw[0] / self.lambda1))

    def sending(self, draw: Array, share: float) -> Array | None:
        """Seconds: share * (t2 + E2 / lambda2)."""
        return np.asarray(share * (self.t2 + draw[1] / self.lambda2))


class Heterogeneous(DelayModel):
    """Paper 4, section II: a worker is slow for the whole run; slow and active ones straggle per iteration.

    >>> model = Heterogeneous()
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    lasting = True
    kind: Literal["heterogeneous"] = "heterogeneous"
    shift: float = setting(5e-5, "time for one sample of a worker that does not straggle", "s/sample", ge=0)
    slow: float = setting(0.3, "probability that a worker is slow for the whole run (phat)", ge=0, le=1)
    slow_straggles: float = setting(
        0.8, "probability that a slow worker straggles in a round (p_ss)", ge=0, le=1
    )
    active_straggles: float = setting(
        0.01, "probability that an active worker straggles in a round (p_as)", ge=0, le=1
    )
    factor: float = setting(10.0, "how many times longer a straggling worker takes", ge=1)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Straggle or not (1 or 0), slow or not, per worker."""
        slow = keyed.rng(-1).random(workers) < self.slow
        chance = np.where(slow, self.slow_straggles, self.active_straggles)
        return np.stack([keyed.rng(round, slot).random(workers) < chance, slow]).astype(float)

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift, times `factor` for a straggler."""
        return np.asarray(samples * self.shift * np.where(draw[0] > 0, self.factor, 1.0))


class Pareto(DelayModel):
    """Heavy tail: samples * shift * U^(-1/shape); infinite variance for shape <= 2.

    >>> model = Pareto()
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    kind: Literal["pareto"] = "pareto"
    shift: float = setting(5e-5, "least time for one sample", "s/sample", ge=0)
    shape: float = setting(2.5, "tail exponent; the smaller the heavier, the mean is finite above 1", gt=1)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """One Pareto variate >= 1 per worker (through an exponential, so that no U is 0)."""
        return np.exp(keyed.rng(round, slot).standard_exponential((1, workers)) / self.shape)

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift * draw."""
        return np.asarray(samples * self.shift * draw[0])


class Markov(DelayModel):
    """A worker that turns slow stays slow for a while: on/off chain over the rounds, started stationary.

    >>> model = Markov()
    >>> model.compute(model.draw(Keyed(0), round=0, workers=3), np.array([10, 10, 20])).shape
    (3,)
    """

    memory: ClassVar[bool] = True
    kind: Literal["markov"] = "markov"
    shift: float = setting(5e-5, "time for one sample of a worker in its fast state", "s/sample", ge=0)
    enter: float = setting(0.02, "probability per round that a fast worker turns slow", gt=0, le=1)
    leave: float = setting(0.1, "probability per round that a slow worker recovers", gt=0, le=1)
    factor: float = setting(10.0, "how many times longer a slow worker takes", ge=1)

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """State per worker: 1 slow, 0 fast."""
        u = keyed.rng(round, slot).random((1, workers))
        if before is None:
            return (u < self.enter / (self.enter + self.leave)).astype(float)
        return np.where(before > 0, u >= self.leave, u < self.enter).astype(float)

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: samples * shift, times `factor` in the slow state."""
        return np.asarray(samples * self.shift * np.where(draw[0] > 0, self.factor, 1.0))


class Replay(DelayModel):
    r"""A recorded run: a table with columns worker, iteration, seconds (and perhaps experiment).

    A worker takes the times of one recorded worker, drawn for the run, from a drawn start and in recorded order,
    round and round. Experiments recorded different tasks: with several, each is scaled to the median of the first.
    A row that does not say whose time it is, or that says what another has said, is refused with its line.

    >>> import tempfile
    >>> table = Path(tempfile.mkdtemp()) / "times.csv"
    >>> _ = table.write_text("worker,iteration,seconds\n1,0,0.5\n1,1,0.7\n")
    >>> model = Replay(path=str(table))
    >>> model.compute(model.draw(Keyed(0), round=0, workers=2), np.array([1, 1])).shape
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
    together: bool = setting(
        False, "all workers begin at one recorded iteration: what held all of them up at once does so again"
    )

    def draw(
        self, keyed: Keyed, round: int, workers: int, slot: int = 0, before: Array | None = None
    ) -> Array:
        """Recorded seconds, one per worker."""
        times, lengths = recorded(self.path, self.experiment)
        rng = keyed.rng(-1)
        repeats = -(-workers // len(times))
        row = np.concatenate([rng.permutation(len(times)) for _ in range(repeats)])[:workers]
        share = rng.random(workers)
        start = np.floor((share[0] if self.together else share) * lengths[row]).astype(int)
        return times[row, (start + round) % lengths[row]][None]

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        """Seconds: recorded seconds * scale * samples / recorded samples."""
        return np.asarray(draw[0] * (self.scale / self.samples) * samples)


def recorded(path: str, experiment: str | None = None) -> tuple[Array, NDArray[np.int64]]:
    """Read a table of recorded times: (seconds, lengths), one row a recorded worker, padded with NaN.

    Raises `SettingError` where the table is missing or does not fit.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise SettingError(f"delays.path = {path!r}: no such file; give a .csv or .parquet table")
    state = file.stat()
    return _recorded(path, experiment, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=8)
def _recorded(path: str, experiment: str | None, stamp: tuple[int, int]) -> tuple[Array, NDArray[np.int64]]:
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
    if len(medians) > 1:
        _check_medians(path, table, medians)
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
            pd.read_parquet(file).reset_index(drop=True) if file.suffix == ".parquet" else pd.read_csv(file)
        )
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
    _refuse(
        path, ~np.isfinite(iteration), "iterations are numbers, as they tell the order", table["iteration"]
    )
    _refuse(
        path,
        ~(np.isfinite(seconds) & (seconds >= 0)),
        "every row needs finite seconds >= 0",
        table["seconds"],
    )
    table = table.assign(iteration=iteration, seconds=seconds)
    told = ", ".join(keys)
    _refuse(
        path,
        table.duplicated(keys),
        f"{told} are those of a row before; give each recording a name of its own in a column experiment",
    )
    return table


def _check_medians(path: str, table: pd.DataFrame, medians: pd.Series[float]) -> None:
    """Experiments are scaled to one median, which none can be whose own is 0."""
    idle = table["experiment"].map(medians) == 0
    _refuse(
        path,
        idle,
        "its median is 0 s, which cannot be scaled to the others'; name one experiment in delays.experiment",
        table["experiment"],
    )


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
    with file.open(newline="", encoding="utf-8") as text:
        reader = csv.reader(text)
        lines = (reader.line_num for fields in reader if len(fields) > 1 or "".join(fields).strip())
        return f"line {next(islice(lines, row + 1, None))}"


_Model = ShiftedExponential | Constant | Exponential | TwoPart | Heterogeneous | Pareto | Markov | Replay
Delays = Annotated[_Model, Field(discriminator="kind")]


def delay_models() -> dict[str, type[DelayModel]]:
    """All delay models by their kind.

    >>> sorted(delay_models())[:2]
    ['constant', 'exponential']
    """
    return {cls.model_fields["kind"].default: cls for cls in get_args(_Model)}


class DelayStream:
    """The draws of one run: which worker takes how long in which round."""

    def __init__(self, model: DelayModel, seed: int, workers: int, keep: int = 4) -> None:
        self.model, self.workers, self.keep = model, workers, keep
        self.keyed, self._tie_keys = Keyed(seed), Keyed(seed, TIES)
        self.parts_apart = getattr(model, "per", "worker") == "part"
        self._draws: dict[tuple[int, int], Array] = {}
        self._ties: dict[int, Array] = {}

    def ties(self, round: int) -> Array:
        """Who of several comes first at one moment of a round: the lower number, (workers,), uniform in [0, 1).

        >>> three, five = (DelayStream(Constant(), seed=1, workers=n).ties(round=7) for n in (3, 5))
        >>> bool((three == five[:3]).all())  # a worker's number is its own
        True
        """
        if round not in self._ties:
            if len(self._ties) > self.keep:
                self._ties.clear()
            self._ties[round] = self._tie_keys.rng(round).random(self.workers)
        return self._ties[round]

    def draw(self, round: int, slot: int = 0) -> Array:
        """Random numbers of a round, shape (k, workers); remembered for a few rounds."""
        if (round, slot) not in self._draws:
            before = self._before(round)
            self._draws[round, slot] = self.model.draw(self.keyed, round, self.workers, slot, before)
            for key in [k for k in self._draws if k[0] < round - self.keep]:
                del self._draws[key]
        return self._draws[round, slot]

    def _before(self, round: int) -> Array | None:
        if not self.model.memory or round == 0:
            return None
        start = max((r for r, _ in self._draws if r < round), default=-1) + 1
        for r in range(start, round):
            self.draw(r)
        return self._draws[round - 1, 0]

    def whole(self, round: int, loads: NDArray[Any], plan: Plan | None = None) -> Array:
        """Seconds that every worker takes for its whole load of a round; both (workers,).

        The plan is needed where every part has a draw of its own.
        """
        if not self.parts_apart or plan is None:
            return self.model.compute(self.draw(round), loads)
        return self.progress(round, plan.portions)[:, -1]

    def progress(self, round: int, portions: NDArray[Any]) -> Array:
        """Seconds after which every worker has gone through its first, second, ... portion of samples.

        Both (workers, portions). With one draw per worker the time depends on the samples done so far only.
        """
        if not self.parts_apart:
            draw = self.draw(round)
            done = [self.model.compute(draw, samples) for samples in np.cumsum(portions, axis=1).T]
            return np.stack(done, axis=1)
        each = [
            self.model.compute(self.draw(round, slot), samples) for slot, samples in enumerate(portions.T)
        ]
        return np.cumsum(np.stack(each, axis=1), axis=1)

    def piece(self, round: int, worker: int, slot: int, samples: int) -> float:
        """Seconds that a worker (counted from 0) takes for its `slot`-th part."""
        draw = self.draw(round, slot if self.parts_apart else 0)[:, worker : worker + 1]
        return float(self.model.compute(draw, np.array([samples]))[0])

    def sending(self, round: int, share: float) -> Array | None:
        """Seconds that sending `share` of a model takes each worker, or None."""
        return self.model.sending(self.draw(round), share)

"""Measurements of a cluster: hosts, recorded times, fits to them, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.analysis.planning.delay_fits import REDRAWS, FittedModel, distance, slow_for_good
from workbench.analysis.planning.linkfit import PortFit, Work
from workbench.core.base.files import atomic_write
from workbench.core.base.older import renamed_profile
from workbench.core.base.reading import check_json_size
from workbench.core.base.settings import SettingError, Settings, check_ending, check_kind, path_of, setting
from workbench.core.base.text import dump, read_text, read_yaml
from workbench.core.base.trust import limited
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays import Delays, Heterogeneous, Replay, resampled
from workbench.core.contract.links import BYTES_PER_FLOAT
from workbench.core.problems.data.cache import stored

Row = tuple[float, ...]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
FORMAT_VERSION = 1
QUIET_LAGS = 5  # number of successive small autocorrelations after which rounds count as independent


def short(row: Array | Sequence[float]) -> Row:
    """Return the values rounded to five digits: clocks are not more precise, and files stay small."""
    return tuple(float(f"{x:.5g}") for x in row)


def quantiles_of(values: Array) -> Row:
    """Return the `QUANTILES` of some values."""
    return short(np.quantile(values, QUANTILES))


class Host(Settings):
    """One machine of a measured cluster."""

    name: str = setting(..., "name, as reported by its ranks")
    ranks: int = setting(..., "number of workers on this host", ge=0)
    who: tuple[int, ...] | None = setting(
        None, "ranks of its workers, from 1; empty = the ranks that follow those of the previous host"
    )
    cores: int | None = setting(None, "number of cores, if known", ge=1)
    free: float | None = setting(None, "free memory before the ranks were started, if known", "GiB", ge=0)

    @property
    def crowded(self) -> bool:
        """Whether its workers have to share cores."""
        return self.cores is not None and self.ranks > self.cores


class Recorded(Settings):
    """Measurement of one load and model size: times of every worker in every round, and of messages."""

    samples: float = setting(..., "number of samples of a worker's task", gt=0)
    floats: int = setting(..., "number of parameters of the model", ge=1)
    seconds: tuple[Row, ...] = setting(
        ...,
        "time from the end of the previous round to a worker's answer, without the time to send the model, as on a"
        " dedicated core; by round, then by worker",
        "s",
    )
    busy: float = setting(0.0, "share of a core that a worker uses while it works", ge=0)
    computing: tuple[Row, ...] = setting(..., "quantiles of the computing time alone, by worker", "s")
    up: Row = setting(..., "quantiles of the time of answers to the master, all workers", "s")
    down: Row = setting(..., "quantiles of the time of models to the workers, all workers", "s")
    rounds: Row = setting(..., "duration of each round", "s")

    @cached_property
    def times(self) -> Array:
        """Array of `seconds`, (rounds, workers)."""
        return np.array(self.seconds, dtype=float)

    @property
    def typical(self) -> float:
        """Median seconds of a worker's task."""
        return float(np.median(self.times))

    @property
    def bytes(self) -> int:
        """Bytes of a message."""
        return BYTES_PER_FLOAT * self.floats


class Fitted(Settings):
    """Fitted parameters for forecasts.

    A profile has one set from all measured rounds, and others from resampled rounds.
    """

    port: PortFit
    work: Work
    typical: Row = setting(
        ..., "typical time of a worker's task, without its sampling error, by measured load", "s"
    )
    decode_rate: float | None = setting(
        None, "speed of decoding; empty = too fast to measure", "floats/s", gt=0
    )
    delay_models: tuple[Delays | None, ...] = setting(
        ...,
        "delay models of a task's time divided by its median, by load; empty = none fits, recorded times are replayed",
    )
    drawn: int | None = setting(None, "seed of the resampling of recorded rounds that are replayed", ge=0)


@lru_cache(maxsize=16)
def pooled(seconds: Sequence[Sequence[Row]], typical: Row) -> tuple[Array, ...]:
    """Return the times of each load relative to its typical time, (rounds, workers), with those of similar loads.

    Loads are similar if the distance of their distributions is not above that of bootstrap samples of both together.
    """
    each = [np.array(one) / usual for one, usual in zip(seconds, typical, strict=True)]
    return tuple(np.concatenate([a, *(b for b in each if b is not a and _similar(a, b))]) for a in each)


@lru_cache(maxsize=16)
def _table(seconds: Sequence[Sequence[Row]], typical: Row) -> bytes:
    rows = ["recording,worker,step,seconds\n"]
    for place, times in enumerate(pooled(seconds, typical)):
        rows += [f"{place},{i},{r},{x:.6g}\n" for (r, i), x in np.ndenumerate(times)]
    return "".join(rows).encode()


def _similar(a: Array, b: Array) -> bool:
    """Return whether two loads' relative times may have the same distribution."""
    rng, block = np.random.default_rng(0), max(block_rounds(a), block_rounds(b))
    both, n = np.concatenate([a, b]), len(a)
    again = (both[resampled(len(both), rng, block)] for _ in range(REDRAWS))
    return distance(a, b) <= max(distance(each[:n], each[n:]) for each in again)


def block_rounds(times: Array) -> int:
    """Return the number of rounds in a block of a bootstrap sample, from the autocorrelation of the rounds.

    It is that of Politis and White (Econometric Reviews 23, 2004), with the correction of Patton et al. (2009), but at
    least the root of the number of rounds, and at most a third of them.
    """
    x = np.log(times).mean(axis=1)
    n, x = len(x), x - x.mean()
    covariance = np.array([x[: n - k] @ x[k:] / n for k in range(n)])
    small = np.abs(covariance) <= 2 * np.sqrt(np.log10(n) / n) * covariance[0]
    quiet = [k for k in range(1, n - QUIET_LAGS) if small[k : k + QUIET_LAGS].all()]
    lags = np.arange(1, min(2 * (quiet[0] if quiet else n), n))
    weights = np.clip(2 * (1 - lags / (len(lags) + 1)), 0, 1) * covariance[lags]
    density, slope = covariance[0] + 2 * weights.sum(), 2 * weights @ lags
    best = (1.5 * n) ** (1 / 3) * abs(slope / density) ** (2 / 3) if density > 0 else 0.0
    return max(round(n**0.5), min(round(best), -(-n // 3)))


class Measurements(Settings):
    """Measured cluster. `fitted`: the delay models of computing and of messages that forecasts use."""

    format: int = setting(
        FORMAT_VERSION, "version of this file's format", ge=FORMAT_VERSION, le=FORMAT_VERSION
    )
    cluster: str = setting(..., "name of the cluster")
    workers: int = setting(..., "number of workers that were measured at the same time", ge=1)
    hosts: tuple[Host, ...] = setting(..., "hosts on which the workers ran")
    one_clock: bool = setting(
        ..., "whether all hosts share a clock; if not, times to and from the master cannot be separated"
    )
    date: str = setting(..., "date, in UTC")
    seed: int = setting(0, "seed of the resampling", ge=0)
    versions: dict[str, str] = setting({}, "versions of Python and of the libraries")
    problem: str = setting(..., "problem that the workers computed")
    recorded: tuple[Recorded, ...] = setting(..., "measurements, by load and model size", min_length=1)
    delay_models: tuple[tuple[FittedModel, ...], ...] = setting(
        ..., "every delay model fitted to each load's times, the best first"
    )
    fitted: Fitted
    resampled: tuple[Fitted, ...] = setting((), "the same fits to resampled rounds")
    same_machines: bool = setting(False, "whether forecasts are for the measured workers, each in its place")

    @model_validator(mode="before")
    @classmethod
    def _older(cls, fields: Any) -> Any:
        """Convert the fields of files of earlier versions."""
        return renamed_profile(fields) if isinstance(fields, dict) else fields

    @model_validator(mode="after")
    def _each_worker_once(self) -> Self:
        who = sorted(rank for host in self.hosts for rank in host.who or ())
        if who and who != list(range(1, self.workers + 1)):
            raise SettingError(f"hosts.who: {there_are('worker', 1, self.workers)}; name each one once")
        return self

    def nearest(self, samples: float, floats: int) -> int:
        """Return the index of the measured load and model size that is closest to the given ones."""
        return int(np.argmin(self._distances(samples, floats)))

    def _distances(self, samples: float, floats: int) -> Array:
        """Return the distance of each measured task from the given one: the sum of squared logarithms of the ratios."""
        there = np.log([[each.samples, each.floats] for each in self.recorded])
        return np.asarray(np.sum((there - np.log([samples, floats])) ** 2, axis=1))

    def replay(self, place: int, per_sample: float | None = None, drawn: int | None = None) -> Replay:
        """Return a replay of one load's times, scaled to a median of `per_sample` seconds (default: as recorded).

        All workers begin at the same recorded round, so a delay of all workers at once is replayed for all at once.
        `drawn`: seed of the resampling of rounds. Each run then takes other blocks of rounds, like a fresh run.
        """
        usual = self.fitted.typical[place] / self.recorded[place].samples
        block = None if drawn is None else self.blocks[place]
        return Replay(
            path=str(self.table),
            experiment=str(place),
            samples=1.0,
            scale=usual if per_sample is None else per_sample,
            block=block,
            resample_seed=drawn,
            resample_block=block,
            common_start=True,
            same_workers=self.same_machines,
        )

    @property
    def real(self) -> bool:
        """Whether the cluster was measured on real machines."""
        return any(host.cores is not None for host in self.hosts)

    def host_of_each(self) -> NDArray[np.int64]:
        """Return the index in `hosts` of each worker's host, (workers,)."""
        found = np.repeat(np.arange(len(self.hosts)), [host.ranks for host in self.hosts])
        for place, host in enumerate(self.hosts):
            found[np.array(host.who or (), dtype=int) - 1] = place
        return found

    def slow_for_good(self) -> Array | None:
        """Return the probability that each worker is permanently slow, (workers,), or None if the model has none."""
        mixed = [isinstance(delay_model, Heterogeneous) for delay_model in self.fitted.delay_models]
        if not any(mixed):
            return None
        there = [each.times / each.typical for each, is_ in zip(self.recorded, mixed, strict=True) if is_]
        return slow_for_good(np.concatenate(there))

    @property
    def main(self) -> int:
        """Index of the longest measured task, which represents all tasks in notes, figures and `misfit`."""
        return int(np.argmax([each.typical for each in self.recorded]))

    def delay_model(self, place: int) -> FittedModel | None:
        """Return the delay model of one load's times, None if recorded times are replayed."""
        best = self.delay_models[place][0]
        return best if best.fits and self.fitted.delay_models[place] is not None else None

    def notes(self) -> list[str]:
        """Return notes for readers: shared cores, delay models that do not fit, clocks that differ."""
        found = [
            f"{host.ranks} workers on {host.cores} cores of {host.name}: their times include waiting for a core and"
            " are valid for this many workers only, and late workers continue to use cores"
            for host in self.hosts
            if host.crowded
        ]
        best, rounds = self.delay_models[self.main][0], self.relative[self.main]
        if self.delay_model(self.main) is None:
            why = "it fits, but none fits most other loads" if best.fits else best.complaint
            found.append(
                f"no delay model fits the workers' times (of {best.delays.kind.replace('_', ' ')}, the nearest,"
                f" {why}): recorded times are replayed, {len(rounds)} rounds in about"
                f" {len(rounds) // self.blocks[self.main]} independent blocks; measure more for narrower intervals"
            )
        clocks = "the hosts' clocks differ: times up and down are half of the round trip each"
        return found if self.one_clock else [*found, clocks]

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Number of rounds in a block of a bootstrap sample of `relative`, by load."""
        return tuple(map(block_rounds, self.relative))

    @cached_property
    def relative(self) -> tuple[Array, ...]:
        """Times of each load, and of the loads with the same distribution, relative to the typical time."""
        return pooled(tuple(each.seconds for each in self.recorded), self.fitted.typical)

    @cached_property
    def table(self) -> Path:
        """Return the file of the recorded times in `relative`, for `Replay`. Write it at the first use."""
        rows = _table(tuple(each.seconds for each in self.recorded), self.fitted.typical)
        return stored("profiles", rows, ".csv")

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> Path:
        """Write to a .json, .yaml or .yml file, atomically. Raise `SettingError` for another name."""
        file = path_of(path, "path")
        check_ending(file, (".json", ".yaml", ".yml"), "path")
        if not file.parent.is_dir():
            raise SettingError(
                f"path = {str(path)!r}: there is no folder {str(file.parent)!r}; make it first"
            )
        if file.suffix == ".json":
            text = self.model_dump_json(indent=1)
        else:
            text = dump(self.model_dump(mode="json"), default_flow_style=None, width=110)
        with atomic_write(file, "w") as out:
            out.write(text)
        return file

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Read a profile. Raise `SettingError` that names file, field and value.

        `trust`: run code that the file names, as in "mine.py:Naps". Without it, such a file is refused.
        """
        check_kind("trust", trust, bool)
        file = path_of(path, "path")
        if file.is_dir() or not file.exists():
            raise SettingError(f"{path}: no such file; `workbench profile NAME -o {path}` measures a cluster")
        text = read_text(file) if file.suffix == ".json" else None  # YAML takes a hundred times as long
        fields = read_yaml(file, "kind: local") if text is None else {}
        check_json_size(text or "", file)
        with nullcontext() if trust else limited() as now:
            try:
                return cls.model_validate(fields) if text is None else cls.model_validate_json(text)
            except SettingError as error:
                more = (
                    f"; wb.ClusterProfile.load({str(path)!r}, trust=True) runs it"
                    if now is not None and now.names
                    else ""
                )
                raise SettingError(f"{path}: {error}{more}") from None

"""Folders of `wb.record`: phases of the steps of all ranks of a training job. The job may still run."""

import zipfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from workbench.analysis.recorder.steps import (
    EXCHANGE,
    FORMAT,
    FORWARD_EXCHANGE,
    PHASES,
    PROBE_BYTES,
    ROW,
    WORK,
    Place,
    StepRows,
    places,
)
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import parse_json, read_npz
from workbench.core.base.settings import SettingError
from workbench.core.contract.recorded import BOTH_WAYS_PHASE, LAYER_PREFIX, PROBE_PHASE

EXCHANGES = (EXCHANGE, FORWARD_EXCHANGE)
MAX_ROWS = 2_000_000  # max number of rows that are read; of longer recordings, the newest steps are used
MAX_SKEW_S = 60.0  # max difference of the hosts' clocks, s
FIRST_STEPS = 1  # number of first steps, which include the time before the loop


class _Rank(NamedTuple):
    """Steps of one rank, and the description in its file."""

    rank: int
    steps: StepRows
    about: Mapping[str, Any]


def tells(path: Path) -> bool:
    """Return whether the path is a folder of recorded steps."""
    return path.is_dir() and next(places(path), None) is not None


def read(path: Path) -> pd.DataFrame:
    """Return the seconds of every step by phase, of the newest attempt of the job.

    Phases are "exchange", that in the forward pass ("exchange: forward"), and those of a rank's own work: "compute:
    data", "compute: forward" and so on. "probe" and "probe: both ways" are times of a message to the next rank, in
    steps in which links were probed. The result's `attrs` contain the left-out steps, and the smallest number of cores
    that the ranks of a host use together. `messages` is how many such messages pass each link in a step, 0 if a rank
    does not know its gradients.
    """
    if not (known := sorted(places(path)) if path.is_dir() else []):
        raise SettingError(f"path = {str(path)!r}: holds no recorded steps; wb.record writes them")
    by_rank = {rank: [*some] for rank, some in groupby(known, key=lambda place: place.rank)}
    most = MAX_ROWS // (len(by_rank) * len(PHASES))
    every = [_rank(path, rank, _newest(some), most) for rank, some in by_rank.items()]
    gone = _gone(path, by_rank, every)
    ranks = [each for each in every if each.rank not in gone]
    first = max(max(int(each.steps["step"][0]) for each in ranks), FIRST_STEPS)
    frame = pd.concat([_rows(each, first) for each in ranks], ignore_index=True)
    # ranks do not wait in these phases, or they were not recorded
    absent = [phase for phase in EXCHANGES if not any(each.steps[phase].any() for each in ranks)]
    frame = frame[~frame["phase"].isin(absent)].reset_index(drop=True)
    if frame.empty:
        raise SettingError(f"path = {str(path)!r}: no rank has a second step yet; wait for some steps")
    ended = [f"rank {rank}, which ended before the newest attempt" for rank in gone]
    skipped = ["earlier attempts"] * any(place.attempt for place in known) + [f"steps before {first}", *ended]
    gradient_bytes = min(each.about["gradient_bytes"] for each in ranks)
    # in a ring, each of n ranks sends 2 (n - 1) / n of its data (Patarasuk and Yuan, J. Parallel Distrib. Comput. 2009)
    frame.attrs |= {
        "left_out": " and ".join(skipped),
        "cores": str(_cores(ranks)),
        "messages": str(2 * (1 - 1 / len(ranks)) * gradient_bytes / PROBE_BYTES),
        **{name: str(np.median([each.about[name] for each in ranks])) for name in ("overlap", "last")},
    }
    return frame


def _cores(ranks: list[_Rank]) -> int:
    """Return the number of cores of the host with the fewest. Each rank may be bound to some of its host's cores."""
    hosts = {each.about["host"]: set[int]() for each in ranks}
    for each in ranks:
        hosts[each.about["host"]].update(each.about["cpus"])
    return min(max(len(hosts[each.about["host"]]), each.about["cores"]) for each in ranks)


def _newest(some: list[Place]) -> list[Place]:
    return [place for place in some if place.attempt == max(each.attempt for each in some)]


def _gone(path: Path, by_rank: Mapping[int, list[Place]], every: list[_Rank]) -> list[int]:
    """Return the ranks that did not begin in the newest attempt: they ended before it, or began with an earlier one.

    The clocks of hosts may differ by `MAX_SKEW_S`. If a rank ended about when the newest attempt began, its beginning
    is compared with the attempts of the rank that has most.
    """

    def begun(place: Place) -> float:
        return float(_segment(path / place.name)[0]["ended"][0])

    newest = max(float(each.steps["ended"][0]) for each in every)
    most = max(by_rank.values(), key=lambda some: some[-1].attempt)
    attempts = [begun(next(each)) for _, each in groupby(most, key=lambda place: place.attempt)]

    def earlier(rank: int) -> bool:
        first = begun(_newest(by_rank[rank])[0])
        return min(attempts, key=lambda at: abs(at - first)) < attempts[-1]

    past = {each.rank: float(each.steps["ended"][-1]) - newest for each in every}
    near = MAX_SKEW_S if len(attempts) > 1 else -MAX_SKEW_S
    return [rank for rank, s in past.items() if s < -MAX_SKEW_S or (s <= near and earlier(rank))]


def _rank(path: Path, rank: int, some: list[Place], most: int) -> _Rank:
    """Read the newest segments of a rank, until they have at least `most` steps."""
    parts: list[StepRows] = []
    for place in sorted(some, reverse=True):
        steps, about = _segment(path / place.name)
        parts.insert(0, steps)
        if sum(map(len, parts)) >= most:
            break
    return _Rank(rank, np.concatenate(parts)[-most:], about)


def _segment(file: Path) -> tuple[StepRows, Mapping[str, Any]]:
    """Read one file. Raise `SettingError` with its name, and with the step and the field if a value is wrong."""
    try:
        arrays = read_npz(file, ("steps", "about"))
        about, steps = parse_json(str(arrays["about"])), arrays["steps"]
        form = int(about["format"])
        whole = {"host": str(about["host"]), "cores": max(int(about["cores"] or 1), 1)}
        whole["cpus"] = {*map(int, about.get("cpus", ()))}  # older files have none
        probes = about.get("probes") or about.get("links", ())  # older files have no times both ways
        whole["probes"] = [(int(step), float(took), float([took, *both][-1])) for step, took, *both in probes]
        known = {"gradient_bytes": 0.0, "overlap": 0.0, "last": 1.0} | about
        whole |= {name: max(float(known[name]), 0.0) for name in ("gradient_bytes", "overlap", "last")}
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise SettingError(f"path = {str(file)!r}: cannot be read as recorded steps ({error})") from None
    if form > FORMAT:
        raise SettingError(f"path = {str(file)!r}: format = {form}: this version reads {FORMAT}; update it")
    if steps.dtype != ROW or steps.ndim != 1 or not len(steps):
        raise SettingError(f"path = {str(file)!r}: steps has fields {steps.dtype.names}; needs {ROW.names}")
    for name in ("ended", *PHASES, FORWARD_EXCHANGE):
        wrong = np.flatnonzero(~(np.isfinite(steps[name]) & (steps[name] >= 0)))
        if len(wrong):
            step, value = steps["step"][wrong[0]], steps[name][wrong[0]]
            why = "is not a time; leave the file out"
            raise SettingError(f"path = {str(file)!r}, step {step}: {name} = {value}: {why}")
    return steps, whole


def _rows(rank: _Rank, first: int) -> pd.DataFrame:
    steps = rank.steps[rank.steps["step"] >= first]
    fixed: dict[str, Any] = {"worker": rank.rank, "host": rank.about["host"], "step": steps["step"]}
    fixed |= {name: np.where(steps[name] > 0, steps[name], np.nan) for name in WORK}
    parts = []
    for phase in (*PHASES, FORWARD_EXCHANGE):
        name, spent = (phase, np.nan) if phase in EXCHANGES else (LAYER_PREFIX + phase, 0.0)
        values = {**fixed, "phase": name, "seconds": steps[phase], "processor_seconds": spent}
        parts.append(pd.DataFrame(values))
    parts[0]["processor_seconds"] = steps["processor"]  # processor time of the whole step
    ways = [PROBE_PHASE, BOTH_WAYS_PHASE]
    probes = pd.DataFrame(rank.about["probes"], columns=["step", *ways]).drop_duplicates("step")
    probes = probes[(probes["step"] >= first) & (probes[PROBE_PHASE] > 0)]
    if len(probes):
        times = probes.melt("step", ways, var_name="phase", value_name="seconds")
        parts.append(times.assign(worker=rank.rank, host=rank.about["host"]))
    return pd.concat(parts)


SOURCE = Source(name="recorder", title="a folder of wb.record", tells=tells, read=read)

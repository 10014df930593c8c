"""TraceML's final_summary.json: the mean times of every rank's steps, by phase.

Its schema is 1.7 or newer. Some names of older schemas are read, too. The file has no single steps, so the result is
one step of averages, without a significance test.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from workbench.analysis.recordings.averages import AVERAGED
from workbench.analysis.recordings.fields import Fields
from workbench.analysis.recordings.recording import LAYER_PREFIX
from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import head_of, read_bytes

HEAD_BYTES = 2**16  # bytes of a file that are searched for the keys of a summary
SECONDS_PER_MILLISECOND = 1e-3
FILE = "final_summary.json"
# TraceML's metric -> phase of a rank's own work; the backward pass also contains the exchange of gradients
OWN_PHASES = {
    "input": ("input_wait_ms", "dataloader_ms"),
    "transfer to the device": ("h2d_ms",),
    "forward": ("forward_ms",),
    "optimiser": ("optimizer_ms", "optimizer_step_ms"),
    "the rest": ("residual_ms", "wait_ms"),
}
BACKWARD = ("backward_ms",)
WHOLE = ("step_time_ms", "total_step_ms")
HIDDEN = "a rank that is slow in its backward pass, as the others wait for it in theirs"


def tells(path: Path) -> bool:
    """Return whether the path is TraceML's summary, or the folder of a run with one."""
    file = _file(path)
    head = head_of(file, HEAD_BYTES) if file.suffix.lower() == ".json" else b""
    return b'"schema_version"' in head and (b'"primary_diagnosis"' in head or b'"step_time"' in head)


def _file(path: Path) -> Path:
    return path / FILE if path.is_dir() else path


def read(path: Path) -> pd.DataFrame:
    """Return the mean seconds of every rank's phases, as one step.

    Backward passes of DDP end together, so the time beyond the shortest one counts as exchange. Raises `SettingError`
    with the field that is wrong. `attrs` has the number of averaged steps, and a note on missing measurements.
    """
    summary = _Summary(_file(path))
    section = summary.object(summary.fields.get("step_time"), "step_time")
    groups = summary.object(section.get("groups"), "step_time.groups")
    rows = summary.object(groups.get("rows"), "step_time.groups.rows")
    if not rows:
        raise summary.wrong("step_time.groups.rows", rows, "has no rank; was a step traced?")
    metrics = {key: summary.row(key, row) for key, row in rows.items()}
    backward = [
        each for _, _, found in metrics.values() if (each := summary.first(found, BACKWARD)) is not None
    ]
    found: list[tuple[int, str, int, str, float]] = []
    for rank, host, times in metrics.values():
        phases = {f"{LAYER_PREFIX}{name}": summary.first(times, keys) for name, keys in OWN_PHASES.items()}
        if (mine := summary.first(times, BACKWARD)) is not None:
            phases |= {f"{LAYER_PREFIX}backward": min(backward), "exchange": mine - min(backward)}
        if all(each is None for each in phases.values()):
            phases = {"compute": summary.first(times, WHOLE)}
        known = {phase: ms * SECONDS_PER_MILLISECOND for phase, ms in phases.items() if ms is not None}
        found += [(rank, host, 0, *each) for each in known.items()]
    if not found:
        raise summary.wrong("step_time.groups.rows", None, "has no time that was measured")
    frame = pd.DataFrame(found, columns=["worker", "host", "step", "phase", "seconds"])
    frame.attrs[AVERAGED] = summary.steps(section)
    frame.attrs["left_out"] = HIDDEN
    return frame if (frame["host"] != "").all() else frame.assign(host="")


class _Summary(Fields):
    """Checks of the fields of one summary."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.fields = self.object(self.json(read_bytes(file)), "the summary")

    def row(self, key: str, row: Any) -> tuple[int, str, dict[str, float]]:
        """Return rank, host and the measured milliseconds of one rank."""
        where = f"step_time.groups.rows[{key}]"
        identity = self.object(self.object(row, where).get("identity"), f"{where}.identity")
        rank = identity.get("global_rank")
        rank = self.whole(f"{where}.identity.global_rank", key if rank is None else rank)
        times: dict[str, float] = {}
        for name, value in self.object(row.get("metrics"), f"{where}.metrics").items():
            if not name.endswith("_ms") or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise self.wrong(f"{where}.metrics.{name}", value, "is not a time in milliseconds from 0")
            times[name] = float(value)
        host = identity.get("hostname")
        return rank, host if isinstance(host, str) else "", times

    @staticmethod
    def first(times: Mapping[str, float], keys: tuple[str, ...]) -> float | None:
        """Return the metric under the first of several names, or None if it was not measured."""
        return next((times[key] for key in keys if key in times), None)

    def steps(self, section: Mapping[str, Any]) -> str:
        """Return the number of averaged steps as text; "" if it is unknown."""
        overall = section.get("global")
        window = overall.get("window") if isinstance(overall, dict) else None
        steps = window.get("steps_analyzed") if isinstance(window, dict) else None
        return str(steps) if isinstance(steps, int) else ""


SOURCE = Source(name="traceml", title="TraceML's summary", tells=tells, read=read)

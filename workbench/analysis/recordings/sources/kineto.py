"""PyTorch's profiler (Kineto): one JSON file a rank, with the steps and everything that ran in them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.reading import parse_json, read_bytes, read_gzip
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.recorded import LAYER

_STEP = re.compile(r"ProfilerStep#(\d+)")
_LAYER = re.compile(r"nn\.Module: (.+)")  # where it was asked to look at modules (with_stack=True)
_EXCHANGE = re.compile(r"nccl|gloo|c10d::|all_?reduce|broadcast|all_?gather|reduce_?scatter", re.IGNORECASE)


def tells(path: Path) -> bool:
    """A file of events, or a folder of such files."""
    if path.is_dir():
        return any(path.glob("*.pt.trace.json*"))
    return path.name.endswith((".json", ".json.gz")) and "traceEvents" in _read(path)


def read(path: Path) -> pd.DataFrame:
    """Seconds of every profiled step, by phase: exchange (collective operations) and compute (the rest).

    Of what modules take on their way forward each has a phase of its own, "compute: NAME", without those within it.
    Nobody tells what they take on the way back.
    """
    files = sorted(path.glob("*.pt.trace.json*")) if path.is_dir() else [path]
    rows = [row for number, file in enumerate(files) for row in _of_rank(file, number)]
    return pd.DataFrame(rows, columns=["worker", "host", "step", "phase", "seconds"])


def _of_rank(file: Path, number: int) -> list[tuple[Any, ...]]:
    words = _read(file)
    events = [e for e in words["traceEvents"] if e.get("ph") == "X"]
    rank = int(words.get("distributedInfo", {}).get("rank", number))
    host = re.split(r"[_.]", file.name)[0]
    exchange = _union([_span(e) for e in events if _EXCHANGE.search(e["name"])])
    modules = [(*_span(e), found[1]) for e in events if (found := _LAYER.fullmatch(e["name"]))]
    layers = _alone(modules, exchange)
    rows: list[tuple[Any, ...]] = []
    for event in events:
        if (step := _STEP.fullmatch(event["name"])) and event.get("cat") != "gpu_user_annotation":
            start, end = _span(event)
            took = {"exchange": _within(exchange, start, end)}
            for at, name, seconds in layers:
                if start <= at < end:
                    took[LAYER + name] = took.get(LAYER + name, 0.0) + seconds
            took["compute"] = max((end - start) * 1e-6 - sum(took.values()), 0.0)
            rows += [(rank, host, int(step[1]), phase, seconds) for phase, seconds in took.items()]
    if not rows:
        why = "has no ProfilerStep; give profile() a schedule, and call prof.step() after each"
        raise SettingError(f"path = {str(file)!r}: {why}")
    return rows


def _span(event: dict[str, Any]) -> tuple[float, float]:
    return event["ts"], event["ts"] + event["dur"]


def _within(spans: Array, start: float, end: float) -> float:
    """Seconds of some spans that lie between two moments."""
    inside = np.clip(spans, start, end)
    return float((inside[:, 1] - inside[:, 0]).sum()) * 1e-6


def _alone(modules: list[tuple[float, float, str]], exchange: Array) -> list[tuple[float, str, float]]:
    """When each module began, its name, and its seconds without exchange and the modules within it."""
    found: list[list[Any]] = []
    open_: list[tuple[float, int]] = []  # when it ends, place in `found`
    for start, end, name in sorted(modules, key=lambda each: (each[0], -each[1])):
        while open_ and open_[-1][0] <= start:
            open_.pop()
        own = (end - start) * 1e-6 - _within(exchange, start, end)
        if open_:
            found[open_[-1][1]][2] -= own
        open_.append((end, len(found)))
        found.append([start, name, own])
    return [(at, name, max(seconds, 0.0)) for at, name, seconds in found]


def _union(spans: list[tuple[float, float]]) -> Array:
    """Spans that do not overlap, over the same time: (spans, 2)."""
    joined: list[list[float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return np.array(joined, dtype=float).reshape(-1, 2)


def _read(file: Path) -> dict[str, Any]:
    try:
        words = parse_json(read_gzip(file) if file.suffix == ".gz" else read_bytes(file), file)
    except SettingError:
        raise
    except (ValueError, OSError, EOFError):
        return {}
    return words if isinstance(words, dict) else {}


SOURCE = Source(name="kineto", title="PyTorch's profiler", tells=tells, read=read)

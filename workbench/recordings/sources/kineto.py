"""PyTorch's profiler (Kineto): one JSON file a rank, with the steps and everything that ran in them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench.base.settings import SettingError
from workbench.recordings.source import Source

_STEP = re.compile(r"ProfilerStep#(\d+)")
_EXCHANGE = re.compile(r"nccl|gloo|c10d::|all_?reduce|broadcast|all_?gather|reduce_?scatter", re.IGNORECASE)


def tells(path: Path) -> bool:
    """A file of events, or a folder of such files."""
    if path.is_dir():
        return any(path.glob("*.pt.trace.json*"))
    return path.name.endswith((".json", ".json.gz")) and "traceEvents" in _read(path)


def read(path: Path) -> pd.DataFrame:
    """Seconds of every profiled step, by phase: exchange (collective operations) and compute (the rest)."""
    files = sorted(path.glob("*.pt.trace.json*")) if path.is_dir() else [path]
    rows = [row for number, file in enumerate(files) for row in _of_rank(file, number)]
    return pd.DataFrame(rows, columns=["worker", "host", "step", "phase", "seconds"])


def _of_rank(file: Path, number: int) -> list[tuple[Any, ...]]:
    words = _read(file)
    events = [e for e in words["traceEvents"] if e.get("ph") == "X"]
    rank = int(words.get("distributedInfo", {}).get("rank", number))
    host = re.split(r"[_.]", file.name)[0]
    exchange = _union([(e["ts"], e["ts"] + e["dur"]) for e in events if _EXCHANGE.search(e["name"])])
    rows: list[tuple[Any, ...]] = []
    for event in events:
        if (step := _STEP.fullmatch(event["name"])) and event.get("cat") != "gpu_user_annotation":
            start, end = event["ts"], event["ts"] + event["dur"]
            inside = np.clip(exchange, start, end)
            shared = float((inside[:, 1] - inside[:, 0]).sum()) * 1e-6
            rows.append((rank, host, int(step[1]), "exchange", shared))
            rows.append((rank, host, int(step[1]), "compute", max((end - start) * 1e-6 - shared, 0.0)))
    if not rows:
        raise SettingError(f"path = {str(file)!r}: has no ProfilerStep; call prof.step() after every step")
    return rows


def _union(spans: list[tuple[float, float]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Spans that do not overlap, over the same time: (spans, 2)."""
    joined: list[list[float]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return np.array(joined, dtype=float).reshape(-1, 2)


def _read(file: Path) -> dict[str, Any]:
    raw = file.read_bytes()
    try:
        words = json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw)
    except (ValueError, OSError, EOFError):
        return {}
    return words if isinstance(words, dict) else {}


SOURCE = Source(name="kineto", title="PyTorch's profiler", tells=tells, read=read)

"""Synthetic traces of PyTorch's profiler."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.analysis.recordings import Recording
from workbench.core.base.settings import SettingError

Event = dict[str, Any]
STEP, PERIOD, SECOND = 1_000_000, 1_200_000, 1e6  # us


def event(name: str, start: float, took: float, category: str = "user_annotation", **more: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": took, **more}


def events(computing: Sequence[float], first: int = 0, at: float = 1.7e15) -> list[Event]:
    """Return steps of one second, each with some seconds of computing before an all-reduce."""
    found = []
    for place, seconds in enumerate(computing):
        start, own = at + PERIOD * (first + place), round(seconds * SECOND)
        found += [
            event(f"ProfilerStep#{first + place}", start, STEP),
            event("gloo:all_reduce", start + own, STEP - own),
        ]
    return found


def write(path: Path, some: list[Any], **fields: Any) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": some, **fields}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def rank(number: Any) -> dict[str, Any]:
    return {"distributedInfo": {"backend": "gloo", "rank": number}}


def seconds(found: Recording) -> dict[Any, list[float]]:
    """Return the computing seconds of each worker, by its name."""
    return {worker: times.round(4).tolist() for worker, times in found.table("compute").items()}


def four(folder: Path, *more: Event) -> Path:
    """Return traces of four ranks, of which the third is slow."""
    for r in range(4):
        write(folder / f"n{r}_1.1.pt.trace.json", [*events([0.7 if r == 2 else 0.4] * 6), *more], **rank(r))
    return folder


def refused(path: Path, *text: str) -> None:
    with pytest.raises(SettingError) as found:
        wb.traces.load(path)
    assert all(word in str(found.value) for word in text), str(found.value)
    assert "\n" not in str(found.value)

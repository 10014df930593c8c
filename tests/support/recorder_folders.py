"""Folders as `wb.record` writes them, with chosen times of phases."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench.analysis.recorder.steps import ROW, Place, write_steps
from workbench.core.base.types import Array

OWN = {"data": 0.002, "forward": 0.010, "backward": 0.020, "optimiser": 0.003, "other": 0.001}
ABOUT = {"format": 1, "host": "a", "cores": 8, "links": []}
EXCHANGE_S = 0.004  # time from the arrival of the last rank to the end of the exchange, s


def job(steps: int = 60, ranks: int = 4, seed: int = 0, **slower: Mapping[int, float]) -> list[Array]:
    """Return the steps of every rank: phases of a step are as in `OWN`, or longer in some ranks."""
    rng = np.random.default_rng(seed)
    found = [np.zeros(steps, ROW) for _ in range(ranks)]
    for rank, rows in enumerate(found):
        rows["step"] = np.arange(steps)
        for phase, seconds in OWN.items():
            rows[phase] = seconds * rng.uniform(0.95, 1.05, steps) + slower.get(phase, {}).get(rank, 0.0)
        for name in ("samples", "tokens", "squares"):
            rows[name] = np.nan
    wait(found)
    return found


def wait(ranks: list[Array]) -> None:
    """Let every rank wait for the slowest, and then for the exchange."""
    own = np.stack([sum(rows[phase] for phase in OWN) for rows in ranks])
    for rows, mine in zip(ranks, own, strict=True):
        rows["exchange"] = own.max(axis=0) - mine + EXCHANGE_S


def write(folder: Path, ranks: list[Array], attempt: int = 0, **about: Any) -> Path:
    """Write the steps of all ranks as `wb.record` does. `about`: notes, for each rank if they are lists."""
    folder.mkdir(exist_ok=True)
    for rank, rows in enumerate(ranks):
        mine = {name: value[rank] if isinstance(value, list) else value for name, value in about.items()}
        write_steps(folder, Place(rank, attempt, 0), rows, {**ABOUT, **mine})
    return folder

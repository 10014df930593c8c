"""Synthetic recordings, and the public ones where they are available."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from workbench.analysis.recordings import Recording, at_hand
from workbench.core.base.types import Array

SHARED = Path(__file__).resolve().parents[3] / "shared/data"


def public(name: str) -> Path:
    """Return the path of a public recording. Skips the test if it is missing."""
    beside = {file.name: file for folder in (SHARED, SHARED / "traces") for file in folder.glob("*.*")}
    if (there := (beside | at_hand()).get(name)) is not None:
        return there
    pytest.skip(f"{name} is not here: see workbench.traces.known() for where to get it")


def recording(times: Array, name: str = "made up") -> Recording:
    """Make a recording from a table (steps, workers). NaN stands for a missing value."""
    step, worker = np.nonzero(~np.isnan(times))
    rows = pd.DataFrame({"worker": worker, "step": step, "seconds": times[step, worker]})
    return Recording.of_rows(rows, name)


def healthy(steps: int, workers: int, rng: np.random.Generator, spread: float = 0.05) -> Array:
    """Draw times of equal workers, each of which is sometimes late."""
    times = 1.0 + spread * rng.random((steps, workers))
    return times * np.where(rng.random((steps, workers)) < 0.02, 2.0, 1.0)

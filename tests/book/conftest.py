"""Settings of the book's tests: quick, without real runs, and with a small table of synthetic recorded times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from workbench_book import Setting


@pytest.fixture
def quick() -> Setting:
    return Setting(quick=True, measure=False)


@pytest.fixture(scope="session")
def found_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of stored entries. One worker runs all tests of the book, so each entry is computed once."""
    return tmp_path_factory.getbasetemp() / "book"


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Write two experiments of 12 workers. In each, worker 3 is always slow, and worker 5 sometimes."""
    rng = np.random.default_rng(0)
    rows = []
    for name, typical in (("one", 10.0), ("two", 30.0)):
        for worker in range(12):
            seconds = typical * rng.uniform(0.95, 1.05, 60)
            if worker == 3:
                seconds *= 5
            if worker == 5:
                seconds[20:35] *= 5
            rows += [(name, worker, i, s) for i, s in enumerate(seconds)]
    path = tmp_path / "ec2_traces.csv"
    pd.DataFrame(rows, columns=["experiment", "worker", "iteration", "seconds"]).to_csv(path, index=False)
    return path

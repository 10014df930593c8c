"""Diagnosis of real MPI runs with injected faults: a few cases of `benchmarks/diagnosis.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.support import injected_faults
from workbench.core.base.text import read_json
from workbench.core.trace import records
from workbench.mpi.engine.ledger import MergedLedgers

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("kind", "number", "healthy"),
    [("rank", 1, False), ("link", 0, False), ("link", 1, False), ("host", 1, False), ("rank", 0, True)],
)
def test_diagnose_names_the_fault_of_a_real_run(
    kind: str, number: int, healthy: bool, tmp_path: Path
) -> None:
    """Every second run is an all-reduce, in which each step takes the same time for all workers."""
    one, trace = injected_faults.traced(kind, number, 0, tmp_path, healthy)
    place = injected_faults.lies(kind, number, 0, tmp_path, healthy)
    assert read_json(place.with_name(f"{place.name}.load.json"))["exchange"] is False
    assert injected_faults.lies(kind, number, 0, tmp_path, healthy, exchange=True) != place
    named = [each.who for each in wb.diagnose(trace).culprits]
    assert named[:1] == ([one.wanted] if one.wanted else [])
    books = MergedLedgers(records.read_ledgers(place))
    done, took = (np.array(books.count(name, injected_faults.ROUNDS)) for name in ("worked", "busy"))
    assert ((done > 0) & (done < took)).all()

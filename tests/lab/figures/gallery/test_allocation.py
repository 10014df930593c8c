"""The figure of the allocation of parts to workers."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.figure_runs import experiment
from workbench.core.base.settings import SettingError

TREE = {"children": 3, "layers": 2, "stragglers": 1}


def test_allocation_shows_the_plan() -> None:
    e = experiment("CR", TREE)
    row = e.plan.matrix()[7]
    figure = wb.figures.allocation(e, 7)
    starts, stops = (figure.data[0].customdata[:, i] for i in (0, 1))
    found = np.zeros(e.plan.samples)
    for start, stop, value in zip(starts.astype(int), stops.astype(int), figure.data[0].y, strict=True):
        found[start : stop + 1] += value
    np.testing.assert_allclose(found, np.repeat(row, e.plan.sizes))


def test_allocation_of_shuffled_workers_differs_by_round() -> None:
    e = experiment("FRC", {"replication": 2, "shuffle": "cyclic"})
    first, second = (wb.figures.allocation(e, 1, round=r).data[0].customdata.tolist() for r in (0, 2))
    assert first != second
    assert second == wb.figures.allocation(e, 3, round=0).data[0].customdata.tolist()


@pytest.mark.parametrize("rank", [0, 13, -1])
def test_allocation_refuses_ranks_without_data(rank: int) -> None:
    with pytest.raises(SettingError, match=f"rank = {rank}: there are workers 1 to 12"):
        wb.figures.allocation(experiment("CR", TREE), rank)


@pytest.mark.parametrize("round", [99, -1])
def test_allocation_refuses_rounds_that_the_run_does_not_have(round: int) -> None:
    with pytest.raises(SettingError, match=f"round = {round}: the run has rounds 0 to 14"):
        wb.figures.allocation(experiment("CR", TREE), 1, round=round)

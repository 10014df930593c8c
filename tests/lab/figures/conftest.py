"""Runs shared by the tests of figures."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.support.figure_runs import experiment


@pytest.fixture(scope="session")
def traces() -> list[wb.Trace]:
    tree = {"children": 3, "layers": 2, "stragglers": 1}
    args = {"UMW": {}, "GC": {"stragglers": 2}, "RAR": {}, "SGD": {"stragglers": 2}, "CR": tree}
    return wb.compare([experiment(scheme, numbers) for scheme, numbers in args.items()])

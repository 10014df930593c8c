"""Runs that the figures' tests share."""

from __future__ import annotations

from typing import Any

import pytest

import workbench as wb

SPEC: dict[str, Any] = {
    "problem": "logistic",
    "problem_args": {"samples": 240, "features": 6},
    "workers": 12,
    "rounds": 15,
    "link": {"latency": 1e-3, "bandwidth": 2e4},
}


def experiment(scheme: str, scheme_args: dict[str, Any] | None = None, **changes: Any) -> wb.Experiment:
    return wb.Experiment(**{**SPEC, "scheme": scheme, "scheme_args": scheme_args or {}, **changes})


@pytest.fixture(scope="session")
def traces() -> list[wb.Trace]:
    tree = {"children": 3, "layers": 2, "stragglers": 1}
    args = {"UMW": {}, "GC": {"stragglers": 2}, "RAR": {}, "SGD": {"stragglers": 2}, "CR": tree}
    return wb.compare([experiment(scheme, numbers) for scheme, numbers in args.items()])

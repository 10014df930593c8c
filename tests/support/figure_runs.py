"""Experiments shared by the tests of figures."""

from __future__ import annotations

from typing import Any

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


RATES = (1e3, 1e4, 1e5)

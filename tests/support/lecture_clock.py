"""A clock that tests set, and settings of short runs."""

from __future__ import annotations

from typing import Any

import workbench as wb

SMALL: dict[str, Any] = {"workers": 6, "rounds": 30, "problem_args": {"samples": 60, "features": 4}}
ENTRIES = [wb.Experiment(scheme=name, **SMALL) for name in ("UMW", "SGD")]


class Clock:
    """A clock that changes only when it is set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

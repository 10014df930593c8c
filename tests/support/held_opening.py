"""Opening of data that waits until a test lets it continue."""

from __future__ import annotations

from threading import Event

import pytest

import workbench as wb
from workbench.core.problems.base import Problem


def held_opening(patch: pytest.MonkeyPatch, error: Exception | None = None) -> tuple[Event, Event]:
    """Make experiments wait when they open their data, and then raise `error`, if there is one.

    Returns two events: opening has begun, and opening may continue (set by the test within 60 s).
    """
    begun, free = Event(), Event()
    build = wb.Experiment.build_problem

    def wait(e: wb.Experiment) -> Problem:
        begun.set()
        assert free.wait(60)
        if error is not None:
            raise error
        return build(e)

    patch.setattr(wb.Experiment, "build_problem", wait)
    return begun, free

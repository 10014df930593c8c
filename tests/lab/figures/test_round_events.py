"""The times of the events of a round."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.core.base.settings import SettingError


def test_moments_are_in_order(traces: list[wb.Trace]) -> None:
    for trace in traces:
        for r in (0, 7):
            found = wb.figures.moments(trace, r)
            events = trace.events[trace.events["round"] == r]
            texts = [moment.text for moment in found]
            assert [m.time for m in found] == sorted(m.time for m in found)
            assert sum("has computed" in text for text in texts) == (events["kind"] == "compute").sum()
            assert sum("too late" in text for text in texts) == (events["kind"] == "drop").sum()
            commits = events[events["kind"] == "commit"]
            assert sum("has the gradient" in text for text in texts) == len(commits)


def test_moments_have_the_commit_last(traces: list[wb.Trace]) -> None:
    assert wb.figures.moments(traces[4], 2)[-1].text == "the master has the gradient"


def test_moments_refuse_a_missing_round(traces: list[wb.Trace]) -> None:
    with pytest.raises(SettingError, match="round = 99"):
        wb.figures.moments(traces[0], 99)

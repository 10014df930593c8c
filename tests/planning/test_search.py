"""The search for the best setting: every one is tried on the same stragglers, the best comes first."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.planning.search import search
from workbench.schemes.sequential import MSGC, SRSGC

BASE = wb.Experiment(
    scheme="SR-SGC", workers=5, rounds=20, seed=3, delays={"kind": "markov", "enter": 0.1, "leave": 0.7}
)


def test_it_finds_what_trying_each_finds() -> None:
    settings = list(SRSGC.settings(workers=5, longest=2, widest=5))
    found = search(BASE, settings)
    times = [
        wb.run(BASE.replace(scheme_args=args, problem="unit", problem_args={"samples": 100}), events=False)
        for args in settings[:4]
    ]
    again = {str(args): trace.columns["time"][-1] for args, trace in zip(settings, times, strict=False)}
    e = BASE.replace(problem="unit", problem_args={"samples": 100})
    told = {str(args): seconds for seconds, args in search(e, settings[:4])}
    assert told == pytest.approx(again)
    assert [s for s, _ in found] == sorted(s for s, _ in found)
    assert len(found) == len(settings)


def test_the_grids_are_the_papers() -> None:
    """As in its search: B divides W - 1; B < W and no job is later than `longest`."""
    selective = {tuple(s.values()) for s in SRSGC.settings(4, 3, 7)}
    assert selective == {
        (b, w, k) for k in (1, 2, 3, 4) for b in (1, 2, 3) for w in range(b + 1, 8) if (w - 1) % b == 0
    }
    multiplexed = {tuple(s.values()) for s in MSGC.settings(4, 3, 7)}
    assert multiplexed == {
        (b, w, k) for k in (1, 2, 3, 4) for w in range(2, 8) for b in range(1, w) if w - 2 + b <= 3
    }


def test_where_nothing_fits_it_says_why() -> None:
    with pytest.raises(wb.SettingError, match=r"none fits the experiment .*does not divide"):
        search(BASE, [{"burst": 2, "window": 4}])

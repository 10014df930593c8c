"""The search for the best setting: every setting is tried on the same stragglers, the best is first."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.analysis.planning.search import search
from workbench.core.schemes.sequential import MSGC, SRSGC

BASE = wb.Experiment(
    scheme="SR-SGC", workers=5, rounds=20, seed=3, delays={"kind": "markov", "p_slow": 0.1, "p_recover": 0.7}
)


def test_search_finds_the_best_of_all_settings() -> None:
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


def test_search_charges_a_load_by_the_slope(tmp_path: Path) -> None:
    """As in the authors' search: without a slope no load costs anything, and the smallest is first among equals."""
    table = tmp_path / "times.csv"
    table.write_text(
        "worker,iteration,seconds\n"
        + "".join(f"{w},{r},{1 + 9 * (w == 4)}\n" for w in range(5) for r in range(4))
    )
    delay_model = {"kind": "replay", "path": str(table), "as_recorded": True, "samples": 20.0}
    e = BASE.replace(scheme="GC", delays=delay_model, problem="unit", problem_args={"samples": 100})
    settings = [{"stragglers": s} for s in (3, 1, 2, 0)]
    free = search(e, settings)
    assert [args["stragglers"] for _, args in free] == [1, 2, 3, 0]
    assert free[0][0] == pytest.approx(free[2][0])
    dear = {
        args["stragglers"]: s
        for s, args in search(e.replace(delays={**delay_model, "slope": 0.01}), settings)
    }
    assert dear == pytest.approx(
        {args["stragglers"]: s + 20 * 0.01 * 20 * args["stragglers"] for s, args in free}
    )


def test_search_grids_equal_the_papers() -> None:
    """As in its search: B divides W - 1; B < W and no job is later than `longest`."""
    selective = {tuple(s.values()) for s in SRSGC.settings(4, 3, 7)}
    assert selective == {
        (b, w, k) for k in (1, 2, 3, 4) for b in (1, 2, 3) for w in range(b + 1, 8) if (w - 1) % b == 0
    }
    multiplexed = {tuple(s.values()) for s in MSGC.settings(4, 3, 7)}
    assert multiplexed == {
        (b, w, k) for k in (1, 2, 3, 4) for w in range(2, 8) for b in range(1, w) if w - 2 + b <= 3
    }


def test_search_without_a_feasible_setting_gives_the_reason() -> None:
    with pytest.raises(wb.SettingError, match=r"none fits the experiment .*does not divide"):
        search(BASE, [{"burst": 2, "window": 4}])


def test_tune_with_batches_compares_runs_on_their_own_batches() -> None:
    """The best numbers leave the least loss of all that were tried first, as runs of their own have it."""
    args = {"samples": 240, "features": 5}
    common = {"problem": "least_squares", "problem_args": args, "rounds": 12, "batch": 60, "workers": 4}
    experiments = [
        wb.Experiment(scheme="SGD", scheme_args={"stragglers": 1}, seed=1, **common),
        wb.Experiment(scheme="ASGD", **common),
        wb.Experiment(scheme="UMW", **common),
    ]
    for e, best in zip(experiments, wb.tune(experiments), strict=True):
        least = wb.run(best).columns["loss"][-1]
        smoothness = e.build_problem().smoothness()
        for optimiser in e.build_optimiser().candidates(smoothness):
            tried = wb.run(e.replace(optimiser_args=optimiser.model_dump(exclude_unset=True)))
            assert not tried.columns["loss"][-1] < least * (1 - 1e-9)

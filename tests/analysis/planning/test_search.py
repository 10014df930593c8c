"""Search for the best setting: every setting is tried on the same stragglers, and the best one is first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.planning import search as tuning
from workbench.analysis.planning.search import search
from workbench.core.schemes.multiplexed import MSGC
from workbench.core.schemes.sequential import SRSGC

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
    by_args = {str(args): seconds for seconds, args in search(e, settings[:4])}
    assert by_args == pytest.approx(again)
    assert [s for s, _ in found] == sorted(s for s, _ in found)
    assert len(found) == len(settings)


def test_search_charges_a_load_by_the_slope(tmp_path: Path) -> None:
    """As in the authors' search, a load costs nothing without a slope. Equal settings are sorted by their load."""
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
    """As in the paper's search, B < W, and no job ends later than `longest`. In SR-SGC, B divides W - 1."""
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
    """The chosen parameters have the least final loss of all candidates. Each candidate is run on its own batches."""
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


TUNED = wb.Experiment(
    scheme="UMW",
    workers=4,
    rounds=30,
    problem="least_squares",
    problem_args={"samples": 60, "features": 4},
    delays={"kind": "constant"},
)


def final(e: wb.Experiment) -> float:
    return float(wb.run(e).columns["loss"][-1])


def counted(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Return a list of the optimisers in each pass of `tune`, which is filled during the passes."""
    passes: list[list[Any]] = []
    true = tuning.learn

    def noted(problem: Any, runs: Any, progress: Any) -> Any:
        passes.append([run.optimiser for run in runs])
        return true(problem, runs, progress)

    monkeypatch.setattr(tuning, "learn", noted)
    return passes


@pytest.mark.parametrize("budget", [12, 14, 20, None])
def test_tune_tries_at_most_the_budget_for_every_experiment(
    budget: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = counted(monkeypatch)
    candidates = [TUNED, TUNED.replace(optimiser="inverse_time"), TUNED.replace(optimiser="adam")]
    found = wb.tune(candidates, budget=budget)
    for name in ("gd", "inverse_time", "adam"):
        tried = {str(o) for each in passes for o in each if o.name == name}
        assert len(tried) <= (16 if budget is None else budget)
        assert len(tried) >= 12 if name == "inverse_time" else len(tried) >= 6
    assert [e.optimiser for e in found] == ["gd", "inverse_time", "adam"]
    if budget is not None:
        return
    for e, own in zip(candidates, found, strict=True):
        assert final(own) <= final(e)


def test_tune_with_more_budget_is_at_least_as_good() -> None:
    losses = [final(wb.tune(TUNED, budget=budget)[0]) for budget in (6, 8, 10, 20)]
    assert losses == sorted(losses, reverse=True)


def test_tune_finds_the_least_loss_of_steps_and_schedules() -> None:
    """The choice is at least as good as every candidate of the grid."""
    schedules: list[Any] = ["constant", "cosine", {"kind": "exponential", "decay": 0.8, "warmup": 3}]
    e = TUNED.replace(optimiser="sgd", optimiser_args={"momentum": 0.5})
    (own,) = wb.tune(e, schedules=schedules)
    optimiser = e.build_optimiser()
    by_hand = [
        final(e.replace(optimiser_args={"step": each.step, "momentum": 0.5, "schedule": schedule}))  # type: ignore[attr-defined]
        for each in optimiser.candidates(e.build_problem().smoothness())
        for schedule in ({"kind": "constant"}, {"kind": "cosine"}, schedules[2])
    ]
    assert own.optimiser_args["momentum"] == 0.5
    assert final(own) <= min(loss for loss in by_hand if np.isfinite(loss)) * (1 + 1e-9)


def test_tune_chooses_a_schedule_that_noise_needs() -> None:
    """With mini-batches, a constant step oscillates around the optimum, and a decreasing one converges."""
    e = TUNED.replace(batch=6, rounds=60, optimiser="sgd")
    (own,) = wb.tune(e, schedules=["constant", "cosine"])
    assert own.optimiser_args["schedule"] == {"kind": "cosine", "length": 60}
    (plain,) = wb.tune(e)
    assert final(own) < final(plain)


def test_tune_of_nothing_is_nothing() -> None:
    assert wb.tune([]) == []


@pytest.mark.parametrize(
    ("scheme", "args"), [("LocalSGD", {"local_steps": 3}), ("LocalSGD", {"rate": 0.2}), ("CADA", {})]
)
def test_tune_simulates_schemes_whose_commits_depend_on_the_step(scheme: str, args: dict[str, Any]) -> None:
    """The choice is at least as good as every step of the grid. It is also the workers' step, unless that is given."""
    e = TUNED.replace(scheme=scheme, scheme_args=args, rounds=8, batch=None if scheme == "CADA" else 20)
    (own,) = wb.tune(e, budget=12)
    rate = {"rate": own.optimiser_args["step"]} if args == {"local_steps": 3} else {}
    assert own.scheme_args == {**args, **rate}
    losses = []
    for each in e.build_optimiser().candidates(e.build_problem().smoothness()):
        step = each.step  # type: ignore[attr-defined]
        more = {"rate": step} if rate else {}
        losses.append(final(e.replace(optimiser_args={"step": step}, scheme_args={**args, **more})))
    assert final(own) <= min(loss for loss in losses if np.isfinite(loss)) * (1 + 1e-9)

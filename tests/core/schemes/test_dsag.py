"""DSAG: overlapping rounds, the newest gradients, and the use of late answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.approximate_runs import simulated
from tests.support.strategies import experiments
from workbench.core.checking.scheme import forecasts
from workbench.core.contract.weights import VersionedWeights

N = 6
SLOW = {"kind": "heterogeneous", "shift": 1.0, "slow": 0.4, "slow_straggles": 1.0, "factor": 3.7}


def experiment(
    rounds: int = 30, delays: dict[str, Any] = SLOW, samples: int = N, **args: Any
) -> wb.Experiment:
    return wb.Experiment(
        scheme="DSAG",
        scheme_args={"wait_for": 3, **args},
        workers=N,
        rounds=rounds,
        problem="unit",
        problem_args={"samples": samples},
        delays=delays,
    )


@settings(max_examples=100)
@given(experiments(["DSAG"], rounds=25))
def test_dsag_forecast_equals_the_event_engine(spec: dict[str, Any]) -> None:
    forecasts(wb.schemes.get("DSAG"), spec)


@settings(max_examples=100)
@given(experiments(["DSAG"], rounds=6), st.sampled_from([10.0, 1e3, 1e5]) | st.floats(1.0, 1e6))
def test_dsag_forecast_counts_arrivals_during_decoding(spec: dict[str, Any], rate: float) -> None:
    forecasts(wb.schemes.get("DSAG"), {**spec, "decode_rate": rate})


def test_dsag_forecast_charges_decoding_over_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    e = experiment(rounds=40, delays={"kind": "exponential", "mean": 1.0}).replace(decode_rate=3e3)
    line, _ = simulated(e)
    np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0), rtol=1e-9)
    monkeypatch.setattr("workbench.core.forecasting.MAX_TIMES_PER_BATCH", 7 * N)
    np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0), rtol=1e-9)


@pytest.mark.parametrize("pieces", [1, 3])
def test_dsag_commit_has_the_newest_gradient_of_every_piece(pieces: int) -> None:
    """Compare with a plain table of the arrivals."""
    e = experiment(pieces=pieces, samples=N * pieces, delays={"kind": "exponential", "mean": 1.0})
    line, commits = simulated(e)
    turns = dict.fromkeys(range(1, N + 1), 0)
    came = []  # arrival time, model, part
    for round, src, what, *_, end, to, _, _ in line.events:
        if what == "send" and to == 0:
            came.append((end, round, (src - 1) * pieces + turns[src] % pieces))
            turns[src] += 1
    late = 0
    for r, weights in enumerate(commits.weights):
        newest: dict[int, int] = {}
        for end, round, part in came:
            if end <= line.times[r]:
                newest[part] = max(newest.get(part, -1), round)
        scale = N * pieces / len(newest)
        wanted = {(version, part): scale for part, version in newest.items()}
        if isinstance(weights, VersionedWeights):
            found = zip(weights.versions, weights.parts, weights.weights, strict=True)
            assert {(v, p): pytest.approx(w) for v, p, w in found} == wanted
            late += sum(version < r for version in newest.values())
        else:
            assert set(newest.values()) == {r}
        assert line.residuals[r] == pytest.approx(len(newest) * (scale - 1) ** 2 + N * pieces - len(newest))
    assert late > 50


def test_dsag_uses_late_gradients() -> None:
    line, commits = simulated(experiment())
    assert np.diff(line.times, prepend=0) == pytest.approx(1.02)  # the margin of 2 % is waited without effect
    assert max(line.residuals[4:]) == pytest.approx(0, abs=1e-12)
    assert any(
        isinstance(w, VersionedWeights) and (w.versions < r - 1).any() for r, w in enumerate(commits.weights)
    )


def test_dsag_master_waits_for_a_margin() -> None:
    delay_model = {"kind": "exponential", "mean": 1.0}
    soon, later = (simulated(experiment(1, delay_model, tolerance=t))[0] for t in (0.0, 5.0))
    arrivals = np.sort([row[5] for row in later.events if row[2] == "send" and row[6] == 0])
    assert soon.times[0] == pytest.approx(arrivals[2])
    assert soon.messages[0] == 3
    assert later.times[0] == pytest.approx(min(6 * arrivals[2], arrivals[-1]))


def test_dsag_runs_without_dead_workers() -> None:
    e = experiment(20, {"kind": "exponential", "mean": 1.0})
    three = [{"worker": w, "round": 5} for w in (1, 2, 3)]
    assert len(simulated(e.replace(faults=three))[0].times) == 20
    with pytest.raises(wb.QuorumLost):
        simulated(e.replace(faults=[*three, {"worker": 4, "round": 9}]))


def test_dsag_refuses_too_many_fresh_answers() -> None:
    with pytest.raises(wb.SettingError, match=r"scheme_args.wait_for = 7: there are 6 workers; take 1 to 6"):
        experiment(wait_for=7)

"""Mitigations: chosen on half of the steps, evaluated on the other half, and checked by a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.synthetic_recordings import healthy, recording
from workbench.analysis.recordings.mitigations import Steps, mitigations

LAWS: list[dict[str, Any]] = [
    {"kind": "heterogeneous", "slow": 0.2, "slow_straggles": 0.9},
    {"kind": "markov", "p_slow": 0.02, "p_recover": 0.3, "factor": 8.0},
    {"kind": "shifted_exponential"},
]


def experiment(scheme: str, delay_model: dict[str, Any], seed: int, **more: Any) -> wb.Experiment:
    return wb.Experiment(
        scheme=scheme,
        workers=12,
        rounds=300,
        delays=delay_model,
        seed=seed,
        problem_args={"samples": 12_000},
        **more,
    )


@pytest.mark.parametrize("delay_model", LAWS, ids=lambda delay_model: delay_model["kind"])
@pytest.mark.parametrize("link", [{}, {"bandwidth": 1e6, "latency": 1e-4}])
def test_mitigation_saves_what_it_predicts(delay_model: dict[str, Any], link: dict[str, float]) -> None:
    """Both runs have the same seed, and so the same stragglers and persistently slow workers."""
    e = experiment("UMW", delay_model, 1, link=link)
    run = wb.run(e)
    found = [one for one in wb.diagnose(run).mitigations or () if not one.what.startswith("leaving")]
    assert found
    other = wb.run(experiment(found[0].scheme, delay_model, 1, link=link, scheme_args=found[0].scheme_args))
    saved = 1 - other.columns["time"][-1] / run.columns["time"][-1]
    width = found[0].high - found[0].low
    assert found[0].low - width <= saved <= found[0].high + width
    assert abs(saved - found[0].saving) < 0.08


def test_mitigation_leaves_out_a_persistently_slow_worker() -> None:
    times = healthy(90, 10, np.random.default_rng(0), spread=0.02)
    times[:, 4] *= 3.0
    best = wb.diagnose(recording(times)).mitigations
    assert best is not None
    assert best[0].what == "leaving worker 4 out"
    left = np.delete(times, 4, axis=1).max(axis=1).mean() * 10 / 9
    assert abs(best[0].saving - (1 - left / times.max(axis=1).mean())) < 0.05


@settings(max_examples=12, deadline=None)
@given(
    workers=st.integers(4, 8),
    seconds=st.floats(15, 60),
    spread=st.floats(0.1, 0.9),
    seed=st.integers(0, 2**31),
)
def test_mitigation_promises_at_most_what_removing_the_fault_gives(
    workers: int, seconds: float, spread: float, seed: int
) -> None:
    """A worker takes `seconds` longer than the others' median of 1 s, as if it slept in each step."""
    even = np.random.default_rng(seed).lognormal(0, spread, (400, workers))
    times = even + seconds * (np.arange(workers) == 1)
    found = wb.diagnose(recording(times))
    assert [one.who for one in found.culprits] == ["worker 1"]
    removed = 1 - even.max(axis=1).sum() / times.max(axis=1).sum()
    assert max(one.saving for one in found.mitigations or ()) <= removed + 0.025


def test_mitigation_beyond_the_fault_needs_more_lateness_of_others() -> None:
    """All workers are late in random steps, which a code tolerates. One of them is a little slower."""
    even = 1 + 3.0 * (np.random.default_rng(3).random((300, 8)) < 0.15)
    found = wb.diagnose(recording(even + 1.0 * (np.arange(8) == 1)))
    assert [one.who for one in found.culprits] == ["worker 1"]
    assert max(one.saving for one in found.mitigations or ()) > found.culprits[0].cost


def test_mitigation_keeps_the_other_costs_of_rounds() -> None:
    """Real rounds have costs besides the workers' times. No mitigation reduces them."""
    run = wb.run(experiment("UMW", LAWS[0], 1))
    longer = run.columns["time"] + 0.5 * run.columns["time"][-1] * np.arange(1, 301) / 300
    slower = replace(run, columns={**run.columns, "time": longer})
    before, after = ((wb.diagnose(each).mitigations or ())[0] for each in (run, slower))
    assert after.what == before.what
    assert after.saving == pytest.approx(before.saving / 1.5, rel=0.05)
    assert "66.7% of the run, and the rest is taken to stay" in str(wb.diagnose(slower))


def test_mitigations_report_that_nothing_can_be_gained() -> None:
    times = 1 + 0.02 * np.random.default_rng(1).random((90, 10))
    found = wb.diagnose(recording(times))
    assert found.mitigations == ()
    assert "would save no time" in str(found)


def test_mitigations_rarely_predict_a_gain_by_chance() -> None:
    """If nothing helps, the best of many mitigations still seems to help on the steps by which it was chosen.

    It is therefore evaluated on other steps.
    """
    promised = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        times = 1 + rng.exponential(0.05, (40, 8))
        steps = Steps(times, [str(i) for i in range(8)])
        promised.append(bool(mitigations(steps, times.max(axis=1), rng)))
    assert sum(promised) <= 3


def test_mitigations_of_runs_with_cancelled_work_predict_nothing() -> None:
    run = wb.run(experiment("GC", LAWS[0], 1, scheme_args={"stragglers": 3}))
    assert wb.diagnose(run).mitigations is None

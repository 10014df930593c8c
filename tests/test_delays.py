"""Delay models: distributions, keys, memory, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.delays import DelayModel, DelayStream, delay_models

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "ec2_traces.csv"


def build(spec: dict[str, Any]) -> DelayModel:
    return wb.Experiment(delays=spec).delays


def sampled(spec: dict[str, Any], rounds: int = 400, workers: int = 100, samples: int = 3) -> np.ndarray:
    stream = DelayStream(build(spec), 1, workers)
    return np.stack([stream.whole(r, np.full(workers, samples)) for r in range(rounds)])


def near(found: np.ndarray, mean: float, std: float) -> None:
    assert abs(found.mean() - mean) < 4 * std / np.sqrt(found.size)


def test_shifted_exponential_is_the_papers() -> None:
    """a d + Exp(mean d/mu) (paper 1, section III-C)."""
    times = sampled({"kind": "shifted_exponential", "shift": 2.0, "rate": 0.5})
    near(times, 3 * 2.0 + 3 / 0.5, 3 / 0.5)
    assert times.min() >= 6.0
    assert np.mean(times > 6.0 + 6.0) == pytest.approx(np.exp(-1), abs=0.01)


def test_two_part_is_the_papers() -> None:
    """T = d T1 + T2/m, T1 = t1 + Exp(lambda1), T2 = t2 + Exp(lambda2) (paper 2, section V)."""
    model = build({"kind": "two_part", "t1": 1.6, "lambda1": 0.8, "t2": 6.0, "lambda2": 0.1})
    stream = DelayStream(model, 0, 20_000)
    computing = stream.whole(0, np.full(20_000, 4))
    sending = stream.sending(0, 1 / 3)
    assert sending is not None
    near(computing, 4 * (1.6 + 1 / 0.8), 4 / 0.8)
    near(sending, (6 + 10) / 3, 10 / 3)
    assert abs(np.corrcoef(computing, sending)[0, 1]) < 0.03


def test_exponential_does_not_depend_on_the_load() -> None:
    near(sampled({"kind": "exponential", "mean": 0.2}, samples=7), 0.2, 0.2)
    assert (sampled({"kind": "exponential", "mean": 0.2}, samples=0, rounds=2) == 0).all()


def test_heterogeneous_workers_stay_slow() -> None:
    spec = {
        "kind": "heterogeneous",
        "shift": 1.0,
        "slow": 0.3,
        "slow_straggles": 0.8,
        "active_straggles": 0.01,
    }
    late = sampled(spec, workers=500) > 3.0
    share = late.mean(axis=0)
    slow = share > 0.4
    assert abs(slow.mean() - 0.3) < 0.08
    assert abs(share[slow].mean() - 0.8) < 0.01
    assert abs(share[~slow].mean() - 0.01) < 0.003


def test_pareto_has_the_stated_tail() -> None:
    times = sampled({"kind": "pareto", "shift": 1.0, "shape": 2.5}, samples=1)
    assert times.min() >= 1.0
    assert np.mean(times > 2.0) == pytest.approx(2.0**-2.5, abs=0.01)


def test_markov_is_stationary_and_sticks() -> None:
    slow = sampled({"kind": "markov", "shift": 1.0, "enter": 0.1, "leave": 0.3, "factor": 10}, samples=1) > 5
    assert abs(slow.mean() - 0.25) < 0.02
    assert abs(slow[0].mean() - 0.25) < 0.15
    assert (slow[1:] & slow[:-1]).sum() / slow[:-1].sum() == pytest.approx(0.7, abs=0.02)


def test_markov_rounds_may_be_asked_for_in_any_order() -> None:
    model = build({"kind": "markov"})
    forward, late = DelayStream(model, 5, 30), DelayStream(model, 5, 30)
    drawn = [forward.draw(r) for r in range(9)]
    np.testing.assert_array_equal(late.draw(8), drawn[8])


@given(st.sampled_from(sorted(set(delay_models()) - {"replay"})), st.integers(0, 2**40), st.integers(0, 20))
def test_draws_are_keyed(kind: str, seed: int, round: int) -> None:
    """A worker's draw depends on seed, round and worker; not on who asks first or how many there are."""
    small, large = (DelayStream(build({"kind": kind}), seed, n) for n in (5, 8))
    large.draw(0)
    np.testing.assert_array_equal(small.draw(round), large.draw(round)[:, :5])
    if kind not in ("constant", "heterogeneous", "markov"):
        assert not np.array_equal(small.draw(round), small.draw(round + 1))
        other = DelayStream(build({"kind": kind}), seed + 1, 5)
        assert not np.array_equal(small.draw(round), other.draw(round))


def test_schemes_that_are_compared_meet_the_same_stragglers() -> None:
    common: dict[str, Any] = {"workers": 6, "rounds": 3, "problem_args": {"samples": 60, "features": 3}}
    umw, ring = wb.compare([wb.Experiment(scheme=s, **common) for s in ("UMW", "RAR")])
    rows = [t.events[(t.events["round"] == 0) & (t.events["kind"] == "compute")] for t in (umw, ring)]
    ends = [r.sort_values("rank")["end"].to_numpy() for r in rows]
    np.testing.assert_array_equal(*ends)


def test_parts_may_have_draws_of_their_own() -> None:
    """The spread of a sum of independent draws is smaller than that of one draw."""
    common: dict[str, Any] = {"scheme": "GC", "scheme_args": {"stragglers": 3}, "workers": 4, "rounds": 2000}
    common |= {"problem": "unit", "problem_args": {"samples": 4}}
    one, each = (
        wb.forecast(wb.Experiment(**common, delays={"kind": "shifted_exponential", "rate": 1.0, "per": per}))
        for per in ("worker", "part")
    )
    assert each.mean > 1.5 * one.mean  # the first of four workers: min of sums, not of one draw times four


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "times.csv"
    path.write_text(text)
    return str(path)


def test_replay_goes_through_the_record_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, "worker,iteration,seconds\n0,0,1\n0,1,2\n0,2,3\n")
    stream = DelayStream(build({"kind": "replay", "path": path, "samples": 2.0, "scale": 0.5}), 0, 1)
    times = [float(stream.whole(r, np.array([4]))[0]) for r in range(6)]
    start = times.index(1.0)
    assert (times + times)[start : start + 3] == [1.0, 2.0, 3.0]  # 4 samples / 2 recorded * 0.5
    assert times[:3] == times[3:]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worker,seconds\n0,1\n", "iteration"),
        ("worker,iteration,seconds\n0,0,nan\n", "finite"),
        ("worker,iteration,seconds\n", "a row"),
        ("worker,iteration,seconds\n0,0,-1\n", ">= 0"),
    ],
)
def test_a_bad_record_is_refused_in_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(wb.SettingError, match=words):
        DelayStream(build({"kind": "replay", "path": table(tmp_path, text)}), 0, 1).draw(0)


def test_a_missing_record_is_refused() -> None:
    with pytest.raises(wb.SettingError, match=r"delays.path = 'nowhere.csv'"):
        DelayStream(build({"kind": "replay", "path": "nowhere.csv"}), 0, 1).draw(0)


def test_an_experiment_of_the_record(tmp_path: Path) -> None:
    path = table(tmp_path, "experiment,worker,iteration,seconds\na,0,0,1\na,1,0,3\nb,0,0,50\nb,1,0,70\n")
    only = DelayStream(build({"kind": "replay", "path": path, "experiment": "b"}), 0, 2).draw(0)
    assert sorted(only[0]) == [50, 70]
    pooled = DelayStream(build({"kind": "replay", "path": path}), 0, 4).draw(0)
    np.testing.assert_allclose(sorted(pooled[0]), [1, 50 / 30, 70 / 30, 3])  # b's median 60 becomes a's 2
    with pytest.raises(wb.SettingError, match=r"experiment = 'c'.*a, b"):
        DelayStream(build({"kind": "replay", "path": path, "experiment": "c"}), 0, 4).draw(0)


@pytest.mark.skipif(not TRACES.is_file(), reason="the recorded EC2 traces are not beside this checkout")
def test_recorded_ec2_workers_keep_their_pace() -> None:
    """One worker in fifteen is ten times slower for the whole run: UMW waits for it every round, a code never."""
    delays = {"kind": "replay", "path": str(TRACES), "experiment": "ec2-7"}
    common: dict[str, Any] = {"workers": 15, "rounds": 30, "problem": "unit", "problem_args": {"samples": 15}}
    umw = wb.forecast(wb.Experiment(scheme="UMW", **common, delays=delays))
    ignore = wb.forecast(wb.Experiment(scheme="SGD", scheme_args={"stragglers": 1}, **common, delays=delays))
    assert umw.mean > 8 * ignore.mean

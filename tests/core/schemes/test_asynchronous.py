"""Asynchronous SGD: its weights, its forecast, deaths, real processes, and resumed runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import DELAYS, LINKS
from workbench.core import forecasting
from workbench.core.checking.scheme import forecasts
from workbench.core.contract.protocol import CODED, MODEL, PEER_LOST, Message, Node, Recv, Send
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline
from workbench.core.schemes.asynchronous import ASGD, FedBuff
from workbench.mpi.running.real import resume, start_real
from workbench.mpi.running.replay import replay_arrivals

SPEC: dict[str, Any] = {
    "scheme": "ASGD",
    "workers": 5,
    "rounds": 60,
    "problem": "least_squares",
    "problem_args": {"samples": 100, "features": 10},
    "optimiser_args": {"step": 1e-2},
    "delays": {"kind": "shifted_exponential", "shift": 2e-4, "rate": 5e3},
}


def commits(**fields: Any) -> list[Any]:
    e = wb.Experiment(**{**SPEC, **fields})
    weights = Coefficients(e.plan)
    timeline(e, weights, events=False)
    return weights.weights


@pytest.mark.parametrize(("scheme", "size"), [("ASGD", 1), ("FedBuff", 4)])
def test_asgd_weights_are_one_on_average(scheme: str, size: int) -> None:
    args = {"damping": 0.0} if size == 1 else {"damping": 0.0, "buffer": size}
    found = commits(scheme=scheme, scheme_args=args, rounds=6000 // size)
    totals = np.array(
        [np.ones(5) if w is None else w.total(5) if isinstance(w, VersionedWeights) else w for w in found]
    )
    np.testing.assert_allclose(totals.sum(axis=1), 5.0)
    np.testing.assert_allclose(totals.mean(axis=0), 1.0, atol=0.06)


def test_asgd_stale_answers_have_less_weight() -> None:
    plan = ASGD().plan(5, 100)
    assert [ASGD(damping=1.0).weight(t, plan) for t in (0, 1, 4)] == [5.0, 2.5, 1.0]
    assert FedBuff(buffer=2).weight(3, plan) == pytest.approx(5 / 2 / np.sqrt(1 + 3))


@given(delays=DELAYS, link=LINKS, buffer=st.integers(1, 5), seed=st.integers(0, 99))
def test_asgd_forecast_counts_decoding(
    delays: dict[str, Any], link: dict[str, Any], buffer: int, seed: int
) -> None:
    """While the master decodes, other answers wait."""
    spec = {**SPEC, "scheme": "FedBuff", "scheme_args": {"buffer": buffer}, "rounds": 12, "seed": seed}
    forecasts(FedBuff, {**spec, "delays": delays, "link": link, "decode_rate": 200.0})


def test_asgd_forecast_continues_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    e = wb.Experiment(**SPEC, link={"latency": 1e-4, "bandwidth": 1e6})
    whole = wb.forecast(e)
    monkeypatch.setattr(forecasting, "MAX_TIMES_PER_BATCH", 7 * e.workers)
    np.testing.assert_array_equal(wb.forecast(e).seconds, whole.seconds)


def test_asgd_runs_without_dead_workers() -> None:
    faults = [{"worker": w, "round": w} for w in range(1, 5)]
    trace = wb.run(wb.Experiment(**SPEC, faults=faults))
    assert len(trace.rounds) == 60
    late = trace.events.query("kind == 'send' and to == 0 and round > 20")
    assert set(late["rank"]) == {5}
    with pytest.raises(wb.QuorumLost):
        wb.run(wb.Experiment(**SPEC, faults=[*faults, {"worker": 5, "round": 9}]))


def test_asgd_refused_worker_computes_again() -> None:
    plan = ASGD().plan(2, 10)
    program = ASGD().program(Node(0, plan, 3, 1, "start", lambda: 0.0))
    assert program.send(None) == Send((1, 2), MODEL, 0, "start")
    assert isinstance(program.send(None), Recv)
    answer = program.send(Message(2, PEER_LOST, 0, 0, "damaged"))
    assert answer == Send(2, MODEL, 0, "start")
    assert isinstance(program.send(None), Recv)
    program.send(Message(1, CODED, 0, 0, 1.0))
    assert program.send(None).gradient == 2.0


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
class TestRealProcesses:
    """The same program on real ranks."""

    def test_asgd_staleness_is_as_in_theory(self, tmp_path: Path) -> None:
        e = wb.Experiment(**{**SPEC, "rounds": 300})
        trace = wb.run(e, engine="mpi", folder=tmp_path / "run")
        assert len(trace.rounds) == 300
        assert np.array_equal(replay_arrivals(tmp_path / "run")[-1], trace.model)
        taken = trace.events.query("kind == 'send' and to == 0").sort_values("end", kind="stable")
        ages = np.arange(300) - taken["round"].to_numpy()[:300]
        assert (ages >= 0).all()
        assert ages[:5].max() <= 4
        assert 3.6 < ages.mean() <= 4.0  # n - 1, minus the answers under way at the end
        assert np.bincount(taken["rank"], minlength=6)[1:].min() > 20
        loss = trace.rounds["loss"].to_numpy()
        sim = wb.run(e).rounds["loss"].to_numpy()
        assert loss[-1] < 0.5 * loss[0]
        assert abs(np.log(loss[-1] / sim[-1])) < abs(np.log(sim[0] / sim[-1]))

    def test_asgd_stopped_run_is_resumed(self) -> None:
        run = start_real(wb.Experiment(**{**SPEC, "scheme": "FedBuff", "rounds": 400}))
        while len(run.rows()["round"]) < 10:
            assert not run.wait(0.01), run
        run.stop()
        assert len(run.result().rounds) < 400
        trace = resume(run.home).result()
        assert len(trace.rounds) == 400
        with pytest.raises(wb.RunError, match="the run was resumed"):
            replay_arrivals(run.home)
        loss = trace.rounds["loss"].to_numpy()
        assert loss[-1] < 0.5 * loss[0]

"""Adaptive controller of rank 0: rounds left, dead ranks, and rounds that are not evaluated. Without MPI."""

from __future__ import annotations

import pytest

import workbench as wb
from workbench.core.contract.delays import DelayStream
from workbench.core.engine.timeline import SchemeChanged

pytest.importorskip("mpi4py")

from tests.support.lone_rank import GivenMessages, LoneContext
from workbench.mpi.engine.learner import Learner
from workbench.mpi.engine.rank import RankEngine
from workbench.mpi.engine.setup import Setup
from workbench.mpi.launch.rank import adaptation as adaptation_module
from workbench.mpi.launch.rank.adaptation import Adaptation

WORKERS, ROUNDS, TASK_S = 4, 12, 0.1
LATE = {"downloads": True, "download_delays": {"kind": "pareto"}}  # a link on which models arrive late


def adapted() -> Adaptation:
    """Return rank 0 of an adaptive run that begins with the uncoded scheme."""
    spec = {
        "workers": WORKERS,
        "rounds": ROUNDS,
        "problem": "least_squares",
        "problem_args": {"samples": 120},
    }
    e = wb.Experiment(scheme="UMW", adaptive=True, link=LATE, **spec)
    problem, optimiser = e.build_problem(), e.build_optimiser()
    learner = Learner(e.plan, problem, optimiser, 0, problem.start(), optimiser.start(problem))
    delays = DelayStream(e.delays, 0, WORKERS)
    setup = Setup(e.built_scheme, e.plan, ROUNDS, learner.model.size, delays, e.line, "nothing")
    return Adaptation(
        e.adaptive_controller(), setup, RankEngine(setup, LoneContext(GivenMessages(), learner)).mailbox
    )


def commit(adaptation: Adaptation, round: int, slow: float = 1.0, complete: bool = True) -> None:
    """Report the computing times of a round and one answer, then commit the round. Worker 4 is `slow` times as slow."""
    end = (round + 1) * TASK_S * slow
    for rank in range(1, WORKERS + 1):
        adaptation.controller.took(round, rank, TASK_S * (slow if rank == WORKERS else 1), 30)
    adaptation.controller.received(1, 1.0, end - 0.01, end - 0.005, end)
    adaptation.committed(round, end, 0.0, 0.0, lambda: complete)
    adaptation.mailbox.run_deferred()


def test_adaptation_passes_the_rounds_after_the_change() -> None:
    adaptation = adapted()
    for round in range(2):
        commit(adaptation, round, slow=9.0)
    with pytest.raises(SchemeChanged) as turned:
        commit(adaptation, 2, slow=9.0)
    change = turned.value.change
    assert f"; {ROUNDS - change.round} rounds are left" in change.reason


def test_adaptation_stores_no_times_after_the_death_of_a_rank() -> None:
    adaptation = adapted()
    for round in range(ROUNDS):
        commit(adaptation, round, complete=False)
    assert set(adaptation.controller.seen) == {ROUNDS - 1}
    assert len(adaptation.controller.sent) == 1


def test_adaptation_discards_rounds_that_rank_0_has_no_time_to_evaluate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adaptation_module, "MAX_EVALUATION_SHARE", 0.0)
    adaptation = adapted()
    for round in range(ROUNDS):
        commit(adaptation, round)
    assert adaptation.controller.times.rounds == 1
    assert set(adaptation.controller.seen) == {ROUNDS - 1}
    assert len(adaptation.controller.sent) == 1

"""Commits by order statistics against those of the event engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES
from workbench.analysis.planning import star_commits as module
from workbench.analysis.planning.star_commits import star_commits
from workbench.analysis.planning.targets import commits_and_ends
from workbench.core import schemes
from workbench.core.contract.exchanges import GradientSum, equal_weights
from workbench.core.contract.protocol import Node, Program
from workbench.core.contract.round_times import TieOrder, arrival_order
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

STARS = ["SGD", "Backup", "FRC", "CRC", "IS-GC", "ErasureHead", "SGC", "BGC", "GGC"]
CLOCKED = ("deadline", "tolerance", "shuffle", "straggling")  # parameters that need the event engine
LINKS = [
    {},
    {"latency": 1e-3, "bandwidth": 1e5, "downloads": True},
    {"bandwidth": 1e5, "delays": {"kind": "exponential", "mean": 2e-3}},
    {"latency": 1e-3, "downloads": True, "download_delays": {"kind": "exponential", "mean": 5e-3}},
    {"latency": 1e-3, "bandwidth": 1e5, "groups": [{"workers": [1], "latency": 0.01, "bandwidth": 2e4}]},
]
DELAYS = [
    {"kind": "shifted_exponential"},
    {"kind": "constant"},
    {"kind": "markov", "p_slow": 0.2},
    {"kind": "two_part", "t1": 1e-3, "lambda1": 1e3, "t2": 1e-3, "lambda2": 1e2},
]


@pytest.mark.parametrize("name", STARS)
@settings(max_examples=12)
@given(data=st.data())
def test_star_commits_equal_the_event_engines(name: str, data: st.DataObject) -> None:
    drawn, workers = data.draw(CASES[name])
    batch = data.draw(st.sampled_from([None, 3 * workers]))
    e = wb.Experiment(
        scheme=name,
        scheme_args={field: value for field, value in drawn.items() if field not in CLOCKED},
        workers=workers,
        rounds=6,
        batch=batch,
        seed=data.draw(st.integers(0, 99)),
        problem="least_squares",
        problem_args={"samples": 12 * workers, "features": 2},
        delays=data.draw(st.sampled_from(DELAYS)),
        link=data.draw(st.sampled_from(LINKS)),
    )
    found = star_commits(e)
    assert found is not None
    commits, ends = found
    simulated = Coefficients(e.plan, e.sampler)
    assert ends == pytest.approx(timeline(e, simulated, events=False).times)
    assert commits.shares == pytest.approx(simulated.shares)
    for own, other in zip(commits.weights, simulated.weights, strict=True):
        assert (own is None) == (other is None)
        if own is not None:
            np.testing.assert_allclose(own, other, atol=1e-9)


def test_star_commits_do_not_depend_on_the_number_of_rounds_drawn_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    e = wb.Experiment(scheme="FRC", workers=6, rounds=7)
    whole, drawn = star_commits(e), list[int]()

    def counted(arrivals: np.ndarray, ties: TieOrder) -> np.ndarray:
        drawn.append(len(arrivals))
        return arrival_order(arrivals, ties)

    monkeypatch.setattr(module, "MAX_TIMES_PER_BATCH", 18)
    monkeypatch.setattr(module, "arrival_order", counted)
    batched = star_commits(e)
    assert whole is not None
    assert batched is not None
    assert drawn == [3, 3, 1]
    np.testing.assert_array_equal(batched[1], whole[1])
    np.testing.assert_array_equal(batched[0].weights, whole[0].weights)


@pytest.mark.parametrize(
    ("scheme", "args"),
    [
        ("ASGD", {}),
        ("FRC", {"deadline": 0.1}),
        ("CRC", {"shuffle": "random"}),
        ("DSAG", {}),
        ("LocalSGD", {}),
    ],
)
def test_no_star_commits_of_masters_that_do_not_count_answers(scheme: str, args: dict[str, object]) -> None:
    assert star_commits(wb.Experiment(scheme=scheme, scheme_args=args)) is None


@pytest.mark.parametrize(
    "fields", [{"faults": ({"kind": "kill", "worker": 2, "round": 3},)}, {"adaptive": True, "scheme": "GC"}]
)
def test_no_star_commits_of_runs_with_faults_or_changes_of_scheme(fields: dict[str, Any]) -> None:
    assert star_commits(wb.Experiment(**{"scheme": "SGD", **fields})) is None


def test_no_star_commits_by_the_rule_of_a_base_with_another_program() -> None:
    class Other(schemes.get("SGD")):  # type: ignore[misc]
        name = "OtherMaster"

        def program(self, node: object) -> object:
            return super().program(node)

    assert star_commits(wb.Experiment(scheme="OtherMaster")) is None


def test_commits_of_a_users_scheme_are_those_of_its_program() -> None:
    class WaitsForAll(schemes.get("SGD")):  # type: ignore[misc]
        """SGD whose rule, for training scripts, does not describe its program: late answers count."""

        name = "WaitsForAll"

        def program(self, node: Node) -> Program:
            return schemes.get("UMW")().program(node)

        def exchange_rule(self, workers: int) -> GradientSum:
            return GradientSum(np.eye(workers), workers - 1, equal_weights(workers))

    e = wb.Experiment(scheme="WaitsForAll", workers=4, rounds=3)
    assert WaitsForAll.has_rule()
    commits, _ = commits_and_ends(e)
    assert [decoding is None or decoding.tolist() == [1.0] * 4 for decoding in commits.weights] == [True] * 3

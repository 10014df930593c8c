"""Ties: the order of simultaneous events is drawn, in simulations and in forecasts."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES, TIED_STEP_TIMES, experiments
from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayStream, ShiftedExponential
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.engine.virtual.sim import SimSetup, simulate
from workbench.core.running.simulated import timeline

UNIT: dict[str, Any] = {"problem": "unit", "problem_args": {"samples": 12}, "workers": 12}
CONSTANT = {"kind": "constant", "shift": 0.01}
CHEAP = [name for name in CASES if not wb.schemes.get(name).numeric]
LINKS = [{}, {"latency": 0.3}, {"bandwidth": 1e3}, {"latency": 1e-3, "bandwidth": 1e6, "downloads": True}]


def events_of(e: wb.Experiment) -> Timeline:
    return timeline(e, Coefficients(e.plan), events=True)


def answered(timeline: Timeline, to: int = 0) -> list[frozenset[int]]:
    """Return for every round the ranks whose answers a node used."""
    sets: list[set[int]] = [set() for _ in timeline.times]
    for round, src, kind, *_, receiver, _, _ in timeline.events:
        if kind == "send" and receiver == to and src != 0:
            sets[round].add(src)
    return [frozenset(s) for s in sets]


def shares(e: wb.Experiment) -> Array:
    """Return the share of the rounds in which the master used each worker's answer."""
    sets = answered(events_of(e))
    return np.array([np.mean([rank in got for got in sets]) for rank in range(1, e.workers + 1)])


def enumerated(scheme: str, args: dict[str, Any]) -> Array:
    """Return the squared error of the decoding vector for each set of answers that the master could wait for."""
    code = wb.schemes.get(scheme)(**args).build_code(12)
    return np.array([code.decode(s).residual for s in combinations(range(12), args["wait_for"])])


@pytest.mark.parametrize(
    ("delay_model", "link"), [*((CONSTANT, link) for link in LINKS), ({"kind": "constant", "shift": 0.0}, {})]
)
def test_ties_give_errors_of_random_survivor_sets(delay_model: dict[str, Any], link: dict[str, Any]) -> None:
    """Of 12 workers with equal times, the first 9 count.

    Of FRC's 6 pairs, 6 C(10,1) / C(12,3) are missing on average.
    """
    args, rounds = {"replication": 2, "wait_for": 9}, 1500
    for scheme in ("FRC", "CRC"):
        errors = enumerated(scheme, args)
        e = wb.Experiment(
            scheme=scheme, scheme_args=args, **UNIT, rounds=rounds, delays=delay_model, link=link
        )
        found = np.mean(events_of(e).residuals)
        assert abs(found - errors.mean()) < 4 * errors.std() / np.sqrt(rounds), scheme
    frc, crc = (enumerated(scheme, args).mean() for scheme in ("FRC", "CRC"))
    assert frc == pytest.approx(2 * 6 * 10 / 220)
    assert frc < crc


@pytest.mark.parametrize(
    ("delay_model", "link"),
    [
        (CONSTANT, LINKS[1]),
        ({"kind": "markov"}, LINKS[2]),
        ({"kind": "replay", "path": str(TIED_STEP_TIMES), "samples": 1.0}, LINKS[3]),
    ],
)
def test_ties_exclude_every_worker_equally_often(delay_model: dict[str, Any], link: dict[str, Any]) -> None:
    """SGD leaves out 3 of 12 workers.

    The shares are averaged over seeds, since a worker may be slow for some rounds or for the whole run.
    """
    runs = [
        wb.Experiment(
            scheme="SGD",
            scheme_args={"stragglers": 3},
            **UNIT,
            rounds=10,
            seed=s,
            delays=delay_model,
            link=link,
        )
        for s in range(150)
    ]
    found = np.array([shares(e) for e in runs])
    assert np.abs(found.mean(axis=0) - 0.75).max() < 4.5 * found.std() / np.sqrt(len(runs))


def test_ties_among_slow_workers_are_broken_uniformly() -> None:
    """The master waits for 8 of 12 workers. Slow workers always straggle, so all others come first."""
    delay_model = {"kind": "heterogeneous", "slow": 0.5, "slow_straggles": 1.0, "active_straggles": 0.0}
    e = wb.Experiment(
        scheme="SGD", scheme_args={"stragglers": 4}, **UNIT, rounds=2000, seed=1, delays=delay_model
    )
    slow = DelayStream(e.delays, e.seed, 12).draw(0)[1] > 0
    left = 8 - np.count_nonzero(~slow)
    assert 0 < left < slow.sum()
    found, share = shares(e), left / slow.sum()
    assert (found[~slow] == 1.0).all()
    np.testing.assert_allclose(found[slow], share, atol=4 * np.sqrt(share * (1 - share) / e.rounds))


def test_ties_in_a_tree_are_broken_uniformly() -> None:
    e = wb.Experiment(
        scheme="CR", scheme_args={"children": 3, "layers": 2, "stragglers": 1}, workers=12, rounds=1500,
        problem="unit", problem_args={"samples": 45}, delays=CONSTANT, link={"latency": 1e-3},
    )  # fmt: skip
    assert len(set(e.plan.loads[1:])) == 1
    line = events_of(e)
    for parent in range(4):
        sets = answered(line, parent)
        for child in e.plan.children[parent]:
            share = np.mean([child in got for got in sets if got])
            assert share == pytest.approx(2 / 3, abs=4 * np.sqrt(2 / 9 / e.rounds))


def test_ties_are_common_to_compared_schemes() -> None:
    common: dict[str, Any] = {**UNIT, "rounds": 20, "delays": CONSTANT}
    three = [
        wb.Experiment(scheme="SGD", scheme_args={"stragglers": 3}, **common),
        wb.Experiment(scheme="FRC", scheme_args={"replication": 2, "wait_for": 9}, **common),
        wb.Experiment(scheme="GC", scheme_args={"stragglers": 3}, **common, link={"bandwidth": 1e3}),
    ]
    sgd, frc, gc = (answered(events_of(e)) for e in three)
    assert sgd == frc == gc
    assert len(set(sgd)) > 10
    other = answered(events_of(three[0].replace(seed=1)))
    assert other != sgd


class Unasked(DelayStream):
    """Delay stream that raises an error if the order of workers is requested."""

    def ties(self, round: int) -> Array:
        raise AssertionError(f"ties of round {round} were asked for")


@given(experiments(CHEAP, rounds=6), st.floats(1.0, 1e5))
def test_ties_are_not_drawn_without_equal_times(spec: dict[str, Any], rate: float) -> None:
    delay_model = {"kind": "shifted_exponential", "rate": rate, "shift": 1e-3}
    e = wb.Experiment(**{**spec, "delays": delay_model, "problem_args": {"samples": 300}})
    assume(e.plan.loads[1:].min() > 0)
    assume(e.scheme != "M-SGC")  # a worker's messages of a round leave at the same time
    world = SimSetup(e.rounds, e.shape()[1], Unasked(e.delays, e.seed, e.workers), e.link)
    arithmetic = Coefficients(e.plan)
    alone = simulate(e.built_scheme, e.plan, world, arithmetic)
    assert alone.times == events_of(e).times


@given(st.integers(1, 12), st.integers(0, 10_000), st.sampled_from([0.0, 0.01]))
def test_event_rounds_of_a_star_are_order_statistics(needed: int, seed: int, latency: float) -> None:
    e = wb.Experiment(
        scheme="SGD", scheme_args={"stragglers": 12 - needed}, **UNIT, rounds=8, seed=seed, link={"latency": latency}
    )  # fmt: skip
    stream, now, times = DelayStream(ShiftedExponential(), seed, 12), 0.0, []
    for r in range(e.rounds):
        now = float(np.sort(now + stream.whole(r, e.plan.loads[1:]) + latency)[needed - 1])
        times.append(now)
    assert events_of(e).times == times


@given(st.sampled_from([0.1, 0.3, 0.7]), st.sampled_from([0.0, 0.1, 0.2]), st.integers(0, 3), st.booleans())
def test_deadline_includes_arrivals_at_the_same_moment(
    seconds: float, latency: float, slots: int, downloads: bool
) -> None:
    """In each round the port passes equally many messages, whatever the rounding of start + seconds + latency."""
    transfer = 0.1 if slots else 0.0
    link = {"latency": latency, "bandwidth": 8 * 12 / transfer if slots else None, "downloads": downloads}
    way = seconds + (latency + transfer) * (1 + downloads)
    e = wb.Experiment(
        scheme="FRC", scheme_args={"deadline": way + max(slots - 1, 0) * transfer}, **UNIT, rounds=40, link=link,
        delays={"kind": "constant", "shift": seconds / 2},
    )  # fmt: skip
    line = events_of(e)
    assert line.messages == [slots or 12] * e.rounds
    f = wb.forecast(e)
    assert f.messages == (slots or 12)
    np.testing.assert_allclose(f.seconds, np.diff(line.times, prepend=0.0))

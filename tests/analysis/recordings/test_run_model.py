"""Rounds of a run, computed again by the rule of the scheme after some cause was removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import workbench as wb
from workbench.analysis.recordings.run_model import (
    COMPUTE,
    DECODING,
    PORT,
    SLOWER,
    WAITING,
    Cause,
    Rounds,
    split,
)
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

SLOW = {"kind": "heterogeneous", "slow": 0.2, "slow_straggles": 0.9}


def run(scheme: str, **more: Any) -> wb.Trace:
    fields = {"workers": 12, "rounds": 60, "delays": SLOW, "problem_args": {"samples": 120}, **more}
    return wb.run(wb.Experiment(scheme=scheme, **fields))


@pytest.mark.parametrize(
    ("scheme", "args"),
    [
        ("UMW", {}),
        ("GC", {"stragglers": 3}),
        ("CR", {"children": 3, "layers": 2, "stragglers": 1}),
        ("RAR", {}),
        ("SGD", {"stragglers": 4}),
        ("CEGC", {"load": 4, "stragglers": 2}),
    ],
)
@pytest.mark.parametrize("link", [{}, {"bandwidth": 1e5, "latency": 1e-4}])
def test_rounds_of_measured_times_equal_the_run(
    scheme: str, args: dict[str, int], link: dict[str, float]
) -> None:
    """For cancelled work, only a lower bound of the time is known.

    Cancelled work affects no round, since the scheme did not wait for it.
    """
    trace = run(scheme, scheme_args=args, link=link, decode_rate=None if scheme == "RAR" else 1e7)
    again = Rounds.of(trace).lasting()
    np.testing.assert_allclose(again, np.diff(trace.columns["time"], prepend=0.0), rtol=1e-6)


def test_rounds_without_a_cause_equal_a_run_without_it() -> None:
    link = {"bandwidth": 1e5}
    found = Rounds.of(run("UMW", link=link, decode_rate=1e6))
    free = Rounds.of(run("UMW"))
    np.testing.assert_allclose(found.lasting([PORT, DECODING]), free.lasting(), rtol=1e-9)
    even = found.lasting([Cause(COMPUTE, tuple(range(12))), PORT, DECODING])
    np.testing.assert_allclose(even, np.median(found.seconds, axis=1))


@settings(max_examples=20, deadline=None)
@given(arrays(float, (2, 4, 3), elements=st.floats(0.5, 2.0)))
def test_rounds_computing_is_waiting_plus_processor_time(drawn: Array) -> None:
    """The two factors of a computing time are multiplied.

    Removing a cause from all workers limits its factor in each round to the median over the workers.
    """
    waits, work = drawn
    found = split(waits * work, work)
    np.testing.assert_allclose(
        found[WAITING] * found[SLOWER] / (waits * work), np.median(waits) * np.median(work)
    )
    trace = run("UMW", workers=3, rounds=4)
    rounds = replace(Rounds.of(trace), seconds=waits * work, processor=work)
    np.testing.assert_allclose(rounds.lasting(), (waits * work).max(axis=1))
    usual = [np.minimum(each, np.median(each, axis=1, keepdims=True)) for each in (waits, work)]
    both = [Cause(WAITING, (0, 1, 2)), Cause(SLOWER, (0, 1, 2))]
    np.testing.assert_allclose(rounds.lasting(both), (usual[0] * usual[1]).max(axis=1))
    np.testing.assert_allclose(rounds.lasting(both[:1]), (usual[0] * work).max(axis=1))


def test_rounds_shapley_values_are_efficient_and_symmetric() -> None:
    found = Rounds.of(run("UMW", link={"bandwidth": 1e5}))
    causes = [*(Cause(COMPUTE, (i,)) for i in (0, 4, 5, 7)), PORT]
    values = found.shapley(causes)
    total = found.lasting() - found.lasting(causes)
    np.testing.assert_allclose(sum(values.values()), total, atol=1e-12)


def test_rounds_of_a_coded_run_do_not_blame_tolerated_workers() -> None:
    uncoded, coded = wb.diagnose(run("UMW")), wb.diagnose(run("GC", scheme_args={"stragglers": 4}))
    slow = {one.who for one in uncoded.culprits}
    assert len(slow) == 3
    assert set(coded.harmless) == slow
    assert not coded.culprits
    assert "the scheme does without" in str(coded)
    assert uncoded.slowdown > 5 > 1.2 > coded.slowdown


def test_diagnose_names_port_and_decoding_of_a_run() -> None:
    (port,) = wb.diagnose(run("UMW", delays={"kind": "constant"}, link={"bandwidth": 1e5})).culprits
    assert port.who == "the port"
    (decoding,) = wb.diagnose(run("GC", delays={"kind": "constant"}, decode_rate=1e3)).culprits
    assert decoding.who == "decoding"


def test_diagnose_refuses_runs_without_a_round_model() -> None:
    with pytest.raises(SettingError, match="its draws alone do not determine"):
        wb.diagnose(run("CADA", rounds=10))
    with pytest.raises(SettingError, match="answer several times a round"):
        wb.diagnose(run("UC-MMC", rounds=10))
    bare = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5), events=False)
    with pytest.raises(SettingError, match="kept no events"):
        wb.diagnose(bare)

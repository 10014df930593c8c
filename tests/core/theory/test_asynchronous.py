"""Closed forms of asynchronous SGD against the virtual clock, for any delays and links."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import DELAYS, LINKS
from workbench.core.contract.weights import VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline
from workbench.core.theory import async_rate, async_staleness


def ages(e: wb.Experiment) -> list[int]:
    """Return the staleness of every committed answer, in commits."""
    commits = Coefficients(e.plan)
    timeline(e, commits, events=False)
    found = []
    for t, weights in enumerate(commits.weights):
        if isinstance(weights, VersionedWeights):  # a single answer, with the weights of all its parts
            share = weights.weights / e.workers * getattr(e.built_scheme, "size", 1)
            found += np.repeat(t - weights.versions, np.rint(share).astype(int)).tolist()
        else:
            found += [0] * getattr(e.built_scheme, "size", 1)
    return found


@given(
    delays=DELAYS, link=LINKS, workers=st.integers(1, 8), buffer=st.integers(1, 9), seed=st.integers(0, 99)
)
def test_async_staleness_grows_with_every_commit(
    delays: dict[str, Any], link: dict[str, Any], workers: int, buffer: int, seed: int
) -> None:
    """In R commits, staleness sums to (R - 1) (N - 1), minus that of the answers under way at the last commit."""
    e = wb.Experiment(
        scheme="FedBuff", scheme_args={"buffer": buffer, "damping": 0.0}, workers=workers, rounds=40,
        seed=seed, delays=delays, link=link, problem="unit", problem_args={"samples": 50},
    )  # fmt: skip
    found = ages(e)
    assert len(found) == 40 * buffer
    missing = 39 * (workers - 1) - sum(found)
    assert missing >= 0
    even = delays["kind"] not in ("heterogeneous", "replay", "pareto")
    assert not even or missing <= 3 * workers * max(workers - 1, 1)


@pytest.mark.parametrize("buffer", [1, 3])
def test_async_rate_and_staleness(buffer: int) -> None:
    e = wb.Experiment(
        scheme="FedBuff", scheme_args={"buffer": buffer, "damping": 0.0}, workers=6, rounds=3000 // buffer,
        delays={"kind": "shifted_exponential", "shift": 1e-3, "rate": 500.0},
        problem="unit", problem_args={"samples": 60},
    )  # fmt: skip
    mean = 10 * (1e-3 + 1 / 500.0)
    rate = e.rounds / float(wb.forecast(e).seconds.sum())
    assert rate == pytest.approx(async_rate([mean] * 6, buffer), rel=0.04)
    assert np.mean(ages(e)) == pytest.approx(async_staleness(6, buffer), rel=0.02)


@pytest.mark.parametrize(
    "call", [lambda: async_rate([]), lambda: async_rate([1.0, 0.0]), lambda: async_staleness(0)]
)
def test_async_rate_refuses_arguments_out_of_range(call: Any) -> None:
    with pytest.raises(wb.SettingError):
        call()

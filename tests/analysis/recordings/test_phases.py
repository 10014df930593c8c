"""Phases of the steps of a recording, and their shares of the lost time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import workbench as wb
from workbench.analysis.recordings import Recording
from workbench.analysis.recordings.attribution import excess_over_median
from workbench.analysis.recordings.phases import Phases
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array

TIMES = arrays(float, (4, 3), elements=st.integers(1, 9).map(float))


def recorded(**phases: Array) -> Recording:
    """Make a recording with one row per value. "_" in a name stands for ": ", which separates layers."""
    rows = [
        (worker, step, phase.replace("_", ": "), seconds, "ab"[worker % 2])
        for phase, times in phases.items()
        for (step, worker), seconds in np.ndenumerate(times)
    ]
    return Recording.of_rows(
        pd.DataFrame(rows, columns=["worker", "step", "phase", "seconds", "host"]), "parts"
    )


@settings(max_examples=12, deadline=None)
@given(TIMES, TIMES, TIMES, TIMES)
def test_phases_shares_sum_to_the_total(compute: Array, send: Array, wait: Array, decode: Array) -> None:
    parts = Phases.of(recorded(compute=compute, send=send, wait=wait, decode=decode))
    even = parts.even_without(())
    workers, port, decoding = parts.shares(excess_over_median(parts.own_seconds), even)
    alone = parts.own_seconds.max(axis=1) > even  # steps with a worker that is later than the others
    lost = (parts.lasting() - even)[alone]
    np.testing.assert_allclose((workers.sum(axis=1) + port + decoding)[alone], lost)
    np.testing.assert_allclose(decoding, decode.sum(axis=1))
    assert parts.hosts == {"a": [0, 2], "b": [1]}


def test_phases_refuse_what_was_not_recorded() -> None:
    ones = np.ones((3, 2))
    assert Phases.of(recorded(compute=ones)).left_out.startswith("links and ports and decoding")
    assert "links" not in Phases.of(recorded(compute=ones, send=ones)).left_out
    with pytest.raises(SettingError, match="has one worker"):
        Phases.of(recorded(compute=np.ones((3, 1))))


@pytest.mark.parametrize(
    ("factors", "what"),
    [((1.0, 3.0, 1.0), "layer b"), ((1.5, 1.5, 1.5), "compute"), ((1.0, 1.0, 3.0), "compute")],
)
def test_phases_name_the_layer_that_is_slow(factors: tuple[float, ...], what: str) -> None:
    """Layer b explains most of the time. The time outside of all layers is computing."""
    rng = np.random.default_rng(0)
    times = [level * (1 + 0.05 * rng.random((40, 6))) for level in (0.2, 0.6, 0.2)]
    for each, factor in zip(times, factors, strict=True):
        each[:, 4] *= factor
    found = recorded(compute_a=times[0], compute_b=times[1], compute=times[2])
    np.testing.assert_allclose(found.table(), sum(times))
    (one,) = wb.diagnose(found).culprits
    assert (one.who, one.what) == ("worker 4", what)
    assert ("in layer b" in str(wb.diagnose(found))) == (what == "layer b")

"""What the steps of a recording consist of, and how the parts share what is lost."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.base.settings import SettingError
from workbench.base.types import Array
from workbench.recordings import Recording
from workbench.recordings.blame import over_median
from workbench.recordings.parts import Parts

TIMES = arrays(float, (4, 3), elements=st.integers(1, 9).map(float))


def recorded(**phases: Array) -> Recording:
    """A row for everything."""
    rows = [
        (worker, step, phase, seconds, "ab"[worker % 2])
        for phase, times in phases.items()
        for (step, worker), seconds in np.ndenumerate(times)
    ]
    return Recording.of_rows(
        pd.DataFrame(rows, columns=["worker", "step", "phase", "seconds", "host"]), "parts"
    )


@settings(max_examples=12, deadline=None)
@given(TIMES, TIMES, TIMES, TIMES)
def test_shares_add_up_to_what_is_lost(compute: Array, send: Array, wait: Array, decode: Array) -> None:
    parts = Parts.of(recorded(compute=compute, send=send, wait=wait, decode=decode))
    workers, port, decoding = parts.shares(over_median(parts.own))
    alone = parts.own.max(axis=1) > parts.even  # else nobody is there to take a share
    lost = (parts.lasting() - parts.even)[alone]
    np.testing.assert_allclose((workers.sum(axis=1) + port + decoding)[alone], lost)
    np.testing.assert_allclose(decoding, decode.sum(axis=1))
    assert parts.hosts == {"a": [0, 2], "b": [1]}


def test_what_was_not_recorded_is_said() -> None:
    ones = np.ones((3, 2))
    assert Parts.of(recorded(compute=ones)).left_out.startswith("links and ports and decoding")
    assert "links" not in Parts.of(recorded(compute=ones, send=ones)).left_out
    with pytest.raises(SettingError, match="has one worker only"):
        Parts.of(recorded(compute=np.ones((3, 1))))

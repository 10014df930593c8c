"""Links that differ by worker: drawn message delays, bandwidths and latencies, on the engine and in forecasts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES, DELAYS, experiments
from workbench.core.checking.scheme import forecasts

BANDWIDTHS = st.sampled_from([None, 1.0, 1e3, 1e7])
LATENCIES = st.sampled_from([0.0, 1e-4, 0.3])
MESSAGE_DELAYS = st.one_of(st.just({"kind": "constant", "shift": 0.0}), DELAYS).filter(
    lambda delays: delays.get("per") != "part" and delays["kind"] != "replay"
)


@st.composite
def different_links(draw: st.DrawFn, workers: int) -> dict[str, Any]:
    """Draw a link with up to three groups of workers whose links differ."""
    group = draw(st.lists(st.integers(0, 3), min_size=workers, max_size=workers))
    groups = []
    for k in sorted(set(group) - {0}):
        found: dict[str, Any] = {"workers": [i + 1 for i, at in enumerate(group) if at == k]}
        found |= {name: value for name, value in {
            "latency": draw(st.none() | LATENCIES), "bandwidth": draw(BANDWIDTHS),
            "delays": draw(st.none() | MESSAGE_DELAYS),
        }.items() if value is not None}  # fmt: skip
        groups.append(found)
    return {
        "latency": draw(LATENCIES), "bandwidth": draw(BANDWIDTHS), "downloads": draw(st.booleans()),
        "delays": draw(MESSAGE_DELAYS), "groups": groups,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if not wb.schemes.get(name).data_dependent])
@given(data=st.data())
def test_forecasts_equal_the_engine_on_links_that_differ(name: str, data: st.DataObject) -> None:
    spec = data.draw(experiments([name]))
    forecasts(wb.schemes.get(name), {**spec, "link": data.draw(different_links(spec["workers"]))})

"""Links that differ by worker: delays, bandwidths and latencies, on the engine and in forecasts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import CASES, DELAYS, experiments
from workbench.core.base.settings import SettingError
from workbench.core.checking.scheme import forecasts
from workbench.core.contract.links import Link
from workbench.core.experiment import Description, described

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


@given(data=st.data(), workers=st.integers(1, 9), width=st.sampled_from([4, 8]))
def test_link_is_written_and_read_as_it_is(data: st.DataObject, workers: int, width: int) -> None:
    link = Link(**data.draw(different_links(workers))).carrying(width)
    again = Link(**link.model_dump(mode="json")).carrying(width)
    assert again == link
    one, other = (each.transit(3, workers) for each in (link, again))
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        np.testing.assert_array_equal(one(2, 0.5), other(2, 0.5))
    free = link.without(latency=True, transfers=True)
    assert free.transit(3, workers) is None
    assert not np.any(free.transfers(100.0, workers))


def test_link_without_groups_is_written_as_in_version_1() -> None:
    plain = wb.Experiment(link={"latency": 1e-3}).model_dump()["link"]
    assert plain == {"latency": 1e-3, "bandwidth": None, "downloads": False}


def test_link_delays_straggle_by_round_and_share() -> None:
    link = Link(delays={"kind": "pareto", "shift": 1.0}, groups=({"workers": (2,), "latency": 0.5},))
    transit = link.transit(1, 3)
    assert transit is not None
    whole, half = transit(4, 1.0), transit(4, 0.5)
    np.testing.assert_allclose(whole - [0, 0.5, 0], 2 * (half - [0, 0.5, 0]))
    assert not np.array_equal(whole, transit(5, 1.0))


def test_scheme_that_asks_for_one_transfer_time_is_refused() -> None:
    link = Link(groups=({"workers": (1,), "bandwidth": 1e3},))
    with pytest.raises(
        SettingError, match=r"^link.groups: bandwidths differ, and one for all workers is asked for"
    ):
        link.transfer(10)


@pytest.mark.parametrize(
    ("link", "found_text"),
    [
        ({"groups": [{"workers": []}]}, r"link\.groups\.0\.workers = \[\]: take at least one rank"),
        ({"groups": [{"workers": [0]}]}, r"link\.groups\.0\.workers = \[0\]: take at least one rank"),
        ({"groups": [{"workers": [5]}]}, r"link\.groups\.0\.workers = \[5\]: 5 is too large"),
        ({"groups": [{"workers": [1]}, {"workers": [1]}]}, r"link\.groups: worker 1 is in two groups"),
        ({"groups": [{"workers": [1], "latency": -1.0}]}, r"link\.groups\.0\.latency = -1\.0"),
        ({"groups": [{"workers": [1], "bandwidth": 0.0}]}, r"link\.groups\.0\.bandwidth = 0\.0"),
        ({"delays": {"kind": "shifted_exponential", "per": "part"}}, r"link\.delays: a draw for each part"),
        ({"delays": {"kind": "gamma", "shape": 0.0}}, r"link\.delays\.shape = 0\.0"),
    ],
)
def test_link_refuses_a_wrong_field_in_one_sentence(link: dict[str, Any], found_text: str) -> None:
    with pytest.raises(SettingError, match=f"^{found_text}") as caught:
        wb.Experiment(workers=4, scheme="UMW", link=link)
    assert "\n" not in str(caught.value)


def test_link_with_user_defined_delays_is_described_without_running_code() -> None:
    link = {"latency": 0.5, "delays": {"kind": "mine.py:Naps"}}
    found = described({"scheme": "UMW", "workers": 4, "link": link})
    assert (type(found), found.link.latency) == (Description, 0.5)
    assert found.spec["link"] == link

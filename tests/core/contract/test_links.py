"""Links that differ by worker: delays, bandwidths and latencies, on the engine and in forecasts."""

from __future__ import annotations

from math import comb
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
def different_links(draw: st.DrawFn, workers: int, models: bool = True) -> dict[str, Any]:
    """Draw a link with up to three groups of workers whose links differ."""
    downloads = draw(st.booleans())
    group = draw(st.lists(st.integers(0, 3), min_size=workers, max_size=workers))
    groups = []
    for k in sorted(set(group) - {0}):
        found: dict[str, Any] = {"workers": [i + 1 for i, at in enumerate(group) if at == k]}
        found |= {name: value for name, value in {
            "latency": draw(st.none() | LATENCIES), "bandwidth": draw(BANDWIDTHS),
            "delays": draw(st.none() | MESSAGE_DELAYS),
            "download_delays": draw(st.none() | MESSAGE_DELAYS) if downloads and models else None,
        }.items() if value is not None}  # fmt: skip
        groups.append(found)
    return {
        "latency": draw(LATENCIES), "bandwidth": draw(BANDWIDTHS), "downloads": downloads,
        "delays": draw(MESSAGE_DELAYS), "groups": groups,
        **({"download_delays": draw(MESSAGE_DELAYS)} if downloads and models else {}),
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in CASES if not wb.schemes.get(name).data_dependent])
@given(data=st.data())
def test_forecasts_equal_the_engine_on_links_that_differ(name: str, data: st.DataObject) -> None:
    spec = data.draw(experiments([name]))
    link = data.draw(different_links(spec["workers"], models=not wb.schemes.get(name).all_models))
    forecasts(wb.schemes.get(name), {**spec, "link": link})


@given(data=st.data(), workers=st.integers(1, 9), width=st.sampled_from([4, 8]))
def test_link_is_written_and_read_as_it_is(data: st.DataObject, workers: int, width: int) -> None:
    link = Link(**data.draw(different_links(workers))).carrying(width)
    again = Link(**link.model_dump(mode="json")).carrying(width)
    assert again == link
    for one, other in zip(
        *([each.transit(3, workers), each.download(3, workers)] for each in (link, again)), strict=True
    ):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            np.testing.assert_array_equal(one(2, 0.5), other(2, 0.5))
    free = link.without(latency=True, transfers=True)
    assert free.transit(3, workers) is None
    assert free.download(3, workers) is None
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
        (
            {"download_delays": {"kind": "weibull"}},
            r"link\.download_delays\.kind = 'weibull': models take no time",
        ),
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


def rounds_of(needed: int, link: dict[str, Any]) -> wb.Experiment:
    """Return an experiment with 6 workers whose work takes 1 s, and a master that waits for `needed` answers."""
    return wb.Experiment(
        scheme="SGD", scheme_args={"stragglers": 6 - needed}, workers=6, rounds=1500, problem="least_squares",
        problem_args={"samples": 6, "features": 3}, delays={"kind": "constant", "shift": 1.0},
        link={"downloads": True, **link},
    )  # fmt: skip


@pytest.mark.parametrize("needed", [1, 4, 6])
def test_delays_of_models_have_the_order_statistics_of_their_distribution(needed: int) -> None:
    """The k-th shortest of n exponential delays takes on average 1/n + ... + 1/(n-k+1) times the mean of one delay."""
    e = rounds_of(needed, {"latency": 0.25, "download_delays": {"kind": "gamma", "shape": 1.0, "scale": 0.5}})
    found = wb.forecast(e).seconds
    mean = 1.5 + 0.5 * sum(1 / (6 - k) for k in range(needed))
    spread = 0.5 * sum(1 / (6 - k) ** 2 for k in range(needed)) ** 0.5
    assert abs(found.mean() - mean) < 4 * spread / len(found) ** 0.5
    np.testing.assert_allclose(np.diff(wb.run(e).rounds["time"], prepend=0.0), found, rtol=1e-9)


def test_delays_of_models_by_enumeration() -> None:
    """Each of 6 models is late with probability 0.3: the round is long if fewer than 4 are in time."""
    parts = [{"kind": "constant", "shift": 0.0}, {"kind": "constant", "shift": 2.0}]
    e = rounds_of(4, {"download_delays": {"kind": "mixture", "components": parts, "shares": [0.7, 0.3]}})
    found = wb.forecast(e).seconds
    assert set(np.round(found, 9)) == {1.0, 3.0}
    late = sum(comb(6, k) * 0.7**k * 0.3 ** (6 - k) for k in range(4))
    assert abs(np.mean(found > 2) - late) < 4 * (late * (1 - late) / len(found)) ** 0.5
    rare = np.diff(wb.run(e).rounds["time"], prepend=0.0)
    np.testing.assert_allclose(rare, found, rtol=1e-9)


def test_a_model_that_a_newer_one_overtakes_is_dropped() -> None:
    """Half of worker 1's models take 10 s, so that those of later rounds arrive before them."""
    parts = [{"kind": "constant", "shift": 1e-6}, {"kind": "constant", "shift": 10.0}]
    slow = {"kind": "mixture", "components": parts, "shares": [0.5, 0.5]}
    e = rounds_of(5, {"groups": [{"workers": [1], "download_delays": slow}]}).replace(rounds=60)
    trace = wb.run(e)
    begun = trace.events[(trace.events["kind"] == "compute") & (trace.events["rank"] == 1)]
    assert (np.diff(begun["round"]) > 0).all()
    models = trace.events[(trace.events["kind"] == "send") & (trace.events["to"] == 1)]
    assert (np.diff(models["round"]) > 0).all()
    assert 0 < len(models) < 60
    assert trace.rounds["downloads"].sum() < 6 * 60


def test_random_numbers_of_models_and_answers_differ() -> None:
    delays = {"kind": "weibull", "shape": 0.7, "scale": 1.0}
    link = Link(downloads=True, delays=delays, download_delays=delays)
    up, down = link.transit(1, 5), link.download(1, 5)
    assert up is not None
    assert down is not None
    assert not np.isclose(up(3, 1.0), down(3, 1.0)).any()


def test_delays_of_models_are_written_only_if_used() -> None:
    plain = Link(delays={"kind": "weibull"}, groups=({"workers": (1,), "latency": 1.0},)).model_dump()
    assert "download_delays" not in plain
    assert "download_delays" not in plain["groups"][0]


def test_a_scheme_whose_workers_need_all_models_refuses_their_delays() -> None:
    link = {"downloads": True, "download_delays": {"kind": "weibull"}}
    with pytest.raises(
        SettingError, match=r"^link\.download_delays\.kind = 'weibull': workers of M-SGC need all models"
    ):
        wb.Experiment(scheme="M-SGC", workers=6, link=link)

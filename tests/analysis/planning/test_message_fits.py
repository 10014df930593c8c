"""Delay models of messages, fitted from profiles of clusters whose messages are delayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.analysis.planning.linkfit import PortFit, link_text
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.message_fits import _fitted
from workbench.analysis.planning.profile import ClusterProfile
from workbench.core.base.settings import SettingError
from workbench.core.contract.links import NO_DELAY

GAMMA = {"kind": "gamma", "shape": 0.7, "scale": 4e-3}
SCHEMES: list[tuple[str, dict[str, Any]]] = [
    ("UMW", {}),
    ("SGD", {"stragglers": 3}),
    ("SGD", {"stragglers": 8}),
    ("CR", {"children": 3, "layers": 2, "stragglers": 1}),
]


def cluster(delays: dict[str, Any], link: dict[str, Any]) -> wb.Experiment:
    """Return an experiment with 12 workers on a cluster with these delays and this link."""
    common = {"latency": 1e-3, "bandwidth": 8e6, "downloads": True}
    return wb.Experiment(
        scheme="UMW",
        workers=12,
        problem="logistic",
        problem_args={"data": "breast_cancer"},
        delays=delays,
        link={**common, **link},
    )


def ratios(truth: wb.Experiment, profile: ClusterProfile) -> list[float]:
    """Return for each scheme the forecast by the profile, divided by the forecast for the cluster itself."""
    every = [truth.replace(scheme=name, scheme_args=args) for name, args in SCHEMES]
    return [profile.forecast(e, 200).mean / wb.forecast(e, 200).mean for e in every]


@rotated
@pytest.mark.parametrize(("name", "off"), [("download_delays", 0.05), ("delays", 0.25)])
def test_profiles_contain_the_delays_of_messages(name: str, off: float) -> None:
    """Answers also wait for the port, so their delays are fitted less exactly than those of messages to workers.

    Without a delay model of answers, the forecast of UMW was half of the true time.
    """
    truth = cluster({"kind": "constant", "shift": 1e-4}, {name: GAMMA})
    profile = simulated(truth, 60, resamples=2)
    port = profile.fitted.port
    assert [getattr(port, each) is None for each in ("delays", "download_delays")] == [
        name != "delays", name != "download_delays"
    ]  # fmt: skip
    model = getattr(port, name)
    drawn = model.compute(model.draw(truth.delay_stream().keyed, 0, 20_000, 0, None), np.ones(20_000))
    assert drawn.mean() == pytest.approx(0.7 * 4e-3, rel=0.3)
    assert ratios(truth, profile) == pytest.approx([1.0] * len(SCHEMES), abs=off)
    assert all(type(getattr(each.port, name)) is type(model) for each in profile.resampled)
    assert f"delayed by {model.kind}" in link_text(port)
    again = ClusterProfile.model_validate_json(profile.model_dump_json())
    assert again.fitted.port == port


SLOW = {"kind": "exponential", "mean": 5e-3}  # ten times as long as the delays of other workers
FAST = {"kind": "exponential", "mean": 5e-4}


@rotated
@pytest.mark.parametrize(
    ("names", "slow"),
    [
        (("delays",), (1, 2, 3)),
        (("download_delays",), (7, 8, 9, 10, 11, 12)),
        (("delays", "download_delays"), (2, 5)),
    ],
    ids=["answers", "models", "both"],
)
def test_delays_of_messages_are_fitted_for_each_group(names: tuple[str, ...], slow: tuple[int, ...]) -> None:
    """Forecasts are right although the messages of some workers are delayed ten times as long as those of others.

    With one delay model for all workers, the forecast of UMW was up to 2.6 times the true time.
    """
    group = {"workers": slow, **dict.fromkeys(names, SLOW)}
    truth = cluster({"kind": "constant", "shift": 1e-4}, {**dict.fromkeys(names, FAST), "groups": [group]})
    profile = simulated(truth, 60, resamples=2)
    others = tuple(rank for rank in range(1, 13) if rank not in slow)
    for port in (profile.fitted.port, *(each.port for each in profile.resampled)):
        assert [each.workers for each in port.groups] in ([slow], [others])
        assert all(getattr(port.of_worker(slow[0]), name) is not None for name in names)
    assert ratios(truth, profile) == pytest.approx([1.0] * len(SCHEMES), abs=0.1)
    assert ClusterProfile.model_validate_json(profile.model_dump_json()).fitted == profile.fitted


def test_only_delayed_messages_get_a_delay_model() -> None:
    group = {"workers": (4, 5, 6), "delays": SLOW}
    profile = simulated(cluster({"kind": "constant", "shift": 1e-4}, {"groups": [group]}), 60)
    port, link = profile.fitted.port, profile.link(30)
    assert (port.of_worker(1).delays, port.groups[0].workers) == (None, (4, 5, 6))
    assert link.delays == NO_DELAY != link.groups[0].delays
    half = profile.link(30, workers=6)  # the same share of workers is delayed
    assert [each.workers for each in half.groups] == [(3,)]


@pytest.mark.parametrize(
    ("delays", "link"),
    [
        ({"kind": "constant", "shift": 1e-4}, {}),
        ({"kind": "shifted_exponential"}, {"groups": [{"workers": [1, 2], "latency": 0.02}]}),
        ({"kind": "pareto", "shift": 1e-2}, {"delays": {"kind": "gamma", "shape": 0.7, "scale": 1e-5}}),
    ],
    ids=["constant", "groups", "much shorter than tasks"],
)
def test_messages_that_hardly_vary_get_a_constant_latency(delays: dict[str, Any], link: Any) -> None:
    port = simulated(cluster(delays, link), 40).fitted.port
    assert (port.delays, port.download_delays) == (None, None)


def test_a_scheme_that_needs_all_models_is_refused_on_a_cluster_that_loses_some() -> None:
    truth = cluster({"kind": "constant", "shift": 1e-4}, {"download_delays": GAMMA})
    profile = simulated(truth, 40)
    with pytest.raises(
        SettingError, match=r"^link\.download_delays\.kind = .*: workers of M-SGC need all models"
    ):
        profile.forecast(truth.replace(scheme="M-SGC", link={}), 10)


def test_group_whose_answers_hardly_vary_keeps_its_latency() -> None:
    """Answers of half of the workers are delayed by gamma times, those of the other half by a constant 50 ms."""
    varied, constant = {"kind": "gamma", "shape": 0.7, "scale": 2e-2}, {"kind": "constant", "shift": 5e-2}
    groups = [{"workers": [1, 2, 3, 4], "delays": varied}, {"workers": [5, 6, 7, 8], "delays": constant}]
    truth = wb.Experiment(
        scheme="UMW",
        workers=8,
        problem="logistic",
        problem_args={"data": "breast_cancer"},
        delays={"kind": "constant", "shift": 1e-5},
        link={"latency": 1e-3, "bandwidth": 8e6, "groups": groups},
    )
    profile = simulated(truth, 40, resamples=2)
    for args in ({"stragglers": 2}, {"stragglers": 4}):
        e = truth.replace(scheme="SGD", scheme_args=args)
        assert profile.forecast(e, 200).mean == pytest.approx(wb.forecast(e, 200).mean, rel=0.15)
    assert profile.forecast(truth, 200).mean == pytest.approx(wb.forecast(truth, 200).mean, rel=0.15)


def test_group_whose_answers_all_waited_for_the_port_has_a_latency() -> None:
    times = np.full((20, 3), 0.05)
    ways = [[(times, np.zeros(times.shape, dtype=bool))], [(times, np.ones(times.shape, dtype=bool))]]
    link = _fitted(PortFit(latency=1e-3), ways, typical=1.0, old=None)
    assert link.latency == pytest.approx(0.051)

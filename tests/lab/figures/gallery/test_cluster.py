"""The figure of a measured cluster."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.analysis.planning.measurements import Host
from workbench.analysis.planning.measuring import simulated
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.planning.quantities import quantity_of
from workbench.lab.figures import cluster
from workbench.lab.figures.gallery.cluster import MAX_LINE_CHARACTERS, by_length, extremes, survival
from workbench.lab.figures.style import palette


@pytest.fixture(scope="module")
def measured() -> ClusterProfile:
    delays = {"kind": "heterogeneous", "slow": 0.3, "slow_straggles": 0.9}
    link = {"latency": 1e-3, "bandwidth": 1e6, "downloads": True}
    truth = wb.Experiment(scheme="UMW", workers=6, delays=delays, link=link, seed=4)
    return simulated(truth, rounds=20, resamples=3)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_cluster_has_four_panels(measured: ClusterProfile, theme: str) -> None:
    figure = cluster(measured, theme)  # type: ignore[arg-type]
    by_name = {trace.name: trace for trace in figure.data}
    most, least = extremes(measured.recorded[measured.main].times)
    assert {f"worker {most + 1} straggles most", f"worker {least + 1} straggles least"} <= set(by_name)
    assert {"measured", "heterogeneous", "answers", "models", "simulated"} <= set(by_name)
    assert by_name["measured"].line.color == palette(theme).text
    assert len(by_name["simulated"].x) == 6
    latency = quantity_of(measured.fitted.port.latency)
    assert any(name.startswith(f"fitted link: {latency}") for name in by_name)


def test_cluster_has_a_colour_for_every_host(measured: ClusterProfile) -> None:
    """A profile lists the workers of each host.

    In old profiles without these lists, hosts have consecutive workers.
    """
    for a_has, b_has, known in (([1, 2], [3, 4, 5, 6], False), ([2, 5], [1, 3, 4, 6], True)):
        hosts = [
            Host(name=n, ranks=len(who), who=who if known else None)
            for n, who in (("a", a_has), ("b", b_has))
        ]
        figure = cluster(measured.replace(hosts=tuple(hosts)))
        a, b = (next(trace for trace in figure.data if trace.name == name) for name in "ab")
        assert (a.x.tolist(), b.x.tolist()) == (a_has, b_has)
        assert a.marker.color != b.marker.color


def test_cluster_subtitle_mentions_shared_cores(measured: ClusterProfile) -> None:
    crowded = measured.replace(hosts=(Host(name="box", ranks=6, cores=2),))
    figure = cluster(crowded)
    lines = figure.layout.title.subtitle.text.split("<br>")
    assert lines[1].startswith("6 workers on 2 cores of box")
    assert " ".join(lines[1:]) == crowded.notes()[0]  # the text is complete
    assert max(map(len, lines)) <= MAX_LINE_CHARACTERS
    room = figure.layout.margin.t - cluster(measured).layout.margin.t
    assert room == figure.layout.height - cluster(measured).layout.height == 21 * (len(lines) - 2) > 0


def test_survival_keeps_the_tail() -> None:
    times = np.arange(1.0, 5001.0)
    x, y = survival(times)
    assert len(x) <= 400
    assert (x[-1], y[-1]) == (5000.0, pytest.approx(1 / 5000))
    for at, share in zip(x, y, strict=True):
        assert share == pytest.approx(np.mean(times >= at))


def test_by_length_groups_messages(measured: ClusterProfile) -> None:
    lengths, up, down = by_length(measured.recorded)
    assert len(lengths) == 3 < len(measured.recorded)
    assert up.shape == down.shape == (3, 5)


def test_cluster_omits_what_takes_no_time() -> None:
    """Answers of 1 to 5 ms have a logarithmic axis, although models take no time to send. Free links: a linear axis."""
    for link, ticks in (({"latency": 1e-3, "bandwidth": 8e6}, "D1"), ({}, None)):
        figure = cluster(simulated(wb.Experiment(scheme="UMW", workers=4, link=link), rounds=8, resamples=2))
        assert "models" not in {trace.name for trace in figure.data}
        assert figure.layout.yaxis4.dtick == ticks
        assert figure.layout.yaxis4.type == ("log" if ticks else None)


def test_cluster_of_equal_workers_and_free_links_invents_no_difference() -> None:
    equal = wb.Experiment(scheme="UMW", workers=4, delays={"kind": "constant", "shift": 0.01})
    names = [trace.name for trace in cluster(simulated(equal, rounds=8, resamples=2)).data]
    assert "worker 1 like all others" in names
    assert not [name for name in names if "straggles" in name]
    assert "fitted link: 0" in names  # not 1e-11 ns, the rounding error of the fit

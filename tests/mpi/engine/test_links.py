"""Links that differ by worker, on real ranks: emulated messages take the times of the virtual clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]

SLOW = {"workers": [1, 4], "latency": 2e-2, "bandwidth": 5e3}
LINK = {
    "latency": 2e-3, "bandwidth": 1e5, "downloads": True, "delays": {"kind": "weibull", "shape": 0.8, "scale": 1e-2},
    "download_delays": {"kind": "gamma", "shape": 0.7, "scale": 2e-2},
    "groups": [SLOW, {"workers": [2], "delays": {"kind": "constant", "shift": 0.0}}],
}  # fmt: skip
SCHEMES: list[dict[str, Any]] = [
    {"scheme": "UMW"},
    {"scheme": "GC", "scheme_args": {"stragglers": 2}},
    {"scheme": "CR", "scheme_args": {"children": 2, "layers": 2, "stragglers": 1}},
    {"scheme": "RAR", "scheme_args": {"algorithm": "ring"}},
    {"scheme": "RAR"},
]
HOSTS = {"kind": "groups", "base": {"kind": "lognormal", "mu": -7.0}, "size": 3, "speeds": [1.0, 2.0]}


@rotated
@pytest.mark.parametrize("scheme", SCHEMES, ids=["UMW", "GC", "CR", "ring", "RAR"])
def test_links_that_differ_are_the_same_on_both_engines(scheme: dict[str, Any]) -> None:
    """A rank that its machine delays is late, and never early: the times of the virtual clock are lower bounds.

    The machine does not delay every model. In some round, each rank has its model at most half as late again.
    """
    e = wb.Experiment(
        workers=6, rounds=5, problem="least_squares", problem_args={"samples": 60, "features": 20},
        optimiser_args={"step": 0.05}, delays=HOSTS, link=LINK, **scheme,
    )  # fmt: skip
    sim, real = wb.run(e), wb.run(e, engine="mpi", emulate="all")
    np.testing.assert_allclose(real.rounds["loss"], sim.rounds["loss"], rtol=1e-7)
    first, found = (float(trace.rounds["time"].iloc[0]) for trace in (sim, real))
    assert found >= first - 1e-6
    ends = [
        trace.events[trace.events["kind"] == "compute"].groupby(["round", "rank"])["start"].min()
        for trace in (sim, real)
    ]
    both = ends[0].index.intersection(ends[1].index)
    assert len(both) >= 10
    # arrival times of the first model, which is sent over each link
    later = (ends[1] - ends[0])[both].xs(0, level="round")
    assert (later >= -1e-6).all()
    began = [np.insert(trace.rounds["time"].to_numpy(), 0, 0.0) for trace in (sim, real)]
    took = [each[both] - at[both.get_level_values("round")] for each, at in zip(ends, began, strict=True)]
    assert (took[1] / took[0]).groupby("rank").min().max() < 1.5

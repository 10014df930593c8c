"""Schemes with degenerate parameters equal simpler schemes: the same rounds, messages and models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workbench as wb
from tests.support.strategies import DELAYS, LINKS

STEP = 1e-3
Named = tuple[str, dict[str, Any]]


def pairs(n: int) -> list[tuple[Named, Named]]:
    """Return pairs of schemes on n workers that are equal, each with the simpler one."""
    umw: Named = ("UMW", {})
    all_wait = {"replication": 1, "wait_for": n}
    return [
        (("DropCompute", {}), umw),
        (("DropCompute", {"micro_batches": 3, "threshold": 1e9}), umw),
        (("SGD", {"stragglers": 0}), umw),
        (("Backup", {"stragglers": 0}), umw),
        (("GC", {"stragglers": 0}), umw),
        (("GC", {"stragglers": 0, "code": "fractional"}), umw),
        (("CR", {"children": n, "layers": 1, "stragglers": 0}), umw),
        (("CR", {"children": n, "layers": 1, "stragglers": n - 1}), ("GC", {"stragglers": n - 1})),
        (("CEGC", {"load": 1, "stragglers": 0, "reduction": 1}), umw),
        (("PGC", {"stragglers": 0}), umw),
        (("DSAG", {"wait_for": n, "tolerance": 0.0}), umw),
        *(((name, all_wait), umw) for name in ("FRC", "CRC", "GGC", "ErasureHead", "IS-GC")),
        (("LocalSGD", {"local_steps": 1, "rate": STEP}), umw),
        (("D-SGD", {}), umw),
        (("D-Adam", {}), umw),
        (("AdaptiveK", {"start": n}), umw),
        (("CADA", {"c": 0.0}), umw),
        (("CADA", {"max_age": 1}), umw),
        (("G-CADA", {"groups": n, "c": 0.0}), umw),
        (("LAGC", {"groups": n, "c": 0.0, "stragglers": 0}), umw),
        (("LAGC", {"groups": 1, "c": 0.0, "stragglers": n - 1}), ("GC", {"stragglers": n - 1})),
        (("FedBuff", {"buffer": 1, "damping": 1.0}), ("ASGD", {"damping": 1.0})),
        (("UC-MMC", {"load": 1, "clusters": n}), umw),
    ]


def per_task(delays: dict[str, Any]) -> bool:
    """Return whether a worker's time does not depend on how its load is divided into parts."""
    return delays.get("per") != "part"


@example((6, pairs(6)[0]), 77, {"kind": "shifted_exponential"}, {}, 0)
@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.sampled_from(pairs(n)))),
    st.integers(20, 200),
    DELAYS.filter(per_task),
    LINKS,
    st.integers(0, 99),
)
def test_scheme_with_degenerate_parameters_equals_the_simpler_one(
    case: tuple[int, tuple[Named, Named]], samples: int, delays: dict[str, Any], link: Any, seed: int
) -> None:
    n, both = case
    args = next((args for name, args in both if name == "DropCompute"), None)
    if args == {}:  # by default there are 12 micro-batches, and none may be empty
        samples = max(samples, 12 * n)
    fields = {"workers": n, "rounds": 4, "seed": seed, "delays": delays, "link": link}
    data = {"problem": "least_squares", "problem_args": {"samples": samples, "features": 3}}
    step = {"optimiser": "gd", "optimiser_args": {"step": STEP}}
    one, other = (
        wb.run(wb.Experiment(scheme=name, scheme_args=args, **fields, **data, **step)) for name, args in both
    )
    np.testing.assert_array_equal(one.experiment.plan.loads, other.experiment.plan.loads)
    np.testing.assert_allclose(one.columns["time"], other.columns["time"], rtol=1e-12)
    np.testing.assert_array_equal(one.columns["messages"], other.columns["messages"])
    np.testing.assert_allclose(one.model, other.model, rtol=1e-7, atol=1e-12)
    for name, trace in zip(("one", "other"), (one, other), strict=True):
        forecast = wb.forecast(trace.experiment)
        np.testing.assert_allclose(
            np.cumsum(forecast.seconds), trace.columns["time"], rtol=1e-9, err_msg=name
        )


@pytest.mark.parametrize(("scheme", "field"), [("DropCompute", "micro_batches"), ("DSAG", "pieces")])
@given(workers=st.integers(1, 12), pieces=st.integers(1, 12), more=st.integers(0, 300))
def test_plan_cuts_shards_before_pieces(
    scheme: str, field: str, workers: int, pieces: int, more: int
) -> None:
    made, samples = wb.schemes.get(scheme)(**{field: pieces}), workers * pieces + more
    plan = made.plan(workers, samples)
    np.testing.assert_array_equal(plan.stored, wb.schemes.get("UMW")().plan(workers, samples).stored)
    each = plan.sizes.reshape(workers, pieces)
    assert (np.ptp(each, axis=1) <= 1).all()
    assert each.min() >= 1

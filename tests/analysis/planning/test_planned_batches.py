"""Plans with mini-batches: one target for all sizes, and sizes that do not fit are refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.plans import advise, engine_mean, measured
from workbench.core.base.settings import SettingError
from workbench.core.trace.metrics import first_reached


def test_plan_with_batches_lists_what_refuses_them() -> None:
    profile = measured(6, "straggle", 1e-4, 1e6)
    advice = advise(profile, batch=60, schemes=["UMW", "GC", "DSAG", "LCC"])
    reasons = {each.name: each.reason for each in advice.refusals}
    assert {each.scheme for each in advice.choices} == {"UMW", "GC"}
    assert "scheme_args.pieces = 4" in reasons["DSAG"]
    assert "encodes the data" in reasons["LCC"]
    loads = {each.scheme: each.load for each in advice.choices}
    assert loads["UMW"] == pytest.approx(1 / 4 / 6)
    assert engine_mean(advice.best.experiment, 200) == pytest.approx(advice.best.per_round, rel=0.15)


def test_plan_compares_mini_batches_to_the_target_of_full_gradients() -> None:
    """Smaller batches need more rounds to the same loss. Runs with other seeds take about the predicted time."""
    options = {"problem": "logistic", "problem_args": {"data": "breast_cancer"}, "tolerance": 0.05}
    profile = measured(6, "straggle", 1e-4, 1e7)
    schemes = ["UMW", "SGD", "LCC"]
    full = advise(profile, **options, effort=4e9, schemes=schemes)
    both = advise(profile, **options, effort=8e9, schemes=schemes, batches=[60])
    assert both.loss == full.loss
    by_batch = {c.experiment.batch: c for c in both.choices if c.scheme == "UMW"}
    assert by_batch.keys() == {None, 60}
    assert by_batch[60].name == "UMW batch 60"
    assert by_batch[60].rounds > by_batch[None].rounds
    assert by_batch[60].load < by_batch[None].load
    assert {c.experiment.batch for c in both.choices if c.scheme == "SGD"} == {None, 60}
    assert any(each.name == "LCC" for each in both.refusals)
    took = []
    for seed in range(500, 506):
        trace = wb.run(by_batch[60].experiment.replace(seed=seed), events=False)
        there = first_reached(list(trace.columns["loss"]), both.loss, "loss", 60)
        took.append(trace.columns["time"][-1 if there is None else there])
    assert np.mean(took) == pytest.approx(by_batch[60].seconds, rel=0.3)


def test_plan_refuses_batches_that_do_not_fit() -> None:
    profile = measured(6, "straggle", 1e-4, 1e7)
    with pytest.raises(SettingError, match=r"^batches = \[60\]: .*take effort above 0"):
        advise(profile, batches=[60])
    with pytest.raises(SettingError, match=r"^batch = 100000"):
        advise(profile, effort=1e9, batches=[100000])


def test_plan_refuses_batches_larger_than_a_shard_of_the_simulated_samples() -> None:
    """A batch may fit a shard of the whole data, but not a shard of the fewer samples that the effort allows."""
    options = {"problem": "softmax", "problem_args": {"data": "digits"}, "effort": 3e9, "rounds": 40}
    advice = advise(measured(12, "straggle", 1e-4, 1e7), **options, schemes=["UMW", "D-SGD"])
    reasons = {each.name: each.reason for each in advice.refusals}
    assert "raise effort" in reasons["D-SGD worker_batch 64"]
    assert {c.scheme for c in advice.choices} == {"UMW", "D-SGD"}
    assert reasons.keys().isdisjoint(c.name for c in advice.choices)
    for c in advice.choices:
        assert c.exact == ("worker_batch" not in c.experiment.scheme_args)
        assert c.source.startswith("theory" if c.exact else "simulated")

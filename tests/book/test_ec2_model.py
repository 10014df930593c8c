"""The model of paper 1's cluster: its limits, its fit, and the factors of a speedup."""

from __future__ import annotations

import math

import numpy as np
import pytest
from workbench_book.ec2_model import (
    FACTORS,
    FITTED,
    FITTED_ON,
    STARTS,
    Constants,
    column,
    decomposed,
    factor,
    fit,
    ratios,
    residuals,
    senders,
    without,
)

import workbench as wb
from workbench.core.presets.codedreduce import MESSAGE_S, RATE_SAMPLES_PER_S, SHIFT_S_PER_SAMPLE, presets

SOME = Constants(spread=2.0, latency=2e-3, transfer=5e-3, crowding=0.05)


def test_ec2_model_includes_the_presets() -> None:
    """With the paper's constants, the model has the rounds of the presets (figure 12 has 5000 features)."""
    same = Constants(SHIFT_S_PER_SAMPLE, 1 / (SHIFT_S_PER_SAMPLE * RATE_SAMPLES_PER_S), 0.0, MESSAGE_S)
    preset = presets["fig12"]
    for e in preset:
        assert wb.forecast(same.experiment(e), 20).mean == pytest.approx(wb.forecast(e, 20).mean, rel=1e-9)


def test_ratios_of_transfers_alone_are_counted_messages() -> None:
    """A star transfers N - S messages one after another. A tree transfers n - s in each layer."""
    only = Constants(spread=1e-9, shift=1e-15, latency=0.0, transfer=1.0)
    found = ratios(presets["fig9a"], only, 1)
    assert found["GC"] == pytest.approx((156 - 13) / (2 * 11), rel=1e-6)
    assert found["UMW"] == pytest.approx(156 / (2 * 11), rel=1e-6)


def test_crowding_slows_a_port_by_its_senders() -> None:
    preset = presets["fig9a"]
    assert [senders(preset[s]) for s in ("UMW", "GC", "SGD", "RAR", "CR")] == [156, 156, 156, 1, 12]
    for scheme, many in (("GC", 156), ("CR", 12), ("RAR", 1)):
        e = SOME.experiment(preset[scheme])
        floats = preset[scheme].shape()[1]
        assert e.link.transfer(floats) == pytest.approx(5e-3 * (1 + 0.05 * (many - 1)) * floats / 5000)


def test_what_was_fitted_is_what_the_fit_takes() -> None:
    """Each fitted number has a residual. Numbers of SGD are not fitted, since they contain numbers of rounds."""
    assert len(residuals(FITTED_ON, SOME, 5)) == len(FITTED) == 12
    for name in presets:
        for scheme in presets[name].published:
            fitted = name in FITTED_ON and scheme != "SGD"
            assert column(name, scheme) == ("fitted" if fitted else "tested")
    assert ratios(presets["fig9a"], SOME, 5, schemes=("GC",)) == {
        "GC": ratios(presets["fig9a"], SOME, 5)["GC"]
    }


def test_without_switches_off() -> None:
    assert without(SOME, FACTORS) == Constants(spread=2.0, latency=0.0, transfer=0.0, random=False)
    assert without(SOME, ()) == SOME


@pytest.mark.parametrize("name", ["fig8", "fig9a"])
def test_factors_multiply_to_the_speedup(name: str) -> None:
    found = decomposed(presets[name], SOME, 30, seed=3)
    whole = ratios(presets[name], SOME, 30, seed=3)
    for scheme, parts in found.items():
        assert math.prod(parts.values()) == pytest.approx(whole[scheme], rel=1e-9)
        assert list(parts) == ["load", *FACTORS]


def test_decomposed_factor_without_effect_is_one() -> None:
    calm = Constants(spread=2.0, latency=0.0, transfer=5e-3, crowding=0.0)
    for parts in decomposed(presets["fig8"], calm, 10).values():
        assert parts["latency"] == pytest.approx(1.0)
        assert parts["crowded ports"] == pytest.approx(1.0)


@pytest.mark.slow
def test_the_fit_is_better_than_every_start_and_than_the_model_without_crowding() -> None:
    found = {crowding: fit(crowding, 8, 60) for crowding in (False, True)}
    off = {c: factor(residuals(("fig8", "fig9a", "fig9c", "fig11b"), each, 8)) for c, each in found.items()}
    starts = [
        factor(residuals(("fig8", "fig9a", "fig9c", "fig11b"), Constants(SHIFT_S_PER_SAMPLE, *start), 8))
        for start in STARTS
    ]
    assert off[True] < min(starts)
    assert off[True] < 0.7 * off[False]
    assert found[False].crowding == 0.0


def test_factor_of_residuals() -> None:
    assert factor(np.log([2.0, 0.5])) == pytest.approx(2.0)

"""Loads of sequential codes: the formulas against the allocations of the schemes' plans."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.support.schemes.sequential import multiplexed, selective
from workbench import SettingError
from workbench.core import schemes, theory


@given(selective())
def test_selective_repeat_allocation_agrees_with_the_formula(case: tuple[dict[str, Any], int]) -> None:
    args, n = case
    numbers = {name: args[name] for name in ("burst", "window", "stragglers")}
    spare = theory.sr_sgc_stragglers(n, **numbers)
    assert spare == ceil(
        numbers["burst"] * numbers["stragglers"] / (numbers["window"] - 1 + numbers["burst"])
    )
    loads = schemes.get("SR-SGC")(**args).loads(n, samples=3 * n)
    np.testing.assert_allclose(loads / (3 * n), (spare + 1) / n, rtol=1e-12)


@given(multiplexed())
def test_multiplexed_load_agrees_with_the_formula(case: tuple[dict[str, Any], int]) -> None:
    args, n = case
    numbers = {name: args[name] for name in ("burst", "window", "stragglers")}
    burst, own, late = numbers["burst"], numbers["window"] - 1, numbers["stragglers"]
    samples = 2 * n * (own if late == n else burst + own * (late + 1))  # divisible without a remainder
    usual = schemes.get("M-SGC")(**args).loads(n, samples) / samples
    idle = own / (own + burst) if late == n else 1.0  # the last B mini-tasks are empty
    np.testing.assert_allclose(usual, theory.m_sgc_load(n, **numbers) * idle, rtol=1e-12)


@pytest.mark.parametrize("lag", [0, 1, 2, 3, 8])
def test_sequential_steps_with_stale_gradients_are_stable_up_to_the_formula(lag: int) -> None:
    for share, stable in ((0.99, True), (1.01, False)):
        step = 2 * theory.delayed_step(lag) * share
        x = [1.0] * (lag + 1)
        for _ in range(4000 * (lag + 1)):
            x.append(x[-1] - step * x[-1 - lag])
            if abs(x[-1]) > 1e6:
                break
        assert (max(map(abs, x[-50:])) < 1e-3) == stable


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="burst = 2"):
        theory.sr_sgc_stragglers(8, burst=2, window=4, stragglers=1)
    with pytest.raises(SettingError, match="burst = 3: must be 1 to 2"):
        theory.m_sgc_load(8, burst=3, window=3, stragglers=1)

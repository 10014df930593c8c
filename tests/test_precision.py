"""A code that loses too many digits is warned of before the run, with a better one."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import workbench as wb
from workbench.errors import PrecisionWarning

COMMON: dict[str, Any] = {"workers": 60, "rounds": 2, "problem_args": {"samples": 120, "features": 3}}


def gc(code: str, stragglers: int) -> wb.Experiment:
    return wb.Experiment(scheme="GC", scheme_args={"stragglers": stragglers, "code": code}, **COMMON)


def test_a_badly_conditioned_code_is_warned_of_once() -> None:
    with pytest.warns(PrecisionWarning, match=r"GC: decoding from 41 of 60 .* digits; take code = 'cyclic'"):
        wb.run(gc("mds", 19))


def test_the_default_is_quiet_and_exact() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for stragglers in (7, 19, 20):
            assert wb.run(gc("cyclic", stragglers)).rounds["residual"].max() < 1e-16


@pytest.mark.parametrize("code", ["cyclic", "mds", "tandon", "fractional"])
def test_every_code_gives_the_same_model(code: str) -> None:
    common: dict[str, Any] = {**COMMON, "workers": 12}
    plain = wb.run(wb.Experiment(scheme="UMW", **common), numeric=True).model
    coded = wb.Experiment(scheme="GC", scheme_args={"stragglers": 3, "code": code}, **common)
    assert abs(wb.run(coded, numeric=True).model - plain).max() < 1e-12


def test_mds_with_complex_coefficients_is_refused() -> None:
    with pytest.raises(wb.SettingError, match=r"scheme_args\.stragglers = 4"):
        wb.Experiment(scheme="GC", scheme_args={"stragglers": 4, "code": "mds"}, workers=12)

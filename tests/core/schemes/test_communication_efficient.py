"""CEGC: Table 3 of paper 2 by forecast and by events, message lengths, every d, s, m."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.engine.virtual.arithmetic import Coefficients
from workbench.core.running.simulated import timeline

DELAYS = {"kind": "two_part", "t1": 1.6, "lambda1": 0.8, "t2": 6.0, "lambda2": 0.1}
TABLE_3 = {  # m -> expected time for d = m, ..., 8 (n = 8, s = d - m)
    1: [36.1138, 29.2288, 27.3351, 26.7469, 26.4574, 26.0891, 25.4172, 24.1063],
    2: [23.1036, 21.3994, 21.5369, 21.9114, 22.2099, 22.3189, 22.1405],
    3: [22.2604, 21.3697, 21.5749, 21.9095, 22.1707, 22.2772],
    4: [24.8036, 23.2793, 23.1114, 23.1862, 23.2611],
    5: [28.5800, 25.9827, 25.2862, 25.0141],
    6: [32.8664, 29.0745, 27.7904],
    7: [37.3977, 32.3759],
    8: [42.0638],
}
CELLS = [(m + i, m, time) for m, row in TABLE_3.items() for i, time in enumerate(row)]


def cell(d: int, m: int, rounds: int) -> wb.Experiment:
    args = {"load": d, "stragglers": d - m, "reduction": m}
    return wb.Experiment(
        scheme="CEGC", scheme_args=args, workers=8, rounds=rounds, delays=DELAYS, problem="least_squares",
        problem_args={"samples": 8, "features": 840},
    )  # fmt: skip


# A third of the cells is simulated. The next test compares the closed form of all cells.
SOME = random.Random(46).sample(CELLS, 12)


@pytest.mark.parametrize(("d", "m", "published"), CELLS)
def test_cegc_table_3_in_closed_form(d: int, m: int, published: float) -> None:
    assert wb.theory.cegc_time(8, d, m, 0.8, 0.1, 1.6, 6.0) == pytest.approx(published, abs=1e-3)


@pytest.mark.parametrize(
    ("d", "m", "published"), [c if c in SOME else pytest.param(*c, marks=pytest.mark.slow) for c in CELLS]
)
def test_cegc_table_3_simulated(d: int, m: int, published: float) -> None:
    """Forecast and event engine agree within the Monte Carlo error."""
    f = wb.forecast(cell(d, m, 4000), seed=5)
    assert abs(f.mean - published) < 4 * f.error
    simulated = timeline(cell(d, m, 150), Coefficients(cell(d, m, 150).plan), events=False)
    assert abs(simulated.times[-1] / 150 - published) < 4 * f.std / np.sqrt(150)


@given(st.integers(1, 40), st.integers(1, 5))
def test_cegc_messages_have_length_p_over_m(floats: int, m: int) -> None:
    e = wb.Experiment(
        scheme="CEGC", scheme_args={"load": m + 1, "stragglers": 1, "reduction": m}, workers=m + 3, rounds=2,
        problem="least_squares", problem_args={"samples": 20, "features": floats}, link={"bandwidth": 100.0},
    )  # fmt: skip
    for trace in (wb.run(e), wb.run(e, numeric=True)):
        sent = trace.events[(trace.events["kind"] == "send") & (trace.events["to"] == 0)]
        assert set(sent["bytes"]) == {8 * -(-floats // m)}
        assert (trace.rounds["bytes"] == (m + 2) * 8 * -(-floats // m)).all()


@pytest.mark.parametrize(
    ("d", "s", "m", "n"), [(3, 1, 2, 5), (5, 2, 2, 9), (4, 0, 4, 6), (7, 3, 3, 7), (6, 2, 3, 22)]
)
def test_cegc_model_equals_the_uncoded_one(d: int, s: int, m: int, n: int) -> None:
    """This includes padding: 23 parameters are not a multiple of 2, 3 or 4."""
    common: dict[str, Any] = {"workers": n, "rounds": 15, "problem_args": {"samples": 90, "features": 23}}
    args = {"load": d, "stragglers": s, "reduction": m}
    coded = wb.run(wb.Experiment(scheme="CEGC", scheme_args=args, **common), numeric=True)
    plain = wb.run(wb.Experiment(scheme="UMW", **common), numeric=True)
    np.testing.assert_allclose(coded.model, plain.model, rtol=0, atol=1e-9 * np.abs(plain.model).max())


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        (
            {"load": 3, "stragglers": 2, "reduction": 2},
            ["scheme_args.load = 3", "stragglers + reduction", "load = 4"],
        ),
        ({"load": 9, "stragglers": 1, "reduction": 2}, ["scheme_args.load = 9", "8"]),
        ({"load": 3, "stragglers": 8, "reduction": 1}, ["scheme_args.stragglers = 8"]),
        ({"construction": "stabel"}, ["construction = 'stabel'", "stable"]),
    ],
)
def test_cegc_refuses_wrong_parameters(args: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(scheme="CEGC", scheme_args=args, workers=8)
    assert all(word in str(error.value) for word in fields), str(error.value)


def test_cegc_with_fewer_parameters_than_parts() -> None:
    """Weights over parts are not truncated to the length of a model, even with m = 1 and p < n."""
    e = wb.Experiment(
        scheme="CEGC",
        scheme_args={"stragglers": 1, "reduction": 1, "load": 2},
        workers=5,
        rounds=3,
        problem="least_squares",
        problem_args={"samples": 20, "features": 3},
    )
    np.testing.assert_allclose(wb.run(e).rounds["loss"], wb.run(e, numeric=True).rounds["loss"], rtol=1e-12)

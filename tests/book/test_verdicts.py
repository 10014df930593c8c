"""Verdicts of the book: agreement for equal numbers and orders, difference for reversed orders."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_book import Claim, Line, Misprint, Result, texts
from workbench_book.values import COLUMNS
from workbench_book.verdicts import all_of, compare, judged, of_column, of_result

numbers = st.lists(st.integers(-20, 90), min_size=2, max_size=8, unique=True).map(
    lambda logs: [math.exp(each / 10) for each in logs]
)


@given(numbers)
def test_compare_equal_numbers_agree(values: list[float]) -> None:
    assert compare(values, values).kind == "agrees"


@given(numbers, st.floats(0.86, 1.14))
def test_compare_reports_a_common_factor(values: list[float], factor: float) -> None:
    found = compare(values, [factor * v for v in values])
    stated = float(found.text.split("within ")[1].removesuffix(" %"))
    assert abs(factor - 1) * 100 <= stated * (1 + 1e-9)


@given(numbers)
def test_compare_accepts_a_stretched_order(values: list[float]) -> None:
    assert compare(values, [v**3 * 7 for v in values]).kind in ("ordering", "agrees")


@given(numbers)
def test_compare_reports_a_reversed_order(values: list[float]) -> None:
    found = compare(values, [1e6 / v for v in values], reason="it is turned")
    assert found.kind == "differs"
    assert found.text.endswith("it is turned")


def test_compare_includes_the_baseline_in_the_order() -> None:
    assert compare([2.0, 3.0], [0.2, 0.3]).kind == "ordering"
    assert compare([2.0, 3.0], [0.2, 0.3], baseline=1.0).kind == "differs"


def test_compare_equal_numbers_have_no_order() -> None:
    """Two losses that are equal on the virtual clock imply no order of the measured ones."""
    assert compare([0.15, 0.15], [1.06, 0.76]).kind == "differs"
    assert compare([0.15, 0.15, 0.9], [1.06, 0.76, 8.0]).kind == "ordering"


def test_compare_missing_number_never_agrees() -> None:
    assert compare([2.0, 3.0], [2.0, float("nan")]).kind == "differs"


def test_of_column_compares_measurements_with_equal_settings() -> None:
    """A scaled run is compared with the virtual clock at its own settings, and not with the paper."""
    values = {"ours": 2.0, "scaled": 1.5, "measured": 1.51}
    result = Result(
        lines=[Line("a", 10.0, values), Line("b", 20.0, {**values, "scaled": 1.2, "measured": 1.19})]
    )
    found = of_column(result, "measured")
    assert found is not None
    assert found.text == "agrees with the virtual clock at the same settings within 1 %"
    assert [about for about, _ in all_of(result)][-1] == COLUMNS["measured"]


def test_of_result_uses_claims_before_measurements() -> None:
    line = Line("a", None, {"ours": 2.0, "scaled": 1.0, "measured": 1.0})
    text = Result(lines=[line], claims=[Claim("x", True, "")], columns=[])
    assert of_result(text).kind == "holds"
    assert [about for about, _ in all_of(text)] == ["what the paper says", COLUMNS["measured"]]
    silent = Result(lines=[line], columns=[])
    assert all_of(silent) == [(COLUMNS["measured"], of_result(silent))]
    assert of_result(silent).text.startswith("agrees with the virtual clock")


def test_of_result_uses_columns_then_claims_then_misprints() -> None:
    line, yes, no = Line("a", 1.0, {"exact": 1.0}), Claim("x", True, ""), Claim("y", False, "")
    assert of_result(Result(lines=[line], claims=[no], columns=["exact"])).kind == "agrees"
    assert of_result(Result(claims=[yes])).kind == "holds"
    found = of_result(Result(claims=[yes, no], reasons={"claims": "other data"}))
    assert found.text == "differs: 1 of 2 statements does not hold (other data)"
    assert of_result(Result(misprints=[Misprint("", "", "", "", False)])).kind == "differs"
    assert of_result(Result()).kind == "open"
    assert [heading for heading, _ in judged(Result(lines=[line], columns=["ours", "exact"]))] == ["formula"]


def test_of_result_within_chance_is_open() -> None:
    yes, unclear, no = (Claim("x", state, "") for state in (True, None, False))
    assert of_result(Result(claims=[yes])).text == "what the paper says holds (1 statement)"
    found = of_result(Result(claims=[yes, unclear], reasons={"claims": "few runs"}))
    assert found == ("open", "open: 1 of 2 statements undecided (few runs)")
    assert of_result(Result(claims=[yes, unclear, no])).kind == "differs"
    assert of_result(Result(claims=[no])).text == "differs: 1 of 1 statement does not hold"
    assert of_result(Result(claims=[no, no])).text == "differs: 2 of 2 statements do not hold"


@given(numbers, st.floats(0.5, 2))
def test_of_column_fitted_values_never_agree(values: list[float], factor: float) -> None:
    """A fitted value never counts as agreement. Other values in the same column are compared as usual."""
    lines = [Line(str(v), v, {"fitted": factor * v}) for v in values]
    found = of_column(Result(lines=lines), "fitted")
    assert found is not None
    assert found.kind == "fitted"
    assert "agrees" not in found.text
    both = Result(lines=[*lines, Line("x", 2.0, {"tested": 2.0})], columns=["tested", "fitted"])
    assert [verdict.kind for _, verdict in judged(both)] == ["agrees", "fitted"]


@given(st.lists(st.lists(st.floats(0.1, 10), min_size=3, max_size=3), min_size=1, max_size=5))
def test_of_column_verdict_of_a_sweep_is_its_worst(table: list[list[float]]) -> None:
    published = [5.6, 1.57, 1.05]
    lines = [Line(str(p), p, swept=ours) for p, ours in zip(published, zip(*table, strict=True), strict=True)]
    found = of_column(Result(lines=lines), "sweep")
    assert found is not None
    each = [compare(published, ours).kind for ours in table]
    assert found.kind == next(kind for kind in ("differs", "ordering", "agrees") if kind in each)


def test_of_result_reworded_claim_does_not_hold() -> None:
    result = Result(claims=[Claim("x", True, ""), Claim("y", False, "", reworded="with another rule")])
    assert of_result(result) == ("differs", "differs: 1 of 2 statements does not hold (1 would if reworded)")
    assert "holds only if reworded: with another rule" in texts.claims(result.claims)


@pytest.mark.parametrize("zero", [0.0, 1e-17])
def test_compare_published_zero(zero: float) -> None:
    assert compare([0.0, 1.0], [zero, 1.0]).kind == "agrees"
    assert compare([0.0, 1.0], [0.5, 1.0]).kind != "agrees"

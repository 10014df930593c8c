"""Times, bytes and counts as text with units."""

from __future__ import annotations

import pytest

from workbench.analysis.planning.quantities import quantity, quantity_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0"),
        (2.5e-6, "2.5 µs"),
        (1e-9, "1 ns"),
        (1e-3, "1 ms"),
        (9.996e-4, "1 ms"),
        (90.0, "90 s"),
        (12345.6, "3.43 h"),
    ],
)
def test_quantity_of_chooses_a_suitable_unit(seconds: float, text: str) -> None:
    assert quantity_of(seconds) == text


@pytest.mark.parametrize(
    ("value", "x", "text"),
    [(0.5, "round", "0.5"), (1234, "messages", "1.23 k"), (5e9, "bytes", "5 GB"), (100.0, "time", "100 s")],
)
def test_quantity_on_an_axis_has_its_unit(value: float, x: str, text: str) -> None:
    assert quantity(value, x) == text

"""What a message looks like, and that damage is seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.engines.wire import HEADER, Envelope, Refused, Sheet, Unusable, seal, unseal

FLOATS = 12
VALUES = st.one_of(
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=FLOATS).map(np.array),
)


def envelope(**fields: Any) -> Envelope:
    usual = Envelope(7, 3, 2, 1, 5, 0, 1.5, 2.5, "coded by cluster 12")
    return usual._replace(**fields)


def sealed(value: Any, **fields: Any) -> tuple[Any, int]:
    sheet = Sheet(FLOATS)
    return sheet, seal(sheet, envelope(**fields), value)


@given(VALUES, st.integers(-1, 10**9), st.integers(0, 2**62))
def test_what_goes_in_comes_out(value: Any, round: int, run: int) -> None:
    sheet, length = sealed(value, round=round, run=run)
    assert unseal(sheet, None, run, 2)[0] == unseal(sheet, length, run, 2)[0]
    found, back = unseal(sheet, length, run, 2)
    assert found == envelope(round=round, run=run, floats=(length - HEADER) // 8)
    np.testing.assert_array_equal(back, value) if value is not None else None
    assert (back is None) == (value is None)


@given(st.data())
def test_any_flipped_bit_is_seen(data: st.DataObject) -> None:
    sheet, length = sealed(np.arange(1.0, 6.0))
    sheet.bytes[data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Refused):
        unseal(sheet, length, 7, 2)


@given(st.integers(0, HEADER + 39))
def test_any_truncation_is_seen(length: int) -> None:
    sheet, _ = sealed(np.arange(5.0))
    sheet.bytes[length:] = 0
    for known in (length, None):
        with pytest.raises(Refused):
            unseal(sheet, known, 7, 2)


@pytest.mark.parametrize(("run", "sender", "reason"), [(8, 2, "of another run"), (7, 3, "of another sender")])
def test_foreign_messages_are_named(run: int, sender: int, reason: str) -> None:
    sheet, length = sealed(np.arange(5.0))
    with pytest.raises(Refused, match=reason):
        unseal(sheet, length, run, sender)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_envelope(bad: float) -> None:
    sheet, length = sealed(np.array([1.0, bad, 2.0]))
    with pytest.raises(Unusable) as error:
        unseal(sheet, length, 7, 2)
    assert error.value.envelope.round == 3


def test_a_sum_that_overflows_is_looked_at_closely() -> None:
    large = np.array([1.7e308, 1.7e308])
    sheet, length = sealed(large)
    np.testing.assert_array_equal(unseal(sheet, length, 7, 2)[1], large)
    sheet, length = sealed(np.array([np.inf, -np.inf]))
    with pytest.raises(Unusable):
        unseal(sheet, length, 7, 2)


@pytest.mark.parametrize("value", [np.zeros(FLOATS + 1), np.zeros((2, 2))])
def test_what_does_not_fit_is_refused_before_it_is_sent(value: Any) -> None:
    with pytest.raises(ValueError, match="value"):
        sealed(value)

"""Conversion of arrays to bytes and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.core.base.arrays import from_bytes, joined, to_bytes

kinds = st.one_of(
    hnp.integer_dtypes(), hnp.floating_dtypes(), hnp.boolean_dtypes(), hnp.unicode_string_dtypes()
)
held = st.dictionaries(
    st.text(st.characters(categories=["L", "N"]), min_size=1),
    kinds.flatmap(lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, min_side=0))),
    max_size=5,
)


@given(held)
def test_to_bytes_and_from_bytes_round_trip(arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    for whole in (joined(arrays), to_bytes(arrays)):
        found = from_bytes(whole)
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_array_equal(found[name], array)
            found[name][...] = found[name]  # the arrays are writable


@given(st.data())
def test_from_bytes_refuses_damaged_data(data: st.DataObject) -> None:
    whole = joined({"rank": 3, "times": np.arange(9.0), "reason": ["too late"]})
    place = data.draw(st.integers(0, len(whole) - 1))
    torn = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    for bad in (torn, whole[:place]):
        with pytest.raises(ValueError, match=r"\w"):
            from_bytes(bad)

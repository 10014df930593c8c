"""Values in groups: against a plain loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.grouping import grouped


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers())))
def test_groups_keep_the_order_of_keys_and_values(pairs: list[tuple[str, int]]) -> None:
    found = grouped(iter(pairs))
    assert list(found) == list(dict.fromkeys(key for key, _ in pairs))
    assert all(values == [v for k, v in pairs if k == key] for key, values in found.items())

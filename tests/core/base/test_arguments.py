"""Checked functions: they name an argument of the wrong type, and keep their own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytest

from workbench.core.base.arguments import kinds_checked
from workbench.core.base.settings import SettingError


@kinds_checked
def longest(
    texts: Sequence[str] | Mapping[str, str],
    most: int | None = None,
    side: Literal["l", "r"] = "l",
    **more: Any,
) -> int:
    """Length."""
    if side not in ("l", "r"):
        raise TypeError(side)
    values = texts.values() if isinstance(texts, Mapping) else texts
    return max(len(text) for text in values) + (0 if most is None else most + more["fault"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((5,), "texts = 5: is of the wrong kind; give a list of text, or names, each with text"),
        (([5],), "texts = [5]: is"),
        (({"a": 5},), "texts = {'a': 5}: is"),
        ((["a"], "x"), "most = 'x': is of the wrong kind; give a whole number, or None"),
        ((["a"], None, "up"), "side = 'up': is of the wrong kind; give 'l' or 'r'"),
    ],
)
def test_checked_function_names_the_wrong_argument(args: tuple[Any, ...], says: str) -> None:
    with pytest.raises(SettingError) as caught:
        longest(*args)
    assert str(caught.value).startswith(says)


def test_checked_function_keeps_other_errors() -> None:
    assert longest(["a", "bc"]) == longest({"x": "ab"}) == 2
    assert longest({"a", "bc"}) == 2  # type: ignore[arg-type]  # a set is of another type, but works
    with pytest.raises(KeyError, match="fault"):
        longest(["a"], 1)
    with pytest.raises(TypeError, match="missing 1 required"):
        longest()  # type: ignore[call-arg]
    assert (longest.__name__, longest.__doc__) == ("longest", "Length.")


def test_kinds_checked_keeps_errors_of_the_function() -> None:
    @kinds_checked
    def first(value: Any, settings: Mapping[str, Any]) -> Any:
        return settings[value]

    with pytest.raises(KeyError, match="x"):
        first("x", {"a": 1})

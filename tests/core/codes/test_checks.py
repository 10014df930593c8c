"""Arguments of codes: anything that is not a number is refused, even if an equal value is in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workbench.core import codes
from workbench.core.base.settings import SettingError
from workbench.core.codes import checks

GOOD: dict[str, dict[str, Any]] = {
    "bernoulli": {"workers": 6, "parts": 6, "load": 2.0, "seed": 0},
    "circulant": {"workers": 6, "replication": 2, "seed": 0},
    "correlated": {"parts": 6, "load": 3, "order": 2, "seed": 0},
    "cyclic": {"workers": 6, "stragglers": 2, "seed": 1},
    "fractional": {"workers": 6, "stragglers": 1},
    "lagrange": {"parts": 6, "workers": 6, "load": 3},
    "mds": {"workers": 6, "stragglers": 1},
    "uncorrelated": {"parts": 6, "orders": [3, 1], "seed": 1},
    "ye_abbe": {"workers": 6, "load": 4, "stragglers": 1, "reduction": 1, "seed": 1},
}
ODD: list[Any] = ["2", 1.5, float("nan"), float("inf"), True, None, {}, [[2]], -1, "two", 1j]


@pytest.mark.parametrize("name", sorted(GOOD))
def test_codes_refuse_arguments_of_another_type(name: str) -> None:
    make, good = getattr(codes, name), GOOD[name]
    make(**good)  # the cached code must not be returned for 1.0 or True
    for argument, value in good.items():
        whole = [] if argument in ("orders", "load") else [float(value)]
        for odd in ODD + whole:
            if argument == "load" and odd == 1.5 and name == "bernoulli":
                continue  # a valid number of parts
            with pytest.raises(SettingError, match=rf"^{argument}\b") as error:
                make(**{**good, argument: odd})
            assert "\n" not in str(error.value)


def test_codes_accept_numpy_numbers() -> None:
    np.testing.assert_array_equal(codes.cyclic(np.int64(6), np.int32(2)).matrix, codes.cyclic(6, 2).matrix)
    assert codes.uncorrelated(6, np.array([3, 1])).needed == 9


def test_a_code_is_made_once() -> None:
    assert codes.cyclic(6, 2, 1) is codes.cyclic(6, 2, 1)
    assert codes.uncorrelated(6, [3, 1]) is codes.uncorrelated(6, (3, 1))


@pytest.mark.parametrize("construction", ["joint", "separate"])
@pytest.mark.parametrize(("parts", "orders"), [(1, [1]), (1, [1, 1]), (2, [1]), (3, [3])])
def test_the_smallest_uncorrelated_codes(parts: int, orders: list[int], construction: Any) -> None:
    code = codes.uncorrelated(parts, orders, 7, construction)
    assert code.decode(tuple(range(code.needed))).residual < 1e-24


def test_large_codes_make_room_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest code is always cached, whatever its size. Older ones are dropped above `MAX_CACHE_BYTES`."""
    made: list[int] = []

    @checks.remembered
    def code(workers: int) -> codes.GradientCode:
        made.append(workers)
        return codes.GradientCode(np.ones((workers, workers)), 0)

    monkeypatch.setattr(checks, "MAX_CACHE_BYTES", 8 * (30**2 + 20**2))
    assert code(20) is code(20)
    assert code(30) is code(30)
    assert made == [20, 30]
    code(20)  # both fit; the larger one was used least recently
    assert made == [20, 30]
    code(100)
    assert code(100) is code(100)
    code(20)
    assert made == [20, 30, 100, 20]

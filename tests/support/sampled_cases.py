"""Sampling of expensive cases: of similar ones, `make test` runs a few, and `make test-all` runs all.

The option `--rotate SEED` of `tests/conftest.py` chooses the sample. The default is 0. The header of the report and the
summary of a failed run print it, so that a failure can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, TypeVar

import pytest

DEFAULT_SEED = 0
ROTATED = 5
Test = TypeVar("Test", bound=Callable[..., None])
_seed = DEFAULT_SEED


def rotate(seed: int) -> None:
    """Set the seed of all samples. Call it before test modules are imported."""
    global _seed
    _seed = seed


def sampled_indices(name: str, of: int, count: int, seed: int | None = None) -> set[int]:
    """Return `count` of the indices 0 to `of` - 1, drawn by the seed and by the name of the sample."""
    return set(Random(f"{name} {_seed if seed is None else seed}").sample(range(of), count))


def sampled_cases(name: str, count: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases for `pytest.mark.parametrize`. All but `count` are marked slow.

    A tuple is a case of several arguments.
    """
    found = list(cases)
    now = sampled_indices(name, len(found), count)
    return [case if i in now else _slow(case) for i, case in enumerate(found)]


def _slow(case: Any) -> Any:
    values, marks, name = case if hasattr(case, "marks") else (case, (), None)
    if not hasattr(case, "marks"):
        values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[*marks, pytest.mark.slow], id=name)


def sampled_test(name: str, index: int, of: int, count: int = 1) -> Callable[[Test], Test]:
    """Decorate a test that is the `index`-th of `of` similar ones. All but `count` of them are marked slow."""
    return lambda test: test if index in sampled_indices(name, of, count) else pytest.mark.slow(test)


def rotated(test: Test) -> Test:
    """Decorate an expensive test without similar ones. `make test` runs one in `ROTATED` of these, and draws them."""
    name = f"{test.__module__} {test.__qualname__}"
    return test if 0 in sampled_indices(name, ROTATED, 1) else pytest.mark.slow(test)

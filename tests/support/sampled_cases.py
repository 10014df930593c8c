"""Of many dear cases that show the same, some run at this commit, others at the next one, all in `make test-all`.

The commit draws, so that every worker of a session, and a test that is tried again, find the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
Test = TypeVar("Test", bound=Callable[..., None])


@cache
def commit() -> str:
    """The commit that is tested; empty where there is none."""
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def drawn(name: str, of: int, count: int, seed: str | None = None) -> set[int]:
    """Places of `count` of so many, drawn by the commit (or a seed) and a name."""
    return set(Random(f"{name} {commit() if seed is None else seed}").sample(range(of), count))


def few(name: str, count: int, cases: Iterable[Any]) -> list[Any]:
    """Cases for `pytest.mark.parametrize`, of which all but `count` are slow; a tuple is for several arguments."""
    found = list(cases)
    now = drawn(name, len(found), count)
    return [case if i in now else _later(case) for i, case in enumerate(found)]


def _later(case: Any) -> Any:
    values, marks, name = case if hasattr(case, "marks") else (case, (), None)
    if not hasattr(case, "marks"):
        values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=[*marks, pytest.mark.slow], id=name)


def turn(name: str, place: int, of: int, count: int = 1) -> Callable[[Test], Test]:
    """For a test: `count` of these so many tests run at a commit, the others are slow."""
    return lambda test: test if place in drawn(name, of, count) else pytest.mark.slow(test)

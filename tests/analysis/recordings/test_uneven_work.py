"""Uneven work: the effect of work on a worker's time, and times with even work."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analysis.recordings import Recording
from workbench.analysis.recordings.uneven_work import Work, amounts, with_even_work
from workbench.core.base.types import Array

RATE = 2e-4  # s for each token


def lengths(seed: int, steps: int = 60, workers: int = 6) -> Array:
    return np.random.default_rng(seed).integers(100, 2000, (steps, workers)).astype(float)


def noise(seed: int, tokens: Array) -> Array:
    return np.random.default_rng((seed, 1)).uniform(0.98, 1.02, tokens.shape)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.01, 1.0), st.floats(0.0, 2e-7))
def test_even_work_removes_what_tokens_and_squares_explain(seed: int, fixed: float, square: float) -> None:
    tokens = lengths(seed)
    times = (fixed + RATE * tokens + square * tokens**2) * noise(seed, tokens)
    even = with_even_work(times, [tokens, tokens**2])
    assert even is not None
    spread = (even / even.mean(axis=1, keepdims=True)).std()
    assert spread < 0.04
    assert even.mean() == pytest.approx(times.mean(), rel=0.02)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(1.2, 4.0))
def test_even_work_leaves_a_slow_worker_slow(seed: int, factor: float) -> None:
    tokens = lengths(seed)
    times = (0.1 + RATE * tokens) * noise(seed, tokens)
    times[:, 2] *= factor
    even = with_even_work(times, [tokens])
    assert even is not None
    assert even[:, 2].mean() / np.delete(even, 2, axis=1).mean() == pytest.approx(factor, rel=0.15)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32))
def test_even_work_is_none_if_work_explains_nothing(seed: int) -> None:
    tokens = lengths(seed)
    assert with_even_work(0.3 * noise(seed, tokens), [tokens]) is None
    assert with_even_work(0.3 * noise(seed, tokens), [np.ones_like(tokens)]) is None
    assert with_even_work(0.3 * noise(seed, tokens), []) is None


def test_even_work_with_delays_is_that_without() -> None:
    """Rare long delays hardly change the fitted time of a token."""
    tokens, rng = lengths(0), np.random.default_rng(3)
    times = (0.1 + RATE * tokens) * noise(0, tokens)
    delays = 3.0 * (rng.random(times.shape) < 0.05)
    plain, delayed = with_even_work(times, [tokens]), with_even_work(times + delays, [tokens])
    assert plain is not None
    assert delayed is not None
    np.testing.assert_allclose((delayed - delays)[delays == 0], plain[delays == 0], rtol=0.1)


def test_even_work_of_workers_whose_work_always_differs_is_proportional() -> None:
    tokens = np.tile([100.0, 100.0, 200.0], (20, 1))
    even = with_even_work(1e-3 * tokens, [tokens])
    assert even is not None
    np.testing.assert_allclose(even, 1e-3 * tokens.mean())


def test_work_keeps_the_time_of_every_step() -> None:
    tokens = lengths(5)
    own = 0.1 + RATE * tokens
    lasted = own.max(axis=1, keepdims=True) + 0.02 + np.zeros_like(own)
    work = Work.of(own, {"a": own * 0.25, "b": own * 0.75}, lasted, [tokens])
    np.testing.assert_allclose(work.seconds.max(axis=1) + work.exchange + work.uneven, lasted[:, 0])
    np.testing.assert_allclose(work.exchange, 0.02)
    np.testing.assert_allclose(work.parts["a"] + work.parts["b"], work.seconds)


def test_work_of_a_worker_that_only_waits_is_above_0() -> None:
    own = np.array([[0.0, 1.0], [0.5, 1.5]])
    work = Work.of(own, {}, np.array([[1.0, 1.0], [1.2, 1.2]]), [])
    assert (work.seconds > 0).all()
    assert work.seconds[1, 1] == 1.2  # never longer than its step


def test_amounts_are_those_that_are_known_everywhere() -> None:
    rows = [(w, t, 1.0, 32, 10.0 + w, np.nan if w == t == 1 else 5.0) for w in range(2) for t in range(3)]
    frame = pd.DataFrame(rows, columns=["worker", "step", "seconds", "samples", "tokens", "squares"])
    job = Recording.of_rows(frame, "job")
    (tokens,) = amounts(job, job.table())
    assert tokens.tolist() == [[10.0, 11.0]] * 3
    plain = Recording.of_rows(frame.drop(columns=["tokens", "squares"]), "job")
    assert [each.tolist() for each in amounts(plain, plain.table())] == [[[32.0, 32.0]] * 3]

"""Fits of links and of the cost of work: the parameters of drawn messages and loads are recovered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.analysis.planning.linkfit import (
    Messages,
    PortFit,
    Work,
    fit_groups,
    fit_line,
    fit_port,
    fit_work,
)
from workbench.core.contract.round_times import port_departures

FEW_EXAMPLES = settings(max_examples=10)
SEEDS = st.integers(0, 2**32 - 1)
LENGTHS = (512.0, 8192.0, 65536.0)


@FEW_EXAMPLES
@given(start=st.floats(1e-5, 1e-2), rate=st.floats(1e5, 1e9), seed=SEEDS)
def test_fit_line_ignores_outliers(start: float, rate: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = np.repeat([1e3, 1e5, 1e7], 60)
    seconds = (start + lengths / rate) * rng.uniform(0.99, 1.01, 180)
    seconds[rng.random(180) < 0.1] *= 20
    line = fit_line(lengths, seconds)
    at = line.start + 1e7 / (line.rate or np.inf)
    assert at == pytest.approx(start + 1e7 / rate, rel=0.05)
    assert line.rate == pytest.approx(rate, rel=0.1)


def test_fit_line_without_slope_or_data() -> None:
    lengths = np.repeat([1.0, 2.0, 3.0], 20)
    assert fit_line(lengths, np.full(60, 0.5)).rate is None
    assert fit_line(lengths, np.full(60, 0.5)).start == pytest.approx(0.5, rel=0.01)
    assert fit_line(lengths, np.zeros(60)) == (0.0, None)


def messages(truth: PortFit, seed: int, senders: int = 8) -> list[Messages]:
    """Draw answers that are sent at random times and pass the port as in a forecast."""
    rng = np.random.default_rng(seed)
    found = []
    for length in LENGTHS:
        spread = 2 * truth.transfer(length)
        sent = rng.uniform(0, spread, (40, senders))
        order = np.argsort(sent, axis=1)
        end = np.empty_like(sent)
        np.put_along_axis(end, order, port_departures(sent + truth.latency, truth.transfer(length)), axis=1)
        found.append(Messages(length, sent, end))
    return found


@FEW_EXAMPLES
@given(
    latency=st.floats(1e-4, 1e-2), overhead=st.floats(1e-4, 1e-3), bandwidth=st.floats(1e6, 1e8), seed=SEEDS
)
def test_fit_port_separates_latency_overhead_and_bandwidth(
    latency: float, overhead: float, bandwidth: float, seed: int
) -> None:
    truth = PortFit(latency=latency, overhead=overhead, bandwidth=bandwidth)
    found = fit_port(messages(truth, seed))
    assert found.latency == pytest.approx(latency, rel=0.1, abs=1e-5)
    for length in LENGTHS:
        assert found.transfer(length) == pytest.approx(truth.transfer(length), rel=0.1)


def test_fit_port_ignores_a_few_late_messages() -> None:
    truth = PortFit(latency=1e-3, overhead=2e-4, bandwidth=1e7)
    found = messages(truth, 1)
    for each in found:
        each.end[::13] += 1.0  # every 13th round is delayed by something else
    fit = fit_port(found)
    assert fit.latency == pytest.approx(1e-3, rel=0.05)
    assert fit.transfer(65536) == pytest.approx(truth.transfer(65536), rel=0.05)
    assert fit.residual < 1e-4


def test_fit_port_continues_from_another_fit() -> None:
    truth = PortFit(latency=1e-3, overhead=2e-4, bandwidth=1e7)
    found = messages(truth, 2)
    again = fit_port(found, near=fit_port(found))
    assert again.latency == pytest.approx(1e-3, rel=0.05)
    assert again.transfer(65536) == pytest.approx(truth.transfer(65536), rel=0.05)


@given(
    fixed=st.floats(0, 1e-2),
    per_number=st.floats(0, 1e-6),
    per_sample=st.floats(0, 1e-4),
    per_cell=st.floats(1e-9, 1e-7),
)
def test_fit_work_recovers_the_cost(
    fixed: float, per_number: float, per_sample: float, per_cell: float
) -> None:
    truth = Work(fixed=fixed, per_number=per_number, per_sample=per_sample, per_cell=per_cell)
    grid = [(s, p) for s in (16.0, 64.0, 256.0) for p in (64.0, 1024.0, 4096.0)]
    found, times = fit_work(
        [s for s, _ in grid], [p for _, p in grid], [truth.seconds(s, p) for s, p in grid]
    )
    np.testing.assert_allclose(times, [truth.seconds(s, p) for s, p in grid], rtol=1e-6)
    for s, p in [*grid, (100.0, 500.0), (1000.0, 8000.0)]:
        assert found.seconds(s, p) == pytest.approx(truth.seconds(s, p), rel=1e-3)


@pytest.mark.parametrize("truth", [Work(fixed=1e-3), Work(per_sample=2e-5), Work(per_cell=2e-8)], ids=repr)
def test_fit_work_takes_no_noise_for_a_slope(truth: Work) -> None:
    """Errors of 5 % in the measured times are not fitted as a slope. The fitted times have smaller errors."""
    loads = [(s, p) for p in (64.0, 1024.0, 4096.0) for s in (64.0, 256.0)]
    right = np.array([truth.seconds(s, p) for s, p in loads])
    off = []
    for seed in range(60):
        seconds = right * np.exp(np.random.default_rng(seed).normal(0.0, 0.05, len(loads)))
        _, times = fit_work([s for s, _ in loads], [p for _, p in loads], seconds, [0.05])
        off.append(np.log(times / right))
    assert abs(np.mean(off)) < 0.01
    assert np.std(off) < 0.035  # 0.05 if every term is fitted; 0.02 if the term is given


def test_fit_work_keeps_the_unexplained_residual() -> None:
    """One load takes 1.5 times as long as the linear model predicts, for example because it exceeds the cache.

    The errors are 1 %.
    """
    loads = [(s, p) for p in (64.0, 1024.0, 4096.0) for s in (64.0, 256.0)]
    seconds = np.array([1.0, 1.0, 1.0, 1.5, 1.0, 1.0])
    _, times = fit_work([s for s, _ in loads], [p for _, p in loads], seconds, [0.01])
    np.testing.assert_allclose(times, seconds, rtol=0.02)


@FEW_EXAMPLES
@given(
    latencies=st.sampled_from([(1e-3, 1e-2), (5e-3, 5e-4), (1e-3, 1e-3)]),
    bandwidths=st.sampled_from([(1e7, 1e6), (2e6, 2e7), (1e7, 1e7)]),
    slow=st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True),
    seed=SEEDS,
)
def test_fit_groups_finds_the_workers_whose_links_differ(
    latencies: tuple[float, float], bandwidths: tuple[float, float], slow: list[int], seed: int
) -> None:
    rng, senders, found = np.random.default_rng(seed), 8, []
    who = np.isin(np.arange(1, senders + 1), slow)
    latency = np.where(who, latencies[1], latencies[0])
    for length in LENGTHS:
        transfer = 1e-4 + length / np.where(who, bandwidths[1], bandwidths[0])
        sent = rng.uniform(0, 2 * transfer.sum(), (40, senders))
        order = np.argsort(sent + latency, axis=1)
        end = np.empty_like(sent)
        np.put_along_axis(end, order, port_departures(sent + latency, transfer), axis=1)
        found.append(Messages(length, sent, end))
    fit = fit_groups(found, fit_port(found))
    if latencies[0] == latencies[1] and bandwidths[0] == bandwidths[1]:
        assert fit.groups == ()
        return
    assert [group.workers for group in fit.groups] == [tuple(sorted(slow))]
    got, transfer = fit.by_worker(LENGTHS[-1], senders)
    np.testing.assert_allclose(got, latency, rtol=0.1, atol=3e-4)
    rate = np.where(who, bandwidths[1], bandwidths[0])
    np.testing.assert_allclose(transfer, 1e-4 + LENGTHS[-1] / rate, rtol=0.1, atol=3e-4)

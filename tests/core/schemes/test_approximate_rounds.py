"""Rounds of approximate gradient coding: permutations of workers, deadlines, and commits."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.approximate_runs import N, Q, S, came, experiment, simulated
from workbench.core.engine.virtual.arithmetic import Coefficients, Numbers
from workbench.core.running.simulated import timeline


def test_shuffling_moves_parts_but_not_stragglers() -> None:
    """With this seed, a fixed code loses a whole group of parts in most rounds. With shuffling, this is rare."""
    lines = {k: simulated(experiment("FRC", 40, shuffle=k, seed=0))[0] for k in ("none", "random", "cyclic")}
    lossy = {kind: np.array(line.residuals) > 0.5 for kind, line in lines.items()}
    for kind in ("random", "cyclic"):
        np.testing.assert_array_equal(came(lines["none"], N), came(lines[kind], N))
        assert (lossy[kind] != lossy["none"]).any()
        assert lossy[kind].sum() < lossy["none"].sum()


def test_cyclic_shuffling_moves_every_worker_by_one() -> None:
    e = experiment("CRC", 1, shuffle="cyclic")
    scheme, B = e.built_scheme, e.plan.matrix()[1:]
    for r in range(2 * N + 1):
        np.testing.assert_array_equal(scheme.encoding(e.plan, r)[1:], np.roll(B, -r, axis=0))


def test_cyclic_shuffling_of_a_circulant_code_keeps_every_error() -> None:
    """Shifting the workers only shifts the missing parts, as in Theorem 2."""
    fixed, moved = (simulated(experiment("CRC", 60, seed=2, shuffle=k)) for k in ("none", "cyclic"))
    np.testing.assert_allclose(fixed[0].residuals, moved[0].residuals, atol=1e-10)
    assert max(fixed[0].residuals) > 0.5
    for r, (a, b) in enumerate(zip(fixed[1].weights, moved[1].weights, strict=True)):
        if a is not None and b is not None:
            np.testing.assert_allclose(np.roll(a, r), b, atol=1e-8)


def test_random_shuffling_is_a_seeded_permutation() -> None:
    e, other = experiment(shuffle="random"), experiment(shuffle="random", code_seed=1)
    rows = [e.built_scheme.rows(N, r) for r in range(300)]
    assert all(sorted(row) == list(range(N)) for row in rows)
    places = np.array([np.bincount(column, minlength=N) for column in np.array(rows).T])
    assert places.min() > 15  # each worker is at each place, 37.5 times on average
    assert places.max() < 65
    again = experiment(shuffle="random", seed=9).built_scheme
    assert all(np.array_equal(row, again.rows(N, r)) for r, row in enumerate(rows))
    assert not np.array_equal(rows[0], other.built_scheme.rows(N, 0))


def test_shuffling_permutes_what_workers_compute() -> None:
    """The sizes of parts differ. A worker's time is that of its parts in this round."""
    e = experiment(
        "FRC", 20, shuffle="random", problem_args={"samples": 13}, delays={"kind": "constant", "shift": 1.0}
    )
    line, scheme = simulated(e)[0], e.built_scheme
    seconds = {(row[0], row[1]): row[5] - row[3] for row in line.events if row[2] == "compute"}
    for r in range(20):
        np.testing.assert_allclose(
            [seconds.get((r, rank), 4.0) for rank in range(1, N + 1)],
            scheme.round_plan(e.plan, r).loads[1:],
        )  # workers with 4 samples finish at the deadline or later
    assert len({tuple(scheme.round_plan(e.plan, r).loads) for r in range(20)}) > 5
    np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0.0))


@pytest.mark.parametrize("shuffle", ["none", "random"])
def test_deadline_ends_a_round_exactly(shuffle: str) -> None:
    for deadline in (4.0, 1.0, 30.0):  # some, none, all workers are in time
        e = experiment("CRC", 30, deadline=deadline, shuffle=shuffle)
        line, coefficients = simulated(e)
        np.testing.assert_allclose(line.times, deadline * np.arange(1, 31))
        f = wb.forecast(e)
        assert (f.mean, f.std) == (deadline, 0.0)
        assert f.messages == np.mean(line.messages)
        if deadline == 1.0:
            assert line.residuals == [N] * 30
            assert all(w is not None and not w.any() for w in coefficients.weights)
        if deadline == 30.0:
            assert coefficients.weights == [None] * 30


def test_deadline_excludes_decoding_and_links() -> None:
    link = {"latency": 0.1, "bandwidth": 8 * N / 0.5}  # 0.5 s per answer through the port
    e = experiment("CRC", 30, deadline=4.05, decode_rate=N / 0.25, link=link)
    line, f = simulated(e)[0], wb.forecast(e)
    messages = np.array(line.messages)
    assert messages.max() == 3  # 2.1 s + 0.5 s each until 4.05 s; the others straggle or queue
    np.testing.assert_allclose(np.diff(line.times, prepend=0.0), 4.05 + 0.25 * messages)
    np.testing.assert_allclose(f.seconds, 4.05 + 0.25 * messages)


def test_deadline_works_with_dead_workers() -> None:
    faults = [{"worker": w, "round": 2 + w // 5} for w in range(1, N + 1)]
    line, coefficients = simulated(experiment("FRC", 6, deadline=30.0, faults=faults))
    np.testing.assert_allclose(line.residuals, [0, 0, 4, 8, 8, 8], atol=1e-12)
    assert coefficients.weights[0] is None


@pytest.mark.parametrize("scheme", ["FRC", "CRC"])
def test_wait_for_some_answers(scheme: str) -> None:
    """wait_for = k ends a round with the k-th answer. All but s - 1 answers decode exactly."""
    delays = {"kind": "shifted_exponential", "shift": 1.0, "rate": 1.0}
    for k in (1, 5, 7, None):
        own = {} if k is None else {"wait_for": k}
        e = experiment(scheme, 40, delays=delays, shuffle="random", deadline=None, **own)
        line = simulated(e)[0]
        assert set(line.messages) == {k or N - S + 1}
        np.testing.assert_allclose(wb.forecast(e).seconds, np.diff(line.times, prepend=0.0), rtol=1e-9)
        assert (max(line.residuals) < 1e-12) == (k in (7, None))
        if k == 1:
            assert line.residuals == pytest.approx([N - S] * 40)


@pytest.mark.parametrize("shuffle", ["none", "random"])
@pytest.mark.parametrize("scheme", ["FRC", "CRC", "SGC", "BGC", "ErasureHead"])
def test_approximate_vectors_and_coefficients_commit_the_same(scheme: str, shuffle: str) -> None:
    own = {} if scheme == "ErasureHead" else {"shuffle": shuffle}
    own |= {"straggling": Q, "decoding": "sum"} if scheme == "SGC" else {}
    e = experiment(scheme, 15, seed=2, **own)
    coefficients, numbers = Coefficients(e.plan), Numbers(e.plan, e.build_problem(), e.build_optimiser())
    cheap, real = timeline(e, coefficients, events=False), timeline(e, numbers, events=False)
    for weights, gradient in zip(coefficients.weights, numbers.gradients, strict=True):
        np.testing.assert_allclose(gradient, np.ones(N) if weights is None else weights, atol=1e-8)
    np.testing.assert_allclose(cheap.residuals, real.residuals, atol=1e-10)
    assert max(cheap.residuals) > 0.1

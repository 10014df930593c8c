"""Times of the ring all-reduce, compared with a ring of explicit messages."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayStream, ShiftedExponential, TwoPart
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.contract.plan import MASTER
from workbench.core.contract.protocol import Commit, Compute, Node, Program
from workbench.core.contract.ring import _by_steps, ring_finish, ring_steps, slice_sizes
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.engine.virtual.sim import SimSetup, simulate
from workbench.core.problems.linear import LeastSquares
from workbench.core.schemes.ring_all_reduce import RAR


class Explicit(RAR):
    """RAR whose slices are separate messages."""

    def program(self, node: Node) -> Program:
        model, came = node.model, dict[tuple[int, int], Array]()
        for r in range(node.rounds if node.rank != MASTER else 0):
            value = yield Compute(node.work, model, r)
            total = yield from ring_steps(node, value, r, came)
            model = yield Commit(total, r)


class TestRing:
    rounds: ClassVar[int] = 4

    @given(
        st.integers(2, 9), st.integers(1, 23), st.sampled_from([0.0, 0.01, 3.0]), st.sampled_from([None, 40.0, 1e5]),
        st.integers(0, 99),
    )  # fmt: skip
    def test_ring_and_mpi_all_reduce_have_equal_times_and_bits(
        self, n: int, floats: int, latency: float, bandwidth: float | None, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((3 * n, floats)), rng.standard_normal(3 * n)
        found = []
        for scheme in (RAR(), Explicit()):
            plan = scheme.plan(n, 3 * n)
            numbers = Numbers(plan, LeastSquares(X, y), GradientDescent(step=0.01))
            stream = DelayStream(ShiftedExponential(shift=0.01, rate=3.0), seed, n)
            world = SimSetup(self.rounds, floats, stream, Link(latency=latency, bandwidth=bandwidth))
            found.append((simulate(scheme, plan, world, numbers), numbers.models[-1]))
        (quick, model), (slow, explicit) = found
        np.testing.assert_allclose(quick.times, slow.times, rtol=1e-12)
        np.testing.assert_array_equal(model, explicit)
        assert quick.messages == slow.messages == [2 * n * (n - 1)] * self.rounds
        assert quick.bytes == slow.bytes

    @given(st.integers(3, 7), st.integers(1, 23), st.integers(0, 99))
    def test_ring_slice_that_overtakes_is_kept_for_its_step(self, n: int, floats: int, seed: int) -> None:
        """If a message's time depends on its length, a later message may arrive first."""
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((3 * n, floats)), rng.standard_normal(3 * n)
        plan, found = Explicit().plan(n, 3 * n), []
        for delay_model in (TwoPart(t1=0.01, t2=9.0), TwoPart(t1=0.01, t2=0.0)):
            numbers = Numbers(plan, LeastSquares(X, y), GradientDescent(step=0.01))
            world = SimSetup(self.rounds, floats, DelayStream(delay_model, seed, n), Link())
            simulate(Explicit(), plan, world, numbers)
            found.append(numbers.models[-1])
        np.testing.assert_array_equal(*found)


def test_ring_finish_without_latency_is_equal_for_all() -> None:
    """After the last node has entered, the ring takes 2(N-1) steps of p/N values (paper 1, section II-B)."""
    entry = np.array([0.0, 5.0, 1.0, 2.0])
    finish, _ = ring_finish(entry, np.zeros(4), 400, Link(bandwidth=800.0))
    np.testing.assert_allclose(finish, 5.0 + 6 * 1.0)


@given(
    st.integers(1, 20), st.integers(1, 90), st.sampled_from([0.0, 0.3, 20.0]), st.sampled_from([None, 8.0, 80.0]),
    st.integers(0, 99),
)  # fmt: skip
def test_ring_finish_of_the_longest_path(
    n: int, floats: int, latency: float, bandwidth: float | None, seed: int
) -> None:
    """Slices may be empty or of different lengths, ports may be busy, and nodes may be early or late."""
    link = Link(latency=latency, bandwidth=bandwidth)
    entry, busy = 50 * np.random.default_rng(seed).exponential(size=(2, n)) ** 2
    steps = _by_steps(entry, busy, link.width * slice_sizes(floats, n) / (bandwidth or np.inf), latency)
    if latency or bandwidth or n == 1:
        np.testing.assert_allclose(ring_finish(entry, busy, floats, link), steps, rtol=1e-13)


def test_slice_sizes_differ_by_at_most_one() -> None:
    assert slice_sizes(10, 4).tolist() == [3, 3, 2, 2]
    with pytest.raises(ZeroDivisionError):
        slice_sizes(10, 0)

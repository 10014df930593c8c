"""IS-GC: maximal independent sets, the authors' rules, unbiased weights, and refusals."""

from __future__ import annotations

from bisect import bisect_left
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.approximate_runs import N, experiment, simulated
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import CounterRNG
from workbench.core.schemes.is_gc import ISGC, STARTS_STREAM, largest_apart


def far(chosen: tuple[int, ...], apart: int, around: int) -> bool:
    return all(apart <= (b - a) % around <= around - apart for a, b in combinations(chosen, 2))


@given(st.data())
def test_largest_apart_is_maximal(data: st.DataObject) -> None:
    around = data.draw(st.integers(1, 14))
    apart = data.draw(st.integers(1, around))
    places = sorted(data.draw(st.sets(st.integers(0, around - 1), min_size=1)))
    first = data.draw(st.integers(0, len(places) - 1))
    found = [places[i] for i in largest_apart(places, [apart] * around, around, first)]
    assert far(tuple(found), apart, around)
    assert found == sorted(set(found))
    sizes = [
        k for k in range(1, len(places) + 1) if any(far(c, apart, around) for c in combinations(places, k))
    ]
    assert len(found) == max(sizes)


@pytest.mark.parametrize(("workers", "apart", "waits"), [(7, 2, 4), (8, 3, 3), (9, 3, 6), (6, 4, 2)])
def test_is_gc_weights_are_one_on_average(workers: int, apart: int, waits: int) -> None:
    """The mean is exact: over all sets of `waits` answers, and over each answer from which decoding may start."""
    window = (np.arange(workers)[:, None] + np.arange(apart)) % workers
    mean, from_first = np.zeros(workers), np.zeros(workers)
    for answered in combinations(range(workers), waits):
        for first in range(waits):
            chosen = [answered[i] for i in largest_apart(answered, [apart] * workers, workers, first)]
            weights = np.bincount(window[chosen].ravel(), minlength=workers) * workers / (apart * len(chosen))
            assert weights.max() == weights[weights > 0].min()  # no part counts twice
            mean += weights / waits
            from_first += weights * (first == 0)
    sets = len(list(combinations(range(workers), waits)))
    np.testing.assert_allclose(mean / sets, 1.0, atol=1e-12)
    if (workers, apart) == (7, 2):
        # the authors' program starts from a fixed answer, which favours some parts
        assert np.ptp(from_first / sets) > 1e-3


def settings(most: int) -> list[tuple[int, ISGC]]:
    """Return all hybrid placements for up to `most` workers."""
    found = []
    for n in range(1, most + 1):
        for copies, groups, inside in product(range(1, n + 1), range(1, n + 1), range(n + 1)):
            args = {"replication": copies, "group_replication": inside, "groups": groups, "wait_for": 1}
            scheme = ISGC(placement="hybrid", **args)
            try:
                scheme.check(n)
            except SettingError:
                continue
            found.append((n, scheme))
    return found


def independent(cands: tuple[int, ...], conflicts: Array) -> int:
    """Return the size of a largest set without a conflict, by enumeration."""
    if not cands:
        return 0
    rest = cands[1:]
    free = tuple(other for other in rest if not conflicts[cands[0], other])
    return max(1 + independent(free, conflicts), independent(rest, conflicts))


def test_hybrid_sets_are_largest_for_every_placement_and_every_answer() -> None:
    """This is enumerated for all placements of up to 8 workers, all sets of answers, and all answers to start from."""
    placed = settings(8)
    assert len(placed) > 100
    for n, scheme in placed:
        stored = scheme.build_code(n).matrix
        assert (stored.sum(0) == scheme.replication).all()
        assert (stored.sum(1) == scheme.replication).all()
        conflicts, reach = stored @ stored.T > 0, scheme.reach(n)
        for answered in [a for k in range(1, n + 1) for a in combinations(range(n), k)]:
            best = independent(answered, conflicts)
            for first in range(len(answered)):
                found = [answered[i] for i in largest_apart(answered, reach, n, first)]
                assert len(found) == best
                assert not any(conflicts[a, b] for a, b in combinations(found, 2))


class RayGc:
    """Placement and decoding of `IS_GC_HR` in `ray_gc.py` of IS-GC/IS-GC, commit d54d386, reimplemented."""

    def __init__(self, n: int, c: int, c1: int, g: int) -> None:
        self.n, self.c, self.c2, self.c1, self.size = n, c, c - c1, c1, n // g

    def parts(self, worker: int) -> list[int]:
        place = worker % self.size
        inside = [worker - place + (place - back) % self.size for back in range(self.c1, 0, -1)]
        return inside + [(worker + ahead) % self.n for ahead in range(self.c2)]

    def follows(self, left: int, right: int) -> bool:
        """Return whether `right`, further along the circle, shares no part with `left`."""
        group, other, groups = left // self.size, right // self.size, self.n // self.size
        if group == other and left < right:
            return False
        crosses = left % self.size >= self.size - self.c2 + 1
        if other == group + 1 and crosses and right - left < self.c:
            return False
        return not (group == groups - 1 and other == 0 and crosses and right + self.n - left < self.c)

    def chosen(self, answered: tuple[int, ...], start: int) -> list[int]:
        best: list[int] = []
        for begin in [i for i, w in enumerate(answered) if w // self.size == answered[start] // self.size]:
            taken, at = [answered[begin]], begin
            ahead = (begin + 1) % len(answered)
            while ahead != begin and self.follows(answered[ahead], answered[begin]):
                if self.follows(answered[at], answered[ahead]):
                    taken.append(answered[ahead])
                    at = ahead
                ahead = (ahead + 1) % len(answered)
            best = max(best, taken, key=len)
        return sorted(best)


@pytest.mark.parametrize(
    ("n", "c", "c1", "g"), [(8, 2, 1, 4), (9, 3, 1, 3), (12, 3, 1, 3), (12, 4, 2, 3), (10, 4, 2, 2)]
)
def test_hybrid_decodes_as_the_authors_program(n: int, c: int, c1: int, g: int) -> None:
    """Each worker stores the same parts as in the authors' program.

    If decoding starts from the same answer, it uses the same workers whenever the program's set is maximal.
    """
    scheme = ISGC(placement="hybrid", replication=c, group_replication=c1, groups=g)
    theirs, code = RayGc(n, c, c1, g), scheme.build_code(n)
    assert [sorted(np.flatnonzero(row)) for row in code.matrix] == [sorted(theirs.parts(w)) for w in range(n)]
    fewer = cases = 0
    for round, answered in enumerate(a for k in (2, n // 2, n - 1) for a in combinations(range(n), k)):
        start = int(CounterRNG(0, STARTS_STREAM).rng(round).integers(len(answered)))
        wanted, weights = theirs.chosen(answered, start), scheme.weigh(code, answered, round).weights
        found = [w for w, weight in zip(answered, weights, strict=True) if weight]
        cases += 1
        if len(wanted) < len(found):
            fewer += 1
            continue
        assert found == wanted
        np.testing.assert_allclose(weights[weights > 0], n / (len(wanted) * c))
    assert fewer < cases / 10
    if (n, c, c1, g) == (12, 4, 2, 3):
        assert fewer == 0


@pytest.mark.parametrize(
    ("n", "c", "c1", "g", "least"), [(9, 3, 1, 3, 1.0), (12, 4, 2, 3, 1.0), (12, 4, 2, 2, 0.4)]
)
def test_hybrid_weights_are_one_on_average_in_groups_of_c_workers(
    n: int, c: int, c1: int, g: int, least: float
) -> None:
    """The mean is exact: over all sets of 6 answers, and over each answer from which decoding may start.

    Groups of more than c workers favour some parts.
    """
    scheme = ISGC(placement="hybrid", replication=c, group_replication=c1, groups=g)
    stored, mean, sets = scheme.build_code(n).matrix, np.zeros(n), list(combinations(range(n), 6))
    for answered in sets:
        for drawn in answered:
            first = bisect_left(answered, drawn // (n // g) * (n // g))
            chosen = [answered[i] for i in largest_apart(answered, scheme.reach(n), n, first)]
            mean += stored[chosen].sum(axis=0) * n / (c * len(chosen)) / 6
    mean /= len(sets)
    assert mean.mean() == pytest.approx(1.0)
    assert mean.min() == pytest.approx(1.0) if least == 1.0 else mean.min() < least


@pytest.mark.parametrize("placement", ["cyclic", "fractional", "hybrid"])
def test_is_gc_run_is_unbiased_and_reports_its_error(placement: str) -> None:
    args = {"replication": 2, "wait_for": 3, "placement": placement, "groups": N // 2}
    e = experiment("IS-GC", 2000, delays={"kind": "exponential", "mean": 1.0}, **args)
    line, commits = simulated(e)
    weights = np.array([np.ones(N) if w is None else w for w in commits.weights])
    spread = weights.std(axis=0) / 2000**0.5
    assert (np.abs(weights.mean(axis=0) - 1) < 4.5 * spread).all()
    assert set(np.array(line.residuals).round(9)) == {round(N * (N / covered - 1), 9) for covered in (4, 6)}
    assert wb.forecast(e).mean == pytest.approx(line.times[-1] / 2000)


def test_is_gc_refuses_wrong_parameters() -> None:
    with pytest.raises(
        wb.SettingError, match=r"scheme_args.replication = 3: .*take 1, 2, 4, 8; or placement"
    ):
        wb.Experiment(scheme="IS-GC", scheme_args={"replication": 3, "placement": "fractional"}, workers=8)
    with pytest.raises(wb.SettingError, match=r"scheme_args.wait_for = 9: .*the nearest is 8"):
        wb.Experiment(scheme="IS-GC", scheme_args={"wait_for": 9}, workers=8)
    for args, text in (
        (
            {"groups": 5},
            r"scheme_args.groups = 5: does not divide 12 workers; take .*; or placement = 'cyclic'",
        ),
        ({"groups": 2}, r"scheme_args.groups = 2: 6 workers in a group .* take 4, 6; or placement"),
        ({"replication": 5, "groups": 12}, r"groups = 12: 1 workers in a group .*; take 2; or placement"),
        (
            {"replication": 7, "groups": 3},
            r"groups = 3: 4 workers in a group .*; take replication = 4; or placement",
        ),
        ({"group_replication": 3}, r"scheme_args.group_replication = 3: .*the nearest is 2"),
    ):
        with pytest.raises(wb.SettingError, match=text):
            wb.Experiment(scheme="IS-GC", scheme_args={"placement": "hybrid", **args}, workers=12)

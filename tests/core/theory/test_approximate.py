"""Paper 4: decoding errors against enumeration, Monte Carlo and other closed forms."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.monte_carlo import agrees
from workbench.core.theory import (
    crc_error,
    crc_error_given_slow,
    crc_errors,
    expected_accesses,
    frc_error,
    frc_error_given_slow,
    missed_given_slow,
    missed_shuffled,
    missed_unshuffled,
    straggler_probability,
    survivor_distribution,
)

PUBLISHED = {"n": 8, "p_slow": 0.3, "p_ss": 0.8, "p_as": 0.01}

chance = st.floats(0, 1)
classes = st.fixed_dictionaries({"p_slow": chance, "p_ss": chance, "p_as": chance})
codes = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def cyclic(n: int, s: int) -> NDArray[np.float64]:
    """Return plain sums of s parts, worker by worker."""
    return np.array([[1.0 if (j - i) % n < s else 0.0 for j in range(n)] for i in range(n)])


def repetition(n: int, s: int) -> NDArray[np.float64]:
    return np.kron(np.eye(n // s), np.ones((s, s)))


def tandon(n: int, s: int, seed: int) -> NDArray[np.float64]:
    """Return the random cyclic code of Tandon et al. 2017 with s parts per worker."""
    H = np.random.default_rng(seed).standard_normal((s - 1, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)
    B = np.zeros((n, n))
    for i in range(n):
        window = (i + np.arange(s)) % n
        B[i, window] = [1.0, *-np.linalg.solve(H[:, window[1:]], H[:, window[0]])]
    return B


def error(B: NDArray[np.float64], survivors: list[int]) -> float:
    if not survivors:
        return float(B.shape[1])
    x = np.linalg.lstsq(B[survivors].T, np.ones(B.shape[1]), rcond=None)[0]
    return float(((x @ B[survivors] - 1) ** 2).sum())


def enumerated(B: NDArray[np.float64], slow: int, p_ss: float, p_as: float) -> float:
    """Return the mean error over all places of the slow workers and all sets of survivors."""
    n, total = len(B), 0.0
    errors = {mask: error(B, [i for i in range(n) if mask >> i & 1]) for mask in range(2**n)}
    for places in combinations(range(n), slow):
        stuck = np.where(np.isin(np.arange(n), places), p_ss, p_as)
        total += sum(
            e * np.prod([1 - q if mask >> i & 1 else q for i, q in enumerate(stuck)])
            for mask, e in errors.items()
        )
    return total / comb(n, slow)


def drawn(
    rng: np.random.Generator, draws: int, n: int, p_slow: float, p_ss: float, p_as: float
) -> NDArray[np.bool_]:
    """Return the survivors of every draw, (draws, n)."""
    slow = rng.random((draws, n)) < p_slow
    return np.asarray(rng.random((draws, n)) >= np.where(slow, p_ss, p_as))


@pytest.mark.parametrize(("n", "s"), [(1, 1), (2, 2), (4, 2), (6, 2), (6, 3)])
@pytest.mark.parametrize("slow", [0, 1, 3])
def test_frc_against_enumeration(n: int, s: int, slow: int) -> None:
    slow = min(slow, n)
    exact = enumerated(repetition(n, s), slow, 0.7, 0.2)
    assert frc_error_given_slow(n, s, slow, 0.7, 0.2) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize(("n", "s"), [(1, 1), (2, 1), (2, 2), (4, 2), (5, 2), (6, 2), (6, 3), (6, 4), (7, 3)])
@pytest.mark.parametrize("slow", [0, 2])
def test_crc_against_enumeration(n: int, s: int, slow: int) -> None:
    slow = min(slow, n)
    exact = enumerated(cyclic(n, s), slow, 0.7, 0.2)
    assert crc_error_given_slow(n, s, slow, 0.7, 0.2) == pytest.approx(exact, abs=1e-10)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("slow", [0, 2])
def test_crc_random_code_against_enumeration(seed: int, slow: int) -> None:
    B = tandon(6, 3, seed)
    exact = enumerated(B, slow, 0.7, 0.2)
    assert crc_error_given_slow(6, 3, slow, 0.7, 0.2, coefficients=B) == pytest.approx(exact, abs=1e-8)


@given(code=codes)
def test_the_three_ways_to_all_errors_agree(code: tuple[int, int]) -> None:
    """Errors are computed for plain sums by necklaces, for a circulant matrix by necklaces, and by all 2^n sets.

    The third way is used if rows are scaled, which does not change the errors.
    """
    n, s = code
    quick = crc_errors(n, s)
    assert crc_errors(n, s, cyclic(n, s)) == pytest.approx(quick, abs=1e-9)
    assert crc_errors(n, s, cyclic(n, s) * np.arange(1, n + 1)[:, None]) == pytest.approx(quick, abs=1e-9)


def closed_form_of_two(n: int, q: float) -> float:
    """Return the error of CRC with two parts per worker.

    A run of l survivors between two missing workers covers l + 1 parts. The squared errors of these parts sum to
    1 / (l + 1) if l is even, and to 0 if l is odd.
    """
    runs = sum((1 - q) ** run * q / (run + 1) for run in range(0, n - 1, 2))
    # with one missing worker, the run of n - 1 survivors has it at both ends
    alone = (1 - q) ** (n - 1) / n if n % 2 else 0.0
    return n * q * (runs + alone)


@given(n=st.integers(3, 12), model=classes)
def test_crc_with_two_parts_per_worker_has_a_closed_form(n: int, model: dict[str, float]) -> None:
    exact = closed_form_of_two(n, straggler_probability(**model))
    assert crc_error(n, 2, **model) == pytest.approx(exact, abs=1e-9)


@given(code=codes, model=classes)
def test_frc_is_n_q_to_the_s(code: tuple[int, int], model: dict[str, float]) -> None:
    n, s = code[0] * code[1], code[1]
    exact = n * straggler_probability(**model) ** s
    assert frc_error(n, s, **model) == pytest.approx(exact, abs=1e-11)


@given(code=codes, model=classes, seed=st.integers(0, 1000))
def test_crc_error_is_at_least_that_of_repetition(
    code: tuple[int, int], model: dict[str, float], seed: int
) -> None:
    """A part without an answer costs 1, and the mean number of such parts is n q^s.

    CRC is therefore never better than FRC.
    """
    n, s = code
    least = n * straggler_probability(**model) ** s
    random = np.where(cyclic(n, s) > 0, np.random.default_rng(seed).standard_normal((n, n)), 0.0)
    assert crc_error(n, s, **model) >= least - 1e-9
    assert crc_error(n, s, **model, coefficients=random) >= least - 1e-9


@given(code=codes, p_slow=chance, p_ss=chance, p_as=chance)
def test_errors_grow_with_the_straggling(
    code: tuple[int, int], p_slow: float, p_ss: float, p_as: float
) -> None:
    n, s = code
    lower = crc_error(n, s, p_slow, p_ss * 0.9, p_as * 0.9)
    assert lower <= crc_error(n, s, p_slow, p_ss, p_as) + 1e-9
    errors = crc_errors(n, s)
    assert errors[0] == n
    assert (np.diff(errors) <= 1e-9).all()
    assert errors[n] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("n", "s", "code"), [(8, 2, "crc"), (9, 3, "frc"), (9, 3, "crc"), (10, 4, "crc")])
def test_frc_and_crc_errors_against_monte_carlo(n: int, s: int, code: str) -> None:
    """Slow workers, stragglers and shuffling are drawn. Decoding is by NumPy's least squares."""
    rng = np.random.default_rng(n)
    B = cyclic(n, s) if code == "crc" else repetition(n, s)
    expected = (crc_error if code == "crc" else frc_error)(n, s, 0.4, 0.7, 0.1)
    survivors = drawn(rng, 3000, n, 0.4, 0.7, 0.1)
    agrees(np.array([error(B, rng.permutation(n)[up].tolist()) for up in survivors]), expected)


def test_published_frc_error_is_that_of_one_part_per_worker() -> None:
    """The paper prints 1.976 for s = 2. Theorem 1 gives 0.4881 for s = 2, and n q = 1.976 for s = 1."""
    assert frc_error(s=2, **PUBLISHED) == pytest.approx(0.4881, abs=5e-5)
    assert frc_error(s=1, **PUBLISHED) == pytest.approx(1.976, abs=5e-4)


def test_published_crc_error_is_not_theorem_2() -> None:
    """The paper prints 0.5173.

    Plain sums have 0.6244, and random codes with two parts per worker have more than 0.75.
    """
    assert crc_error(s=2, **PUBLISHED) == pytest.approx(0.6244, abs=5e-5)
    assert crc_error(s=2, **PUBLISHED) > frc_error(s=2, **PUBLISHED)
    random = [crc_error(s=2, **PUBLISHED, coefficients=tandon(8, 2, seed)) for seed in range(30)]
    assert min(random) > 0.75
    assert np.median(random) == pytest.approx(1.4, abs=0.2)


def test_crc_theorem_2_omits_cases_of_plain_sums() -> None:
    """The theorem sums to r = n - s. With 8 workers and three parts each, 6 or 7 answers still miss some parts."""
    errors = crc_errors(8, 3)
    whole = crc_error(s=3, **PUBLISHED)
    printed = sum(
        comb(8, m) * 0.3**m * 0.7 ** (8 - m) * float(survivor_distribution(8, m, 0.8, 0.01)[:6] @ errors[:6])
        for m in range(9)
    )
    assert (whole, printed) == (pytest.approx(0.2971, abs=5e-5), pytest.approx(0.2248, abs=5e-5))
    assert errors[6] > 0.1
    assert crc_errors(9, 3)[7:] == pytest.approx(0, abs=1e-9)  # 3 divides 9, so two stragglers are tolerated


def test_crc_shifts_of_a_random_code_differ() -> None:
    """The proof of theorem 2 assumes columns that are shifts of each other. In Tandon's code, only their zeros are."""
    B = tandon(8, 2, 0)
    assert abs(error(B, [0, 1, 2, 5]) - error(B, [1, 2, 3, 6])) > 0.01
    assert error(cyclic(8, 2), [0, 1, 2, 5]) == pytest.approx(error(cyclic(8, 2), [1, 2, 3, 6]))


@pytest.mark.slow
def test_crc_error_of_24_workers() -> None:
    """The sum over 699252 necklaces agrees with the closed form for s = 2, and with Monte Carlo for s = 3."""
    assert crc_error(24, 2, 0.3, 0.8, 0.01) == pytest.approx(closed_form_of_two(24, 0.247), abs=1e-9)
    rng = np.random.default_rng(24)
    B = cyclic(24, 3)
    errors = np.array([error(B, np.flatnonzero(up).tolist()) for up in drawn(rng, 4000, 24, 0.3, 0.8, 0.01)])
    agrees(errors, crc_error(24, 3, 0.3, 0.8, 0.01))


chance = st.floats(0, 1)
classes = st.fixed_dictionaries({"p_slow": chance, "p_ss": chance, "p_as": chance})
codes = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(n=st.integers(1, 12), p_ss=chance, p_as=chance, data=st.data())
def test_survivors_against_enumeration(n: int, p_ss: float, p_as: float, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, n))
    stuck = [p_ss] * slow + [p_as] * (n - slow)
    exact = np.zeros(n + 1)
    for mask in range(2**n):
        exact[mask.bit_count()] += np.prod([1 - q if mask >> i & 1 else q for i, q in enumerate(stuck)])
    distribution = survivor_distribution(n, slow, p_ss, p_as)
    assert distribution == pytest.approx(exact, abs=1e-12)
    assert distribution.sum() == pytest.approx(1)


def printed_survivors(n: int, m: int, p_ss: float, p_as: float) -> list[float]:
    """Return P_r as theorem 1 prints it, with r'(i) = min(i, m)."""
    return [
        sum(
            comb(m, min(i, m))
            * comb(n - m, r - min(i, m))
            * (1 - p_ss) ** i
            * p_ss ** (m - i)
            * (1 - p_as) ** (r - i)
            * p_as ** (n - m - r + i)
            for i in range(r + 1)
        )
        for r in range(n + 1)
    ]


def test_published_survivor_distribution_is_none() -> None:
    """The printed P_r sum to more than 1, since they count terms with more slow survivors than slow workers."""
    assert sum(printed_survivors(8, 0, 0.8, 0.01)) == pytest.approx(1.00253, abs=1e-5)
    assert sum(printed_survivors(8, 2, 0.3, 0.2)) > 1.05
    assert survivor_distribution(8, 2, 0.3, 0.2).sum() == pytest.approx(1)


@given(s=st.integers(1, 6), model=classes)
def test_missed_is_a_mean_over_the_classes(s: int, model: dict[str, float]) -> None:
    p, exact = model["p_slow"], 0.0
    for k in range(s + 1):
        exact += (
            comb(s, k) * p**k * (1 - p) ** (s - k) * missed_unshuffled(s, k, model["p_ss"], model["p_as"])
        )
    assert missed_shuffled(s, **model) == pytest.approx(exact, abs=1e-14)


@given(code=codes, model=classes)
def test_missed_in_a_run_averages_to_proposition_1(code: tuple[int, int], model: dict[str, float]) -> None:
    n, s = code
    p = model["p_slow"]
    mean = sum(
        comb(n, m) * p**m * (1 - p) ** (n - m) * missed_given_slow(n, s, m, model["p_ss"], model["p_as"])
        for m in range(n + 1)
    )
    assert mean == pytest.approx(missed_shuffled(s, **model), abs=1e-13)


def test_accesses_against_monte_carlo() -> None:
    """A run has 50 iterations, n = 6, s = 2, and the slow workers 0 and 3.

    The parts stay with their workers, or are shuffled in every iteration.
    """
    rng = np.random.default_rng(6)
    stuck = np.where(np.isin(np.arange(6), [0, 3]), 0.8, 0.1)
    fails = rng.random((4000, 50, 6)) < stuck
    for pair, slow_holders in (((0, 3), 2), ((0, 1), 1), ((4, 5), 0)):
        used = ~fails[:, :, list(pair)].all(2)
        agrees(used.sum(1).astype(float), expected_accesses(50, missed_unshuffled(2, slow_holders, 0.8, 0.1)))
    places = rng.permuted(np.broadcast_to(np.arange(6), (4000, 50, 6)), axis=2)[:, :, :2]
    used = ~np.take_along_axis(fails, places, 2).all(2)
    agrees(used.sum(1).astype(float), expected_accesses(50, missed_given_slow(6, 2, 2, 0.8, 0.1)))

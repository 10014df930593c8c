"""Messages of p/m coordinates: the paper's polynomials, its numbers, and better conditioned codes."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.survivor_sets import every, some, window
from workbench.core.base.settings import SettingError
from workbench.core.codes import YeAbbe, amplification, measured_error, ye_abbe
from workbench.core.codes.ye_abbe import nodes, vandermonde, worst_condition

Array = np.ndarray
REAL = ["polynomial", "gaussian", "stable"]
SMALL = [(n, d, m) for n in range(1, 7) for d in range(1, n + 1) for m in range(1, d + 1)]


def recursion(n: int, d: int, m: int) -> Array:
    """Return the message coefficients by the polynomials of section 3, equations (7), (8), (11) and (16): (n, n*m)."""
    theta, s = nodes(n), d - m
    B = np.zeros((m * n, n - s))
    for i in range(n):
        first = np.polynomial.polynomial.polyfromroots(theta[(i + 1 + np.arange(n - d)) % n])
        p = first
        for u in range(m):
            if u:
                p = np.concatenate([[0], p])
                p[: len(first)] -= p[n - d] * first  # replaces the coefficient of x^(n-d) by the identity
            B[i * m + u, : len(p)] = p
    return (B @ np.vander(theta, n - s, increasing=True).T).T


@pytest.mark.parametrize(("n", "d", "m"), SMALL)
def test_ye_abbe_polynomials_are_the_papers(n: int, d: int, m: int) -> None:
    matrix, paper = ye_abbe(n, d, d - m, m, "polynomial").matrix, recursion(n, d, m)
    assert matrix == pytest.approx(paper / np.abs(paper).max(), abs=1e-9)


def recovered(code: YeAbbe, answered: tuple[int, ...], gradients: Array) -> Array:
    messages = [code.message(row, gradients[code.windows[row]]) for row in answered]
    return code.restore(code.decode(answered).weights, np.array(messages), gradients.shape[1])


@pytest.mark.parametrize("construction", REAL)
@pytest.mark.parametrize(("n", "d", "m"), SMALL)
def test_ye_abbe_recovers_the_sum_from_every_survivor_set(n: int, d: int, m: int, construction: str) -> None:
    code = ye_abbe(n, d, d - m, m, construction)
    gradients = np.random.default_rng(n).standard_normal((n, 7))
    for answered in every(code):
        assert recovered(code, answered, gradients) == pytest.approx(gradients.sum(axis=0), abs=1e-8)


@pytest.mark.parametrize("construction", REAL)
@pytest.mark.parametrize(("n", "d", "m"), [(8, 4, 3), (9, 5, 2)])
def test_ye_abbe_worker_uses_its_window_only(n: int, d: int, m: int, construction: str) -> None:
    code = ye_abbe(n, d, d - m, m, construction)
    used = (code.matrix.reshape(n, n, m) != 0).any(axis=2)
    assert (used == window(n, d)).all()
    assert code.windows[n - 1].tolist() == [(n - 1 + j) % n for j in range(d)]
    assert code.encode(2).shape == (m, d)
    assert (code.encode(2)[:, 1] == code.matrix[2].reshape(n, m)[3]).all()


@given(st.integers(1, 16), st.integers(1, 30), st.data())
def test_ye_abbe_any_sizes(n: int, size: int, data: st.DataObject) -> None:
    m = data.draw(st.integers(1, min(n, 5)))
    s = data.draw(st.integers(0, n - m))
    d = data.draw(st.integers(s + m, n))
    code = ye_abbe(n, d, s, m, "stable")
    gradients = np.random.default_rng(size).standard_normal((n, size))
    answered = tuple(data.draw(st.permutations(range(n)))[s:])
    lost = np.abs(code.decode(answered).weights).sum(axis=1).max()
    assert recovered(code, answered, gradients) == pytest.approx(
        gradients.sum(axis=0), abs=1e-13 * n * max(lost, n)
    )


def test_ye_abbe_message_length_is_the_ceiling_of_the_share() -> None:
    code = ye_abbe(5, 3, 1, 2)
    assert [code.message(0, np.ones((3, size))).shape for size in (4, 5, 6)] == [(2,), (3,), (3,)]


@pytest.mark.parametrize(("n", "s", "worst"), [(10, 1, 1e5), (15, 2, 6e8), (20, 3, 2e14)])
def test_published_condition_numbers_of_the_polynomials(n: int, s: int, worst: float) -> None:
    assert worst_condition(vandermonde(n, n - s)) == pytest.approx(worst, rel=0.1)


@pytest.mark.parametrize("n", [10, 20])
def test_ye_abbe_condition_is_of_the_inverted_system(n: int) -> None:
    code = ye_abbe(n, 3, 1, 2, "polynomial")
    answered = (0, *range(2, n))
    paper = np.linalg.cond(np.vander(nodes(n)[list(answered)]))
    assert code.condition(answered) == pytest.approx(paper, rel=0.2)


@pytest.mark.parametrize(("n", "d", "m"), [(12, 4, 2), (15, 5, 3)])
def test_ye_abbe_condition_with_classes_of_workers(n: int, d: int, m: int) -> None:
    code = ye_abbe(n, d, d - m, m, "stable")
    assert max(code.condition(answered) for answered in some(n, d - m, 50)) < 1e3


def test_ye_abbe_auto_avoids_polynomials_that_lose_half_the_digits() -> None:
    assert [ye_abbe(n, 4, 1, 3).construction for n in (8, 10, 15, 20, 100)] == [
        "polynomial",
        "polynomial",
        "stable",
        "stable",
        "stable",
    ]


@pytest.mark.parametrize(("n", "d", "m"), [(20, 5, 3), (30, 8, 3), (40, 10, 4), (156, 39, 12)])
def test_ye_abbe_stable_keeps_eleven_digits(n: int, d: int, m: int) -> None:
    assert measured_error(ye_abbe(n, d, d - m, m, "stable"), np.float64, 200) < 1e-11


def test_ye_abbe_gaussian_is_between_polynomials_and_stable() -> None:
    polynomial, gaussian, stable = (amplification(ye_abbe(20, 5, 2, 3, c)) for c in REAL)
    assert 1e6 * stable < 1e3 * gaussian < polynomial


def test_ye_abbe_spare_load_shortens_the_weights() -> None:
    tight, spare = ye_abbe(9, 4, 2, 2, "stable"), ye_abbe(9, 6, 2, 2, "stable")
    sets = list(combinations(range(9), 7))
    size = [np.mean([np.abs(c.decode(f).weights).sum() for f in sets]) for c in (tight, spare)]
    assert size[1] < size[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ((8, 3, 1, 3), "load = 3: must be at least stragglers + reduction = 1 + 3 (Theorem 1"),
        (
            (8, 5, 6, 3),
            "load = 5: must be at least stragglers + reduction = 6 + 3 (Theorem 1 of Ye and Abbe 2018);"
            " take a sum of the two of at most 5",
        ),
        ((8, 9, 1, 3), "load = 9: a worker stores some of the 8 parts; take 1 to 8, the nearest is 8"),
        ((8, 3, 8, 1), "stragglers = 8: of 8 workers one must answer; take 0 to 7"),
        ((8, 3, 1, 0), "reduction = 0: a message is cut to a share of 1 to 1/8; take 1 to 8"),
        (
            (99, 9, 6, 3, "polynomial"),
            "construction = 'polynomial': a Vandermonde matrix of 93 rows has lost all",
        ),
        ((8, 3, 1, 2, "polynom"), "construction = 'polynom': no such name; did you mean 'polynomial'?"),
    ],
)
def test_ye_abbe_refuses_invalid_sizes(settings: tuple[int, ...], sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        ye_abbe(*settings)
    assert str(error.value).startswith(sentence)

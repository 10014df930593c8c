"""Replacements of data that need a network: made from bundled data, and named as replacements.

Each table is written once to the cache, as a .npy file with the target in its last column, which any problem reads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.core.base.files import atomic_write
from workbench.core.base.types import Array
from workbench.core.problems.data import cache

DIGITS_28 = (
    "a stand-in for MNIST: scikit-learn's digits enlarged to 20 x 20 at random places on 28 x 28 pixels"
)
DIGITS_32 = "a stand-in of CIFAR-10's shape: scikit-learn's digits, enlarged and coloured, on noisy 3 x 32 x 32 pixels"
ACCESS = (
    "a generated stand-in for Amazon Employee Access: categories drawn by Zipf's law, one 0/1 column for each frequent"
    " value and each frequent pair of values, labels from a sparse logistic model"
)
DIABETES = "scikit-learn's diabetes set, two classes: progression above its median or not (the paper does not say how)"
BOSTON = (
    "scikit-learn's diabetes set (regression), a stand-in for Boston house prices, which it ships no more"
)


def kept(name: str, make: Callable[[], Array]) -> str:
    """Return the path of a table in the cache, which is made if it does not exist."""
    path = cache.ours(cache.root() / "book") / f"{name}.npy"
    if not path.is_file():
        with atomic_write(path) as out:
            np.save(out, make(), allow_pickle=False)
    return str(path)


def pixels(samples: int) -> Array:
    """Return digits at random places near the middle of a 28 x 28 canvas, values 0 to 1: (samples, 784).

    >>> pixels(3).shape
    (3, 784)
    """
    rng = np.random.default_rng(0)
    images, _ = _digits(2.5)
    canvas = np.zeros((samples, 28, 28))
    which, places = rng.integers(len(images), size=samples), rng.integers(2, 7, size=(samples, 2))
    for image, i, (a, b) in zip(canvas, which, places, strict=True):
        image[a : a + 20, b : b + 20] = images[i]
    return canvas.reshape(samples, -1)


def regression_on_digits(samples: int) -> str:
    """Return the path of `pixels` with noiseless targets y = X theta, theta standard normal, as in paper 3."""

    def make() -> Array:
        X = pixels(samples)
        return np.column_stack([X, X @ np.random.default_rng(1).standard_normal(X.shape[1])])

    return kept(f"digits28-regression-{samples}", make)


def coloured_digits(samples: int) -> str:
    """Return the path of images of ten classes, 3 x 32 x 32.

    An image is a digit of 24 x 24 in a random colour, at a random place, on noise.
    """

    def make() -> Array:
        rng = np.random.default_rng(2)
        images, labels = _digits(3.0)
        which = rng.integers(len(images), size=samples)
        canvas = 0.2 * rng.standard_normal((samples, 3, 32, 32)).astype(np.float32)
        for image, i in zip(canvas, which, strict=True):
            a, b = rng.integers(0, 9, size=2)
            image[:, a : a + 24, b : b + 24] += rng.uniform(0.3, 1.0, (3, 1, 1)) * images[i]
        return np.column_stack([canvas.reshape(samples, -1), labels[which]]).astype(np.float32)

    return kept(f"digits32-{samples}", make)


def _digits(zoom: float) -> tuple[Array, Array]:
    """Return scikit-learn's digits, 0 to 1, enlarged, with their labels."""
    from scipy import ndimage
    from sklearn.datasets import load_digits

    found = load_digits()
    return ndimage.zoom(found.images / 16, (1, zoom, zoom), order=1), found.target.astype(float)


def access(samples: int, columns: int) -> str:
    """Return the path of requests with nine categories and their pairs, as `columns` columns of 0 and 1.

    Most requests are granted.
    """

    def make() -> Array:
        rng = np.random.default_rng(3)
        values = np.stack([rng.zipf(1.4, samples) % 300 for _ in range(9)], axis=1)
        pairs = [
            values[:, i] * 1000 + values[:, j] + 10**6 * (10 * i + j)
            for i in range(9)
            for j in range(i + 1, 9)
        ]
        singles = [values[:, i] + 10**9 * (i + 1) for i in range(9)]
        everything = np.stack([*singles, *pairs], axis=1)
        names, counts = np.unique(everything, return_counts=True)
        frequent = np.sort(names[np.argsort(-counts, kind="stable")[:columns]])
        X = np.zeros((samples, columns), dtype=np.float32)
        place = np.clip(np.searchsorted(frequent, everything), 0, columns - 1)
        rows, cols = np.nonzero(frequent[place] == everything)
        X[rows, place[rows, cols]] = 1.0
        weights = rng.standard_normal(columns) * (rng.random(columns) < 0.3)
        score = X @ weights
        chance = 1 / (1 + np.exp(-(2.0 + 1.5 * (score - score.mean()) / score.std())))
        return np.column_stack([X, rng.random(samples) < chance]).astype(np.float32)

    return kept(f"access-{samples}-{columns}", make)


def diabetes_halves() -> str:
    """Return the path of the bundled diabetes data with two classes."""

    def make() -> Array:
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
        return np.column_stack([X, y > np.median(y)]).astype(float)

    return kept("diabetes-halves", make)

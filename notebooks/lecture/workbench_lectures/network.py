"""Problems of the comparison in lecture 7, in NumPy: a small network, and ill-conditioned least squares."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

FEATURES, UNITS, CLASSES = 64, 16, 10
CUTS = np.cumsum([FEATURES * UNITS, UNITS, UNITS * CLASSES])  # ends of the layers in a model vector
SIZE = int(CUTS[-1]) + CLASSES  # number of parameters
SEED = 0  # seed of the first model
# condition number of least squares, for independent columns: largest eigenvalue divided by the smallest
CONDITION = 100.0


def first() -> Array:
    """Return the first model, (parameters,): normal weights of variance 1 / inputs, and zero biases."""
    rng = np.random.default_rng(SEED)
    layers = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in ((FEATURES, UNITS), (UNITS, CLASSES))]
    return np.concatenate([layers[0].ravel(), np.zeros(UNITS), layers[1].ravel(), np.zeros(CLASSES)])


def forward(model: Array, X: Array) -> tuple[Array, Array]:
    """Return the hidden units, (samples, units), and the log-probabilities, (samples, classes)."""
    W, b, V, c = np.split(model, CUTS)
    hidden = np.tanh(X @ W.reshape(FEATURES, UNITS) + b)
    z = hidden @ V.reshape(UNITS, CLASSES) + c
    z -= z.max(axis=1, keepdims=True)
    return hidden, z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def loss_and_gradient(model: Array, X: Array, y: NDArray[np.int64]) -> tuple[float, Array]:
    """Return the mean cross-entropy of some samples and its gradient, (parameters,). X: (samples, 64)."""
    hidden, logs = forward(model, X)
    rows = np.arange(len(y))
    slope = np.exp(logs)
    slope[rows, y] -= 1.0
    slope /= len(y)
    back = (slope @ np.split(model, CUTS)[2].reshape(UNITS, CLASSES).T) * (1.0 - hidden * hidden)
    layers = [(X.T @ back).ravel(), back.sum(axis=0), (hidden.T @ slope).ravel(), slope.sum(axis=0)]
    return -float(logs[rows, y].mean()), np.concatenate(layers)


def squares(model: Array, X: Array, y: Array) -> tuple[float, Array]:
    """Return the mean of (x.model - y)^2 / 2 and its gradient. The columns of X are scaled from 1 to 0.1."""
    Z = X * CONDITION ** (-0.5 * np.linspace(0.0, 1.0, X.shape[1]))
    off = Z @ model - y
    return 0.5 * float(np.mean(off * off)), off @ Z / len(y)


def accuracy(model: Array, X: Array, y: Array) -> float:
    """Return the share of samples whose class has the largest probability."""
    return float(np.mean(forward(model, X)[1].argmax(axis=1) == y))

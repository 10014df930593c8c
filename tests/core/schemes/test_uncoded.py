"""Backup workers compared with SGD: the same rounds, and an unbiased sum."""

from __future__ import annotations

import numpy as np

from tests.support.approximate_runs import simulated
from tests.support.pipelined_runs import N, experiment


def test_backup_workers_equal_sgd_scaled() -> None:
    e = experiment(2000)
    (backup, scaled), (sgd, plain) = (simulated(e.replace(scheme=name)) for name in ("Backup", "SGD"))
    assert backup.times == sgd.times
    weights = np.array(scaled.weights)
    np.testing.assert_allclose(weights, np.array(plain.weights) * N / (N - 2), atol=1e-12)
    np.testing.assert_allclose(backup.residuals, ((weights - 1) ** 2).sum(axis=1), atol=1e-9)
    assert (np.abs(weights.mean(axis=0) - 1) < 4.5 * weights.std(axis=0) / 2000**0.5).all()

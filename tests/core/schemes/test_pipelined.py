"""PGC: the committed gradients and their models, unbiased weights, and times."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.approximate_runs import came, simulated
from tests.support.pipelined_runs import N, experiment
from workbench.core.contract.weights import VersionedWeights


def test_pgc_commit_has_the_newest_gradients_of_answering_workers() -> None:
    """Compare with a plain table of the computed parts, filled from the answers that came in time."""
    e = experiment(40)
    line, commits = simulated(e)
    newest = np.zeros((N, N), dtype=int)  # worker, part -> model at which its newest gradient was computed
    answered = came(line, N)
    assert answered[0].all()
    for r, weights in enumerate(commits.weights):
        done = {row[1] - 1 for row in line.events if row[0] == r and row[2] == "compute"}
        for i in done:
            newest[i, (i + r % 3) % N] = r
        wanted = np.zeros((r + 1, N))
        for i in np.flatnonzero(answered[r]):
            for part in (i + np.arange(3)) % N:
                wanted[newest[i, part], part] += N / (answered[r].sum() * 3)
        found = np.zeros((r + 1, N))
        if isinstance(weights, VersionedWeights):
            np.add.at(found, (weights.versions, weights.parts), weights.weights)
        else:
            found[r] = 1.0 if weights is None else weights
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_pgc_weights_are_one_on_average() -> None:
    _, commits = simulated(experiment(3000))
    totals = np.array([w.total(N) for w in commits.weights if isinstance(w, VersionedWeights)])
    spread = totals.std(axis=0) / len(totals) ** 0.5
    assert (spread > 0).all()
    assert (np.abs(totals.mean(axis=0) - 1) < 4.5 * spread).all()


def test_pgc_without_stragglers_is_uncoded() -> None:
    own, plain = experiment(9, 0), experiment(9, 0).replace(scheme="UMW", scheme_args={})
    (line, commits), (other, _) = simulated(own), simulated(plain)
    assert line.times == other.times
    assert commits.weights == [None] * 9


def test_pgc_worker_computes_one_part_in_each_later_round() -> None:
    line, _ = simulated(experiment(6, delays={"kind": "constant", "shift": 1.0}))
    assert line.started == [3 * N] + [N] * 5
    np.testing.assert_allclose(np.diff(line.times, prepend=0), [3.0] + [1.0] * 5)


def test_pgc_refuses_too_many_stragglers() -> None:
    with pytest.raises(
        wb.SettingError, match=r"scheme_args.stragglers = 7: 7 workers cannot tolerate it; take 0 to 6"
    ):
        experiment(3, stragglers=7)

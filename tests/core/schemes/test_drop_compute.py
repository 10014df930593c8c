"""DropCompute: stops compared with a plain loop, omitted samples, and the gain of a threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.approximate_runs import simulated
from workbench.core.contract.delays import DelayStream
from workbench.core.forecasting import settled

N, M = 5, 6
LAW = {"kind": "shifted_exponential", "shift": 0.5, "rate": 2.0, "per": "part"}


def experiment(rounds: int = 40, **args: Any) -> wb.Experiment:
    return wb.Experiment(
        scheme="DropCompute",
        scheme_args={"micro_batches": M, **args},
        workers=N,
        rounds=rounds,
        problem="unit",
        problem_args={"samples": N * M},
        delays=LAW,
    )


def drawn(e: wb.Experiment, round: int) -> np.ndarray[Any, Any]:
    """Return when each worker would finish each micro-batch, (workers, micro-batches)."""
    return DelayStream(e.delays, e.seed, N).progress(round, np.ones((N, M)))


def test_drop_compute_starts_no_micro_batch_after_the_threshold() -> None:
    e = experiment(threshold=3.5)
    line, commits = simulated(e)
    left_out = 0
    for r, weights in enumerate(commits.weights):
        done = drawn(e, r)
        begun = np.hstack([np.zeros((N, 1)), done[:, :-1]])
        computed = begun < 3.5
        left_out += int((~computed).sum())
        wanted = computed * (N * M / computed.sum())
        np.testing.assert_allclose(np.ones(N * M) if weights is None else weights, wanted.ravel(), atol=1e-12)
        last = done[computed].max()
        assert line.times[r] - (line.times[r - 1] if r else 0.0) == pytest.approx(last)
    assert 40 < left_out < N * M * 40 * 0.5


def test_drop_compute_weights_by_computed_samples() -> None:
    """Micro-batches have one or two samples. The sum of the computed micro-batches is scaled to all 43 samples."""
    e = experiment(threshold=3.5).replace(problem_args={"samples": 43})
    commits = simulated(e)[1]
    sizes = e.plan.sizes
    assert set(sizes) == {1, 2}
    for weights in filter(lambda w: w is not None, commits.weights):
        computed = np.asarray(weights) > 0
        np.testing.assert_allclose(np.asarray(weights)[computed], 43 / sizes[computed].sum())


def test_drop_compute_with_few_samples_has_empty_micro_batches() -> None:
    """By default, a worker has 12 micro-batches, here for fewer samples. The full gradient is still committed."""
    e = experiment(9).replace(scheme_args={}, problem_args={"samples": 8})
    assert (e.plan.sizes == 0).sum() == 52
    assert simulated(e)[1].weights == [None] * 9


def test_drop_compute_without_a_threshold_is_uncoded() -> None:
    e = experiment(9).replace(delays={"kind": "exponential", "mean": 1.0})
    line, commits = simulated(e)
    assert line.times == simulated(e.replace(scheme="UMW", scheme_args={}))[0].times
    assert commits.weights == [None] * 9


def test_drop_compute_threshold_pays_if_few_workers_are_slow() -> None:
    """The authors' effective speedup is in micro-batches per second. A straggler stops after its first micro-batch."""
    delay_model = {
        "kind": "heterogeneous",
        "shift": 0.1,
        "slow": 0.0,
        "active_straggles": 0.1,
        "factor": 10.0,
    }
    rates = []
    for threshold in (0.65, None):
        line, _ = simulated(experiment(200, threshold=threshold).replace(delays=delay_model))
        assert set(np.diff(line.times, prepend=0).round(9)) == {0.6, 6.0 if threshold is None else 1.0}
        rates.append(sum(line.samples) / line.times[-1])
    assert rates[0] > 2 * rates[1]


def effective(e: wb.Experiment, rounds: int, threshold: float) -> float:
    """Return the computed share of micro-batches times the speedup of a round: a loop over the drawn times."""
    gains = []
    for r in range(rounds):
        done = drawn(e, r)
        begun = np.hstack([np.zeros((N, 1)), done[:, :-1]])
        computed = begun < threshold
        gains.append(computed.mean() * done.max() / done[computed].max())
    return float(np.mean(gains))


@pytest.mark.parametrize("kind", ["markov", "heterogeneous", "shifted_exponential"])
def test_drop_compute_threshold_equals_the_authors_program(kind: str) -> None:
    """The chosen threshold computes at least 98 % of the micro-batches per second of the best of 150 others.

    Without slow workers, no micro-batch is omitted.
    """
    delay_models: dict[str, dict[str, Any]] = {
        "markov": {"shift": 0.1, "p_slow": 0.1, "p_recover": 0.3, "factor": 8.0},
        "heterogeneous": {"shift": 0.1, "slow": 0.2, "factor": 10.0},
        "shifted_exponential": LAW,
    }
    e = experiment().replace(delays={**delay_models[kind], "kind": kind})
    chosen = settled(e, rounds=20).scheme_args["threshold"]
    others = np.linspace(0.55, drawn(e, 0).max() * 1.5, 150)
    best = max(effective(e, 20, threshold) for threshold in others if threshold >= 0.6)
    assert effective(e, 20, chosen) >= 0.98 * best
    assert effective(e, 20, chosen) > 1
    given = {"micro_batches": M, "threshold": 3.0}
    assert settled(e.replace(scheme_args=given)).scheme_args == given
    even = e.replace(delays={"kind": "constant", "shift": 0.1})
    assert simulated(settled(even))[1].weights == [None] * even.rounds


def test_drop_compute_refuses_wrong_parameters() -> None:
    with pytest.raises(wb.SettingError, match="threshold"):
        experiment(threshold=0.0)
    with pytest.raises(wb.SettingError, match="micro_batches"):
        experiment(micro_batches=0)
    with pytest.raises(
        wb.SettingError, match=r"micro_batches = 7: a worker's part has 6 of 30 .* take 1 to 6"
    ):
        experiment(micro_batches=7)

"""AdaptiveK and DBW: their choices compared with plain loops, in runs and on synthetic rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.engine.timeline import Timeline
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.running.simulated import timeline
from workbench.core.schemes.fastest_k import Gain, Round

N = 10


def experiment(scheme: str, rounds: int = 120, eta: float = 0.6, **args: Any) -> wb.Experiment:
    return wb.Experiment(
        scheme=scheme,
        scheme_args=args,
        workers=N,
        rounds=rounds,
        problem="least_squares",
        problem_args={"samples": 200, "features": 5},
        optimiser_args={"step": eta},
        delays={"kind": "exponential", "mean": 1.0},
    )


def simulated(e: wb.Experiment) -> tuple[Timeline, Numbers]:
    numbers = Numbers(e.plan, e.build_problem(), e.build_optimiser(), e.seed)
    return timeline(e, numbers, events=True), numbers


def test_adaptive_fastest_k_grows_as_published() -> None:
    line, numbers = simulated(experiment("AdaptiveK", start=2, step=3, threshold=2, burn_in=4))
    k, negative, iterations, wanted = 2, 0, 1, []
    for j, gradient in enumerate(numbers.gradients):
        wanted.append(k)
        if j:
            negative += 1 if gradient @ numbers.gradients[j - 1] < 0 else -1
        if negative > 2 and iterations > 4 and k <= N - 3:
            k, negative, iterations = k + 3, 0, 0
        iterations += 1
    assert line.messages == wanted
    assert sorted(set(wanted)) == [2, 5, 8]


def test_fastest_k_commit_is_the_scaled_first_answers() -> None:
    e = experiment("AdaptiveK", rounds=20, start=3)
    line, numbers = simulated(e)
    bounds = e.plan.bounds
    for r, gradient in enumerate(numbers.gradients):
        came = [row[1] - 1 for row in line.events if row[0] == r and row[2] == "send" and row[6] == 0]
        assert len(came) == 3
        slices = [(int(bounds[i]), int(bounds[i + 1]), N / 3) for i in came]
        np.testing.assert_allclose(gradient, numbers.problem.gradient(slices, numbers.models[r]), rtol=1e-10)
        assert line.residuals[r] == pytest.approx(3 * (N / 3 - 1) ** 2 + N - 3)


def own_loss(e: wb.Experiment, problem: Any, ranks: list[int], model: Any) -> float:
    """Return the mean loss of the samples of some workers: half their squared errors."""
    data, bounds = e.problem_spec.open(), e.plan.bounds
    rows = np.concatenate([np.arange(bounds[rank - 1], bounds[rank]) for rank in ranks])
    return float(0.5 * np.mean((data.X[rows] @ model - data.y[rows]) ** 2))


def test_dynamic_backup_workers_maximise_gain_per_second() -> None:
    """The formulas are evaluated on the recorded events. On this quadratic loss, the increases are exact."""
    e = experiment("DBW", rounds=30, eta=0.8, window=3)
    line, numbers = simulated(e)
    problem, bounds, samples = numbers.problem, e.plan.bounds, e.plan.samples
    smoothness = problem.smoothness([(0, samples, 1.0)])
    lately: list[tuple[float, float]] = []
    curved, rises, last = list[float](), 0, dict[int, Any]()
    waited: list[list[float]] = [[] for _ in range(N)]
    k, chosen = N, []
    for r in range(30):
        chosen.append(k)
        rows = [row for row in line.events if row[0] == r and row[2] == "send" and row[6] == 0]
        start = line.times[r - 1] if r else 0.0
        for i, end in enumerate(sorted(row[5] for row in rows)):
            waited[i].append(end - start)
        parts = [(int(bounds[row[1] - 1]), int(bounds[row[1]]), N / samples) for row in rows]
        each = np.array([problem.gradient([part], numbers.models[r]) for part in parts])
        mean = each.mean(axis=0)
        variance = each.var(axis=0, ddof=1).sum() if k > 1 else np.mean([v for _, v in lately])
        lately = [*lately, (max(mean @ mean - variance / k, 0.0), variance)][-3:]
        length, spread = np.mean(lately, axis=0)
        answers, rise, k_before = {row[1]: g for row, g in zip(rows, each, strict=True)}, 0.0, k
        if both := sorted(answers.keys() & last.keys()):
            moved = numbers.models[r] - numbers.models[r - 1]
            change = np.mean([(answers[i] - last[i]) @ moved for i in both])
            curved = [*curved, change / (moved @ moved)][-3:]
            at = {0: numbers.models[r - 1], 1: numbers.models[r]}
            losses = [own_loss(e, problem, both, model) for model in at.values()]
            rise = losses[1] - losses[0]
            rises += rise > 0
        last, eta = answers, 0.8
        smooth = np.mean(curved) if curved else smoothness
        gains = [
            (eta - smooth * eta**2 / 2) * length - smooth * eta**2 * spread / 2 / m for m in range(1, N + 1)
        ]
        seconds = np.array(
            [
                max(
                    min(np.mean(np.concatenate(waited[a : b + 1])) for b in range(i, N)) for a in range(i + 1)
                )
                for i in range(N)
            ]
        )  # means, made monotone by pooling
        k = N if max(gains) <= 0 else int(np.argmax(gains / seconds)) + 1
        k = min(N, max(k, k_before + 1)) if rise > 0 else k
    assert line.messages == chosen
    assert len(set(line.messages)) > 2
    assert rises > 0
    assert line.messages[0] == N


def test_gain_of_agreeing_and_noisy_answers() -> None:
    seconds = np.arange(1.0, N + 1)
    for noise, k in ((0.0, 1), (100.0, N)):
        gain = Gain(N, samples=N, smoothness=1.0, window=1)
        rng = np.random.default_rng(0)
        answers = {i: np.ones(4) + noise * rng.standard_normal(4) for i in range(N)}
        seen = Round(answers, seconds.tolist(), np.sum(list(answers.values()), axis=0))
        seen.before, seen.after = np.zeros(4), -0.5 * seen.estimate / N
        gain.saw(seen)
        assert gain.k == k


@pytest.mark.parametrize("scheme", ["AdaptiveK", "DBW"])
def test_fastest_k_runs_with_the_remaining_workers(scheme: str) -> None:
    dead = [{"worker": w, "round": w} for w in range(1, N)]
    line, _ = simulated(
        experiment(scheme, 20, **({"start": N} if scheme == "AdaptiveK" else {})).replace(faults=dead)
    )
    assert line.messages[-1] == 1
    with pytest.raises(wb.QuorumLost):
        simulated(experiment(scheme, 20).replace(faults=[*dead, {"worker": N, "round": 15}]))


@pytest.mark.parametrize("scheme", ["AdaptiveK", "DBW"])
def test_fastest_k_forecast_is_an_upper_bound(scheme: str) -> None:
    e = experiment(scheme, 30)
    line, _ = simulated(e)
    assert (np.diff(line.times, prepend=0) <= wb.forecast(e).seconds * (1 + 1e-12)).all()


def test_fastest_k_refuses_wrong_parameters() -> None:
    with pytest.raises(wb.SettingError, match=r"scheme_args.start = 11: there are 10 workers; take 1 to 10"):
        experiment("AdaptiveK", start=11)

"""Hierarchical SGD against PyTorch's averager and plain NumPy loops, on both engines."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support.schemes.local_steps import hierarchies
from workbench.core import forecasting
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.batches import BatchSampler
from workbench.core.contract.delays import CounterRNG
from workbench.core.engine.virtual.arithmetic import BATCHES_STREAM
from workbench.core.problems.linear import LeastSquares
from workbench.core.schemes.hierarchical import HSGD
from workbench.core.schemes.local_steps import LocalSteps

L2, RATE, WORKERS, ROUNDS = 0.05, 0.1, 8, 4
LEVELS = ((2, 2), (4, 4))  # groups of 2 and 4, and all 8 workers after 8 steps
SPEC: dict[str, Any] = {
    "scheme": "H-SGD",
    "workers": WORKERS,
    "rounds": ROUNDS,
    "seed": 3,
    "problem": "least_squares",
    "problem_args": {"samples": 90, "features": 6, "l2": L2},  # shards of 12 and 11 samples
    "optimiser_args": {"step": RATE},
    "delays": {"kind": "shifted_exponential", "shift": 1e-5, "rate": 1e5},
}
Engine = Literal["sim", "mpi"]
ENGINES = ["sim", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.xdist_group("mpi")])]


def experiment(args: dict[str, Any] | None = None, **fields: Any) -> wb.Experiment:
    given = {"local_steps": 8, "levels": LEVELS, "rate": RATE, **(args or {})}
    return wb.Experiment(**{**SPEC, "scheme_args": given, **fields})


def shards(e: wb.Experiment) -> tuple[list[Array], list[Array]]:
    problem = e.build_problem()
    problem = getattr(problem, "whole", problem)
    assert isinstance(problem, LeastSquares)
    return np.array_split(problem.X, e.workers), np.array_split(problem.y, e.workers)


def gradient(X: Array, y: Array, model: Array, size: int | None = None) -> Array:
    return np.asarray(X.T @ (X @ model - y) / (size or len(y)) + L2 * model)


def loop(e: wb.Experiment, levels: Any = LEVELS, steps: int = 8) -> Array:
    """Return the model of plain loops over rounds, steps and workers, with averages of the groups."""
    Xs, ys = shards(e)
    model, batch = np.zeros(6), e.scheme_args.get("worker_batch")
    sampler = None if e.batch is None else BatchSampler(90, e.batch, e.seed)
    bounds = np.cumsum([0, *map(len, ys)])
    for step in range(e.rounds * steps):
        if step % steps == 0:
            own = np.tile(model, (e.workers, 1))
        for i, (X, y) in enumerate(zip(Xs, ys, strict=True)):
            rows: Any = np.arange(len(y))
            share = len(y)
            if batch is not None:
                rows = CounterRNG(3, BATCHES_STREAM).rng(step, i + 1).choice(len(y), batch, replace=False)
                share = batch
            if sampler is not None:
                drawn = sampler.rows(step)
                rows = drawn[(drawn >= bounds[i]) & (drawn < bounds[i + 1])] - bounds[i]
                share = len(y) * len(drawn) / 90
            own[i] -= RATE * gradient(X[rows], y[rows], own[i], share)
        for period, size in (*levels, (steps, e.workers))[::-1]:
            if (step + 1) % period == 0:
                for first in range(0, e.workers, size):
                    group = slice(first, first + size)
                    own[group] = np.average(own[group], axis=0, weights=[len(y) for y in ys[group]])
                break
        model = own[0]
    return np.asarray(model)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batches", [{}, {"worker_batch": 5}, {"batch": 30}])
def test_models_are_those_of_plain_loops(engine: Engine, batches: dict[str, int]) -> None:
    own = {k: v for k, v in batches.items() if k == "worker_batch"}
    e = experiment(own, **{k: v for k, v in batches.items() if k == "batch"})
    np.testing.assert_allclose(wb.run(e, engine=engine).model, loop(e), rtol=1e-11)


def averaged_by_torch(e: wb.Experiment, rounds: int) -> Array:
    """Return the model after some rounds of PyTorch's averager, with one thread for each process.

    The averager's counter is set to 1. From 0, the averager would also average after the first step.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    name = "torch.testing._internal.distributed.multi_threaded_pg"
    threaded = pytest.importorskip(name, reason="this PyTorch has no process groups of threads")
    import torch.distributed as dist
    from torch.distributed.algorithms.model_averaging import hierarchical_model_averager

    (Xs, ys), found = shards(e), [np.zeros(6)] * e.workers
    store = dist.HashStore()

    def process(rank: int) -> None:
        dist.init_process_group("threaded", rank=rank, world_size=e.workers, store=store)
        sizes = OrderedDict([*LEVELS, (8, e.workers)])
        averager = hierarchical_model_averager.HierarchicalModelAverager(sizes)
        averager.step = 1
        model = torch.nn.Parameter(torch.zeros(6, dtype=torch.float64))
        optimiser = torch.optim.SGD([model], lr=RATE)
        for _ in range(8 * rounds):
            model.grad = torch.tensor(gradient(Xs[rank], ys[rank], model.detach().numpy()))
            optimiser.step()
            averager.average_parameters([model])
        found[rank] = model.detach().numpy()
        dist.destroy_process_group()

    isolate = torch._C._distributed_c10d._set_thread_isolation_mode
    isolate(True)
    threaded._install_threaded_pg()
    try:
        threads = [threading.Thread(target=process, args=(rank,)) for rank in range(e.workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threaded._uninstall_threaded_pg()
        isolate(False)
    assert all((model == found[0]).all() for model in found)
    return found[0]


def test_models_are_those_of_the_averager_of_pytorch() -> None:
    """PyTorch's averager runs on the same gradients. All shards have 12 samples, since the averager has no weights."""
    e = experiment(problem_args={"samples": 96, "features": 6, "l2": L2})
    np.testing.assert_allclose(wb.run(e).model, averaged_by_torch(e, ROUNDS), rtol=1e-12)


def test_models_of_a_group_are_equal_bit_by_bit_after_its_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models after an average are equal within the groups that averaged, and differ between these groups."""
    begun: dict[int, dict[int, bytes]] = {}
    stepped = LocalSteps._stepped

    def recorded(self: Any, node: Any, job: Any, model: Array, steps: range, step: Any) -> Any:
        begun.setdefault(steps.start, {})[node.rank] = np.asarray(model).tobytes()
        return stepped(self, node, job, model, steps, step)

    monkeypatch.setattr(LocalSteps, "_stepped", recorded)
    wb.run(experiment())
    assert sorted(begun) == list(range(0, 8 * ROUNDS, 2))
    for start, models in begun.items():
        size = {0: WORKERS, 4: 4}.get(start % 8, 2)
        groups = [
            {models[rank] for rank in range(1 + first, 1 + first + size)} for first in range(0, WORKERS, size)
        ]
        assert all(len(group) == 1 for group in groups)
        assert len(set().union(*groups)) == len(groups)


@pytest.mark.parametrize("levels", [[[1, True]], [[True, 2]], [[2, 2.0]], [[2, "2"]]])
def test_levels_that_are_no_whole_numbers_are_refused(levels: Any) -> None:
    with pytest.raises(SettingError, match=r"^scheme_args\.levels\[0\]\[[01]\] = "):
        wb.Experiment(scheme="H-SGD", workers=4, scheme_args={"levels": levels})


@pytest.mark.parametrize("levels", [((3, 8),), ((3, 2), (3, 8))])
def test_groups_of_all_workers_are_local_sgd_with_the_shorter_period(levels: Any) -> None:
    e = experiment({"local_steps": 6, "levels": levels})
    short = e.replace(scheme="LocalSGD", scheme_args={"local_steps": 3, "rate": RATE}, rounds=2 * ROUNDS)
    np.testing.assert_allclose(wb.run(e).model, wb.run(short).model, rtol=1e-10)


@pytest.mark.parametrize("levels", [(), ((2, 1),)])
def test_without_groups_it_is_local_sgd(levels: Any) -> None:
    e = experiment({"levels": levels})
    local = e.replace(scheme="LocalSGD", scheme_args={"local_steps": 8, "rate": RATE})
    mine, other = wb.run(e), wb.run(local)
    np.testing.assert_allclose(mine.model, other.model, rtol=1e-10)
    np.testing.assert_allclose(mine.rounds["time"], other.rounds["time"], rtol=1e-12)


@given(hierarchies(), st.integers(0, 99))
def test_a_round_is_between_those_of_local_sgd_with_the_longest_and_the_shortest_period(
    case: Any, seed: int
) -> None:
    """With free links, more averages make rounds longer, and averages over all workers more so than over groups."""
    args, workers = case
    spec = {"workers": workers, "rounds": 6, "seed": seed, "problem": "unit", "problem_args": {"samples": 40}}
    spec["delays"] = {"kind": "pareto", "shift": 1e-3, "shape": 1.5}
    e = wb.Experiment(scheme="H-SGD", scheme_args=args, **spec)
    steps = args["local_steps"]
    local = wb.forecast(e.replace(scheme="LocalSGD", scheme_args={"local_steps": steps}))
    period = min([steps, *(period for period, _ in args["levels"])])
    often = e.replace(scheme="LocalSGD", scheme_args={"local_steps": period}, rounds=6 * steps // period)
    found, most = wb.forecast(e).seconds, wb.forecast(often).seconds.reshape(6, -1).sum(axis=1)
    assert (found >= local.seconds * (1 - 1e-12)).all()
    assert (found <= most * (1 + 1e-12)).all()


def test_forecast_continues_over_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    e = experiment(link={"latency": 1e-4, "bandwidth": 1e5})
    whole = wb.forecast(e, rounds=9)
    monkeypatch.setattr(forecasting, "MAX_TIMES_PER_BATCH", 4 * WORKERS)
    np.testing.assert_array_equal(wb.forecast(e, rounds=9).seconds, whole.seconds)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dead", [1, 4])
def test_a_dead_worker_ends_the_run(engine: Engine, dead: int) -> None:
    """Worker 1 is the first of its groups on each level, below the master. Worker 4 is a leaf below worker 3."""
    e = experiment(faults=[{"worker": dead, "round": 1}])
    with pytest.raises(wb.QuorumLost, match=f"{dead}"):
        wb.run(e, engine=engine)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            {"levels": [[3, 2]]},
            r"levels = \[\[3, 2\]\]: period 3 does not divide the next one, 8; take 1, 2, 4, 8",
        ),
        ({"levels": [[2, 2], [3, 4]]}, r"period 2 does not divide the next one, 3; take 1, 3"),
        (
            {"levels": [[2, 3]]},
            r"scheme_args.levels = \[\[2, 3\]\]: groups of 3 do not divide 8 workers; take 1, 2, 4, 8",
        ),
        ({"levels": [[2, 4], [4, 2]]}, r"groups of 4 do not divide those of 2; take a multiple of 4"),
        ({"levels": [[0, 2]]}, r"periods and sizes are counts; take 1 or more"),
        ({"levels": [[2]]}, r"scheme_args.levels"),
    ],
)
def test_wrong_levels_are_refused_in_one_sentence(args: dict[str, Any], text: str) -> None:
    with pytest.raises(wb.SettingError, match=text) as error:
        experiment(args)
    assert "\n" not in str(error.value)


def test_tree_has_the_first_worker_of_each_group_as_parent() -> None:
    plan = HSGD(levels=LEVELS).plan(8, 80)
    assert plan.parent.tolist() == [-1, 0, 1, 1, 3, 0, 5, 5, 7]
    assert plan.answers == 4

"""ResNet-18: its size, its gradient, exact schemes with GroupNorm, and BatchNorm with local statistics."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.analysis.planning.measuring import simulated
from workbench.core.base.settings import SettingError
from workbench.core.contract.protocol import Compute
from workbench.core.problems.base import Request
from workbench.core.problems.network import INEXACT
from workbench.core.problems.resnet18 import group_count, parameter_count
from workbench.core.running.memory import check_trajectories
from workbench.mpi.engine import learner

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
pytestmark = pytest.mark.usefixtures("cache")
THIN: dict[str, Any] = {"channels": 4, "samples": 40, "precision": "float64", "device": "cpu"}
LOCAL = {**THIN, "batch_norm": "local"}


def resnet(scheme: str = "UMW", args: dict[str, Any] = THIN, **fields: Any) -> wb.Experiment:
    known: dict[str, Any] = {"workers": 3, "rounds": 2, "optimiser_args": {"step": 0.05}}
    return wb.Experiment(scheme=scheme, problem="resnet18", problem_args=args, **{**known, **fields})


@given(st.integers(1, 600))
def test_groups_divide_the_channels(channels: int) -> None:
    assert channels % group_count(channels) == 0
    assert group_count(channels) <= 32


def test_resnet18_forecast_needs_no_pytorch_and_no_data() -> None:
    e = resnet(args={}, link={"bandwidth": 1e9})
    assert e.shape() == (1000, 11_173_962)  # parameters of ResNet-18 for CIFAR-10
    assert wb.forecast(e).bytes == 3 * 4 * 11_173_962


@needs_torch
@pytest.mark.parametrize("batch_norm", [None, "local"])
@pytest.mark.parametrize(("channels", "classes"), [(4, 10), (6, 12)])
def test_parameter_count_is_that_of_the_module(batch_norm: str | None, channels: int, classes: int) -> None:
    args = {**THIN, "channels": channels, "classes": classes, "batch_norm": batch_norm}
    assert resnet(args=args).build_problem().size == parameter_count(channels, classes)


@needs_torch
def test_resnet18_start_follows_from_its_seed() -> None:
    starts = [resnet(args={**THIN, "init_seed": seed}).build_problem().start() for seed in (0, 0, 1)]
    np.testing.assert_array_equal(starts[0], starts[1])
    assert np.abs(starts[2] - starts[0]).max() > 0.01


@needs_torch
def test_resnet18_gradient_is_the_derivative_and_a_sum_over_samples() -> None:
    problem = resnet().build_problem()
    model, h = problem.start(), 1e-6
    found = problem.gradient([(0, 40, 1.0)], model)
    parts = [problem.gradient([(a, b, 1.0)], model) for a, b in ((0, 7), (7, 40))]
    np.testing.assert_allclose(sum(parts), found, rtol=1e-8, atol=1e-9)
    v = np.random.default_rng(0).standard_normal(len(model)) / np.sqrt(len(model))
    ends = [problem.evaluate([Request(model + s * h * v, gradient=False)])[0].loss for s in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(found @ v / 40, rel=1e-3)


EXACT: dict[str, dict[str, Any]] = {
    "GC": {"stragglers": 1},
    "CR": {"children": 3, "layers": 1, "stragglers": 1},
    "RAR": {},
    "FRC": {"replication": 3, "wait_for": 1},
}


@needs_torch
def test_exact_schemes_learn_what_the_uncoded_scheme_learns() -> None:
    args = {**THIN, "flip": True, "crop": 4}
    plain = wb.run(resnet(args=args, batch=20))
    for scheme, parameters in EXACT.items():
        coded = wb.run(resnet(scheme, args, batch=20, scheme_args=parameters), numeric=scheme == "GC")
        np.testing.assert_allclose(coded.model, plain.model, rtol=1e-6, atol=1e-9)
    assert "inexact" not in plain.info
    assert "a stand-in, not photographs" in plain.info["data"]


@needs_torch
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_resnet18_on_real_ranks_learns_what_the_simulation_learns() -> None:
    args = {**THIN, "flip": True, "crop": 4}
    e = resnet("GC", args, batch=20, scheme_args={"stragglers": 1})
    np.testing.assert_allclose(wb.run(e, engine="mpi").model, wb.run(e).model, rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------------------------------------ BatchNorm


@needs_torch
def test_local_batch_norm_uses_the_statistics_of_each_pass() -> None:
    import torch

    problem: Any = resnet(args=LOCAL).build_problem()
    model = problem.start()
    found = problem.gradient([(5, 25, 2.0), (30, 40, 1.0)], model)
    module, rows = problem.module, [*range(5, 25), *range(30, 40)]
    module.train()
    out = module(problem.X[rows])
    weights = torch.tensor([2.0] * 20 + [1.0] * 10, dtype=torch.float64)
    loss = torch.nn.functional.cross_entropy(out, problem.y[rows], reduction="none") @ weights
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    np.testing.assert_allclose(found, torch.cat([s.ravel() for s in slopes]), rtol=1e-9, atol=1e-11)
    parts = problem.gradient([(5, 25, 2.0)], model) + problem.gradient([(30, 40, 1.0)], model)
    assert np.abs(parts - found).max() > 1e-3  # so no scheme is exact


@needs_torch
@pytest.mark.parametrize("batch", [None, 20])
def test_local_batch_norm_of_a_rank_uses_the_statistics_of_all_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, batch: int | None
) -> None:
    """A real rank may split its work into pieces, and poll between them. With local BatchNorm, it must not split."""
    monkeypatch.setattr(learner, "NUMBERS_PER_PIECE", 1)
    for args, pieces in ((THIN, 2), (LOCAL, 1)):
        e = resnet("GC", args, batch=batch, scheme_args={"stragglers": 1})
        problem, optimiser = e.build_problem(), e.build_optimiser()
        rank = learner.Learner(e.plan, problem, optimiser, 0, problem.start(), optimiser.start(problem))
        effect = Compute(e.plan.work[1], rank.start(), 3)
        assert len(rank.pieces(effect)) == pieces
        in_one_pass = rank.compute(1, effect)
        np.testing.assert_allclose(rank.whole(1, effect), in_one_pass, rtol=1e-8, atol=1e-10)


@needs_torch
def test_local_batch_norm_evaluates_with_statistics_of_the_training_samples() -> None:
    """An evaluation depends on the model only: not on earlier computations, and not on the held-out samples."""
    problem: Any = resnet(args={**LOCAL, "samples": 60, "test": 10}).build_problem()
    model = problem.start() + 0.01
    before = problem.evaluate([Request(model, gradient=False, test=True)])[0]
    problem.gradient([(0, 9, 1.0)], model + 0.3)
    after = problem.evaluate([Request(model, test=True)])[0]
    assert (before.loss, before.metrics) == (after.loss, after.metrics)
    np.testing.assert_allclose(after.gradient, problem.gradient([(0, 50, 1.0)], model), rtol=1e-9, atol=1e-12)
    held_out = problem.held_out
    np.testing.assert_array_equal(np.asarray(held_out.population), np.asarray(problem.X))
    alone = held_out.evaluate([Request(model, gradient=False)])[0].loss
    held_out.X = held_out.X.clone()
    held_out.X[5:] = 9.0  # only the first five samples are compared
    few = [float(x) for x in _losses(held_out, model)[:5]]
    held_out.X[5:] = -9.0
    assert [float(x) for x in _losses(held_out, model)[:5]] == few
    assert alone == before.metrics["test_loss"]


def _losses(problem: Any, model: Any) -> Any:
    """Return the loss of each sample in an evaluation."""
    problem.evaluate([Request(model, gradient=False)])
    return problem.loss(problem.module(problem.X), problem.y).detach()


@needs_torch
def test_local_batch_norm_is_marked_inexact_and_carries_vectors(tmp_path: Any) -> None:
    e = resnet("GC", LOCAL, scheme_args={"stragglers": 1})
    with pytest.warns(RuntimeWarning, match="no scheme is exact"):
        trace = wb.run(e)
    assert trace.info["numeric"]
    assert trace.info["inexact"] == INEXACT
    assert wb.Trace.load(trace.save(tmp_path / "run")).info["inexact"] == INEXACT
    run = wb.start(e)
    run.result()
    assert INEXACT in run.warnings  # shown by the explorer
    with pytest.warns(RuntimeWarning, match="no scheme is exact"):
        other = wb.run(resnet("UMW", LOCAL))
    assert np.abs(other.model - trace.model).max() > 1e-5


@needs_torch
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.filterwarnings("ignore:problem_args.batch_norm")
def test_local_batch_norm_on_real_ranks_learns_what_the_simulation_learns() -> None:
    """Without stragglers, the same workers answer on both engines."""
    e = resnet(args={**LOCAL, "samples": 60, "test": 10, "flip": True}, batch=12)
    real, simulated = wb.run(e, engine="mpi"), wb.run(e)
    np.testing.assert_allclose(real.model, simulated.model, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(real.rounds["test_loss"], simulated.rounds["test_loss"], rtol=1e-6)
    assert real.info["inexact"] == INEXACT


def planned() -> None:
    measured = simulated(wb.Experiment(workers=3, scheme="UMW"), rounds=8)
    wb.plan(measured, problem="resnet18", problem_args=LOCAL)


@needs_torch
@pytest.mark.parametrize(
    "call", [lambda: resnet(args=LOCAL, adaptive=True), lambda: wb.tune([resnet(args=LOCAL)]), planned]
)
def test_local_batch_norm_is_refused_where_exact_schemes_are_compared(call: Callable[[], Any]) -> None:
    sentence = r"^problem_args\.batch_norm = 'local': .* no scheme is exact, and .*; take GroupNorm, with which round"
    with pytest.raises(SettingError, match=sentence):
        call()


@needs_torch
def test_check_of_local_batch_norm_skips_sums() -> None:
    checked = wb.check(resnet(args={**LOCAL, "samples": 24}).problem_spec, examples=2)
    assert checked.ok, checked
    skipped = {row.property for row in checked.rows if row.verdict == "does not apply"}
    assert skipped == {"differences", "slices", "smoothness"}


# ------------------------------------------------------------------------------------------------ refusals


@needs_torch
@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"classes": 3}, r"problem_args\.classes = 3: 'synthetic_images' has 10; take 10 or more"),
        (
            {"data": "iris", "samples": 40},
            r"problem_args\.data = 'iris': has no images; take 'synthetic_images'",
        ),
        ({"batch_norm": "global"}, r"problem_args\.batch_norm = 'global'"),
        ({"channels": 0}, r"problem_args\.channels = 0: take 1 or more"),
        ({"intercept": True}, r"problem_args\.intercept = True: an image keeps all its values"),
    ],
)
def test_resnet18_refuses_arguments_that_do_not_fit(args: dict[str, Any], sentence: str) -> None:
    with pytest.raises((SettingError, ValueError), match=sentence):
        resnet(args={**THIN, **args}).build_problem()


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_resnet18_without_pytorch_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"problem = 'resnet18': PyTorch .* pip install 'straggler-workbench\[torch"
    ):
        wb.run(resnet())


class _Memory:
    available = 4 * 10**9


def test_resnet18_without_room_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector of 11,173,962 numbers has 89 MB. If messages are vectors, a run holds one for each worker."""
    monkeypatch.setattr(psutil, "virtual_memory", _Memory)
    e = resnet(args={"samples": 200, "batch_norm": "local"}, workers=60)
    with pytest.raises(
        SettingError, match=r"^workers = 60: UMW holds about 68 vectors of 11173962 values, 6\.1 GB"
    ):
        wb.run(e)


@needs_torch
def test_resnet18_under_many_schemes_without_room_is_refused_before_it_learns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Coefficients need little memory, but each different model needs vectors. Exact schemes share one model."""
    monkeypatch.setattr(psutil, "virtual_memory", _Memory)
    different = [resnet(args={"samples": 40}, seed=0, optimiser_args={"step": 0.1 * k}) for k in range(1, 9)]
    with pytest.raises(
        SettingError, match=r"^experiments: 8 of them learn different models of 11173962 .* compare 5"
    ):
        wb.compare(different)
    check_trajectories(11_173_962, ["same"] * 8, str, 0)

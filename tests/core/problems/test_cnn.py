"""The convolutional network: refused in one sentence without PyTorch, otherwise a problem like the others."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated, sampled_cases
from workbench.core.problems.base import Request
from workbench.core.problems.cnn import SHAPES, SIZE, Cnn

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
ARGS: dict[str, Any] = {"data": "synthetic", "samples": 80, "test": 20, "device": "cpu"}


def cnn(**changes: Any) -> wb.Experiment:
    fields: dict[str, Any] = {
        "scheme": "UMW",
        "workers": 6,
        "rounds": 3,
        "problem": "cnn",
        "problem_args": ARGS,
    }
    return wb.Experiment(**{**fields, **changes})


def exact(**changes: Any) -> wb.Experiment:
    return cnn(
        **{"problem_args": {**ARGS, "precision": "float64"}, "optimiser_args": {"step": 0.05}, **changes}
    )


def test_cnn_size_is_that_of_table_ii() -> None:
    conv = 16 * 3 * 9 + 16 + 64 * 16 * 16 + 64
    assert conv + 64 * 384 + 384 + 384 * 192 + 192 + 192 * 10 + 10 == SIZE == 117_706
    assert len(SHAPES) == 10
    assert cnn().shape() == (60, SIZE)


def test_cnn_forecast_needs_no_pytorch() -> None:
    assert wb.forecast(cnn(link={"bandwidth": 1e6})).bytes == 6 * SIZE * 8


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_cnn_without_pytorch_is_refused() -> None:
    with pytest.raises(
        wb.SettingError, match=r"problem = 'cnn': PyTorch is not installed; pip install 'straggler"
    ):
        wb.run(cnn())


@pytest.mark.parametrize(
    ("args", "fields"),
    [({"features": 100}, "problem_args.features = 100"), ({"test": -1}, "problem_args.test = -1")],
)
def test_cnn_refuses_bad_arguments(args: dict[str, Any], fields: str) -> None:
    with pytest.raises(wb.SettingError, match=fields):
        cnn(problem_args={**ARGS, **args})


@needs_torch
def test_cnn_gradient_is_the_derivative() -> None:
    problem = exact().build_problem()
    model, h = problem.start(), 1e-6
    found = problem.evaluate([Request(model)])[0].gradient
    assert found is not None
    rng = np.random.default_rng(0)
    for _ in range(5):
        v = rng.standard_normal(SIZE) / np.sqrt(SIZE)
        ends = [problem.evaluate([Request(model + s * h * v, gradient=False)])[0].loss for s in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(found @ v / problem.samples, rel=1e-4, abs=1e-9)


@needs_torch
def test_cnn_slices_sum_with_their_weights() -> None:
    problem = exact().build_problem()
    model = problem.start()
    weights = np.concatenate([np.full(20, 2.0), np.full(30, -0.5), np.zeros(10)])
    whole = problem.evaluate([Request(model, weights)])[0].gradient
    assert whole is not None
    parts = problem.gradient([(0, 20, 2.0), (20, 50, -0.5)], model)
    np.testing.assert_allclose(parts, whole, rtol=1e-10, atol=1e-12)
    assert not problem.gradient([(5, 5, 1.0)], model).any()


@needs_torch
def test_cnn_start_has_the_stated_distribution() -> None:
    start = exact().build_problem().start()
    first = start[: 16 * 27]
    bound = np.sqrt(6 / (27 + 16 * 9))
    assert 0.95 * bound < np.abs(first).max() <= bound
    np.testing.assert_array_equal(start, exact().build_problem().start())


@needs_torch
@pytest.mark.parametrize(
    ("scheme", "args", "workers"),
    [
        ("UMW", {}, 6),
        ("GC", {"stragglers": 2}, 6),
        ("CR", {"children": 2, "layers": 2, "stragglers": 1}, 6),
        ("RAR", {}, 6),
        ("CEGC", {"load": 3, "stragglers": 1, "reduction": 2}, 6),
        ("GC-MMC", {"load": 3, "order": 2, "clusters": 2}, 6),
        ("FRC", {"replication": 2, "wait_for": 6}, 6),
    ],
)
def test_cnn_runs_with_every_exact_scheme(scheme: str, args: dict[str, Any], workers: int) -> None:
    """Messages are real vectors, and the model equals that of the uncoded scheme."""
    e = exact(scheme=scheme, scheme_args=args, workers=workers)
    coded, plain = wb.run(e, numeric=True), wb.run(exact())
    np.testing.assert_allclose(coded.model, plain.model, rtol=1e-6, atol=1e-9)
    assert {"accuracy", "test_accuracy"} <= set(coded.columns)


@needs_torch
def test_cnn_runs_with_a_scheme_that_measures_smoothness() -> None:
    """CADA uses the smoothness of each worker's shard."""
    e = exact(
        scheme="CADA", scheme_args={"worker_batch": 5}, optimiser="amsgrad", optimiser_args={"rate": 1e-3}
    )
    assert np.isfinite(wb.run(e).columns["loss"]).all()
    assert e.build_problem().smoothness() > 0


@pytest.fixture
def dots(tmp_path: Path) -> Path:
    """Write images of two classes, which differ in the channel that has a bright patch. Return their file."""
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    X = 0.1 * rng.standard_normal((200, 3, 32, 32))
    for image, label in zip(X, y, strict=True):
        a, b = rng.integers(0, 24, 2)
        image[label, a : a + 8, b : b + 8] += 2.0
    path = tmp_path / "dots.npy"
    np.save(path, np.column_stack([X.reshape(200, -1), y]))
    return path


@rotated
@needs_torch
@pytest.mark.parametrize("precision", sampled_cases("a CNN learns", 1, ["float32", "float64"]))
def test_cnn_learns(dots: Path, precision: str) -> None:
    args = {
        "data": str(dots),
        "samples": 200,
        "test": 50,
        "device": "cpu",
        "precision": precision,
        "scale": False,
    }
    e = cnn(problem_args=args, rounds=40, optimiser="amsgrad", optimiser_args={"rate": 3e-3})
    trace = wb.run(e)
    assert trace.columns["loss"][-1] < 0.3 * trace.initial["loss"]
    assert trace.columns["test_accuracy"][-1] > 0.9
    assert trace.model.dtype == np.float64
    assert wb.run(e).same(trace)


@needs_torch
def test_cnn_refuses_a_missing_cuda() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(wb.SettingError, match=r"problem_args\.device = 'cuda'"):
        cnn(problem_args={**ARGS, "device": "cuda"}).build_problem()


@needs_torch
def test_cnn_convolutions_keep_all_digits() -> None:
    from torch.backends import cudnn

    seen = []
    before = (cudnn.allow_tf32, cudnn.deterministic)
    problem = exact().problem_spec.build(exact().plan)
    assert isinstance(problem, Cnn)
    problem.module.register_forward_hook(lambda *_: seen.append((cudnn.allow_tf32, cudnn.deterministic)))
    problem.evaluate([Request(problem.start())])
    problem.smoothness()
    assert set(seen) == {(False, True)}
    assert (cudnn.allow_tf32, cudnn.deterministic) == before


@needs_torch
@pytest.mark.parametrize(("precision", "digits"), [("float32", 1e-4), ("float64", 1e-10)])
def test_cnn_gradient_is_equal_on_cuda_and_cpu(precision: str, digits: float) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    found = []
    for device in ("cpu", "cuda"):
        problem = cnn(problem_args={**ARGS, "precision": precision, "device": device}).build_problem()
        found.append(problem.gradient([(0, 40, 1.0), (40, 60, -0.5)], problem.start()))
    assert np.abs(found[1] - found[0]).max() < digits * np.abs(found[0]).max()

"""Augmentation: drawn by seed, round and sample, so that replicas of a part agree. It is off in evaluations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.problems.augmentation import Augmentation
from workbench.core.problems.base import Request
from workbench.mpi.running.real import resume, start_real

pytest.importorskip("torch", reason="PyTorch is not installed")
import torch
from torch import nn

from tests.support.sampled_cases import rotated

STEP = 0.05
CHANGED = {"flip": True, "crop": 2}


def small() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 10)
    )


TORCH = {
    "module": small,
    "data": "digits",
    "samples": 150,
    "precision": "float64",
    "device": "cpu",
    **CHANGED,
}


def experiment(scheme: str = "UMW", args: dict[str, Any] | None = None, **fields: Any) -> wb.Experiment:
    known: dict[str, Any] = {"workers": 4, "rounds": 5, "optimiser_args": {"step": STEP}, "problem": "torch"}
    return wb.Experiment(scheme=scheme, problem_args={**TORCH, **(args or {})}, **{**known, **fields})


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(0, 3), st.integers(0, 99))
def test_augmented_image_is_a_window_of_the_bordered_image(
    height: int, width: int, channels: int, crop: int, round: int
) -> None:
    found = Augmentation(samples=9, image=(channels, height, width), flip=True, crop=crop, seed=1)
    x = torch.arange(9.0 * channels * height * width).reshape(9, channels, height, width) + 1
    rows = np.array([7, 2, 2])
    for given_ in (x[rows], x[rows].flatten(1)):
        images = found(given_, rows, round)
        assert images.shape == given_.shape
        for image, row in zip(images.reshape(3, channels, height, width), rows, strict=True):
            mirrored, top, left = found.drawn(round)[row]
            bordered = np.pad(x[row].numpy(), ((0, 0), (crop, crop), (crop, crop)))
            window = bordered[:, top : top + height, left : left + width]
            np.testing.assert_array_equal(image.numpy(), window[:, :, ::-1] if mirrored else window)


def test_augmentation_differs_between_rounds_and_seeds_and_mirrors_half() -> None:
    one = Augmentation(samples=4000, image=(3, 32, 32), flip=True, crop=4, seed=0)
    mirrored = one.drawn(0)[:, 0]
    assert abs(mirrored.mean() - 0.5) < 0.05
    assert sorted(set(one.drawn(0)[:, 1])) == list(range(9))
    assert abs((one.drawn(0)[:, 1:] == one.drawn(1)[:, 1:]).mean() - 1 / 9) < 0.02
    other = Augmentation(samples=4000, image=(3, 32, 32), flip=True, crop=4, seed=1)
    assert abs((mirrored == other.drawn(0)[:, 0]).mean() - 0.5) < 0.05
    plain = Augmentation(samples=4000, image=(3, 32, 32), flip=False, crop=0, seed=0)
    assert not plain.drawn(3).any()


def test_augmented_gradients_agree_for_all_owners_of_a_part() -> None:
    problem: Any = experiment().build_problem()
    model = problem.start()
    here = problem.at(3)
    part = here.gradient([(40, 80, 1.0)], model)
    more = here.gradient([(0, 40, 2.0), (40, 80, 1.0), (80, 150, -0.5)], model)
    others = here.gradient([(0, 40, 2.0), (80, 150, -0.5)], model)
    np.testing.assert_allclose(more - others, part, rtol=1e-9, atol=1e-10)
    assert np.array_equal(experiment().build_problem().at(3).gradient([(40, 80, 1.0)], model), part)  # type: ignore[attr-defined]
    assert np.abs(problem.at(4).gradient([(40, 80, 1.0)], model) - part).max() > 1e-3
    plain = experiment(args={"flip": False, "crop": 0}).build_problem()
    assert np.abs(plain.gradient([(40, 80, 1.0)], model) - part).max() > 1e-3


def test_augmentation_is_off_in_evaluations() -> None:
    changed, plain = (
        experiment(args={**more, "test": 0.2}).build_problem() for more in ({}, {"flip": False, "crop": 0})
    )
    model = plain.start() + 0.1
    found, wanted = (
        p.evaluate([Request(model, gradient=False, round=2, test=True)])[0] for p in (changed, plain)
    )
    assert (found.loss, found.metrics) == (wanted.loss, wanted.metrics)
    assert "test_accuracy" in found.metrics


CODED: dict[str, dict[str, Any]] = {
    "GC": {"stragglers": 1},
    "FRC": {"replication": 2, "wait_for": 4},
    "CEGC": {"load": 3, "stragglers": 1, "reduction": 2},
    "RAR": {},
}


@pytest.mark.parametrize("numeric", [False, True])
@pytest.mark.parametrize("batch", [None, 50])
def test_exact_schemes_commit_the_same_augmented_gradient(batch: int | None, numeric: bool) -> None:
    plain = wb.run(experiment(batch=batch))
    for scheme, args in CODED.items():
        coded = wb.run(experiment(scheme, batch=batch, scheme_args=args), numeric=numeric)
        np.testing.assert_allclose(coded.model, plain.model, rtol=1e-9, atol=1e-12)
    still = wb.run(experiment(args={"flip": False, "crop": 0}, batch=batch))
    assert np.abs(still.model - plain.model).max() > 1e-4


def test_repeated_jobs_are_augmented_by_job() -> None:
    """SR-SGC computes a job again in a later round. The images are those of the job."""
    bursts = {"kind": "markov", "factor": 10.0, "p_slow": 0.2, "shift": 2e-4}
    args = {"burst": 2, "window": 5, "stragglers": 2}
    e = experiment("SR-SGC", scheme_args=args, delays=bursts, rounds=20, batch=50)
    np.testing.assert_allclose(wb.run(e).model, wb.run(e, numeric=True).model, rtol=1e-9, atol=1e-12)


@rotated
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("batch", [None, 50])
def test_augmented_gradient_is_committed_by_real_ranks(batch: int | None) -> None:
    e = experiment("GC", scheme_args={"stragglers": 1}, workers=3, batch=batch)
    plain = wb.run(experiment(workers=3, batch=batch))
    np.testing.assert_allclose(wb.run(e, engine="mpi").model, plain.model, rtol=1e-9, atol=1e-12)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
def test_augmentation_of_a_resumed_run_continues(tmp_path: Any) -> None:
    e = experiment(workers=2, rounds=40, batch=30, delays={"kind": "constant", "shift": 2e-3})
    run = start_real(e, folder=tmp_path / "run")
    while len(run.rows()["round"]) < 5:
        assert not run.wait(0.01), run
    run.stop()
    assert len(run.result().rounds) < 40
    np.testing.assert_allclose(
        resume(tmp_path / "run").result().model, wb.run(e).model, rtol=1e-9, atol=1e-12
    )


def rows() -> tuple[Any, Any]:
    return torch.zeros(12, 3), torch.zeros(12, dtype=torch.long)


def pictures() -> tuple[Any, Any]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(24, 5, 6, generator=random), torch.arange(24) % 2


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(30, 2))


def short() -> nn.Module:
    return nn.Linear(3, 2)


def test_augmentation_of_a_dataset_of_pictures() -> None:
    args = {"module": linear, "dataset": pictures, "precision": "float64", "crop": 1}
    e = wb.Experiment(
        problem="torch", problem_args=args, workers=2, scheme="UMW", optimiser_args={"step": 0.1}
    )
    problem: Any = e.build_problem()
    model, few = problem.start(), Augmentation(24, (1, 5, 6), False, 1, 0)
    x = few(pictures()[0][:3], np.arange(3), 7).double()
    module = linear().double()
    torch.nn.utils.vector_to_parameters(torch.tensor(model), module.parameters())
    nn.functional.cross_entropy(module(x), pictures()[1][:3], reduction="sum").backward()
    wanted = torch.cat([p.grad.ravel() for p in module.parameters()])  # type: ignore[union-attr]
    np.testing.assert_allclose(problem.at(7).gradient([(0, 3, 1.0)], model), wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (
            {"module": short, "dataset": rows, "flip": True},
            "flip = True: the samples are not known to be images",
        ),
        (
            {"module": small, "data": "digits", "crop": 9},
            "crop = 9: is more than the side of the images of 8 x 8",
        ),
        ({"module": small, "data": "digits", "crop": -1}, "crop = -1: take 0 or more"),
    ],
)
def test_augmentation_that_does_not_fit_is_refused(args: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=rf"problem_args\.{sentence}"):
        wb.Experiment(problem="torch", problem_args=args).build_problem()


def test_cnn_images_are_augmented() -> None:
    args = {"samples": 40, "precision": "float64", "device": "cpu"}
    fields: dict[str, Any] = {"problem": "cnn", "workers": 3, "rounds": 2, "optimiser_args": {"step": 0.01}}
    changed = [
        wb.run(wb.Experiment(scheme=scheme, problem_args={**args, **CHANGED}, **fields)).model
        for scheme in ("UMW", "GC")
    ]
    np.testing.assert_allclose(changed[0], changed[1], rtol=1e-9, atol=1e-12)
    assert (
        np.abs(wb.run(wb.Experiment(scheme="UMW", problem_args=args, **fields)).model - changed[0]).max()
        > 1e-6
    )

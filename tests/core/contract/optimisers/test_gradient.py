"""SGD, Adam and AdamW take the steps of PyTorch, and those of their published formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import (
    SGD,
    Adam,
    AdamW,
    GradientDescent,
    InverseTime,
    Optimiser,
    optimiser_class,
)
from workbench.core.problems.linear import LeastSquares

STEPS, SIZE, SAMPLES = 200, 12, 7
TOLERANCE = 1e-12
SGDS: list[dict[str, Any]] = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.05},
    {"momentum": 0.9, "weight_decay": 0.05},
    {"momentum": 0.8, "nesterov": True, "weight_decay": 0.05, "clip": 2.0},
    {"clip": 0.5},
]
ADAMS: list[dict[str, Any]] = [
    {},
    {"weight_decay": 0.1},
    {"max_square": True},
    {"beta1": 0.8, "beta2": 0.95, "eps": 1e-4, "weight_decay": 0.1, "max_square": True, "clip": 1.0},
]
SCHEDULES: list[dict[str, Any]] = [
    {"kind": "constant", "warmup": 20, "warmup_start": 0.25},
    {"kind": "steps", "every": 30, "decay": 0.5},
    {"kind": "steps", "milestones": (50, 51, 120), "decay": 0.7},
    {"kind": "exponential", "decay": 0.98},
    {"kind": "cosine", "length": STEPS},
    {"kind": "cosine", "length": STEPS - 40, "end": 0.1, "warmup": 40},
    {"kind": "exponential", "decay": 0.98, "warmup": 10},
]


def recorded(l2: float = 0.0) -> tuple[LeastSquares, list[Array]]:
    """Return a problem, and STEPS drawn gradient sums that do not depend on a model.

    Optimisers use only the number of samples, the size and the l2 of the problem.
    """
    rng = np.random.default_rng(1)
    problem = LeastSquares(rng.standard_normal((SAMPLES, SIZE)), rng.standard_normal(SAMPLES), l2=l2)
    scale = 10.0 ** rng.uniform(-2, 1, (STEPS, 1))  # some gradients are clipped, and some are not
    return problem, list(SAMPLES * scale * rng.standard_normal((STEPS, SIZE)))


def models(optimiser: Optimiser, l2: float = 0.0) -> Array:
    """Return the model after each of the recorded gradients."""
    problem, gradients = recorded(l2)
    model, state, found = np.linspace(-1, 1, SIZE), optimiser.start(problem), []
    for t, gradient in enumerate(gradients):
        model, state = optimiser.update(state, model, gradient, problem, t)
        found.append(model)
    return np.array(found)


def torch_models(make: Any, clip: float | None = None, schedule: Any = None, l2: float = 0.0) -> Array:
    """Return the models of a `torch.optim` optimiser with a scheduler of `torch.optim.lr_scheduler`."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model = torch.nn.Parameter(torch.linspace(-1, 1, SIZE, dtype=torch.float64))
    model.data = torch.tensor(np.linspace(-1, 1, SIZE))
    optimiser = make(torch.optim, [model])
    scheduler, found = schedule(optimiser) if schedule else None, []
    for gradient in recorded(l2)[1]:
        model.grad = torch.tensor(gradient / SAMPLES) + l2 * model.detach()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([model], clip)
        optimiser.step()
        if scheduler:
            scheduler.step()
        found.append(model.detach().numpy().copy())
    return np.array(found)


def torch_schedule(optimiser: Any, args: dict[str, Any]) -> Any:
    from torch.optim import lr_scheduler as lr

    kind, warmup = args["kind"], args.get("warmup", 0)
    if kind == "steps" and "every" in args:
        main = lr.StepLR(optimiser, args["every"], args["decay"])
    elif kind == "steps":
        main = lr.MultiStepLR(optimiser, list(args["milestones"]), args["decay"])
    elif kind == "exponential":
        main = lr.ExponentialLR(optimiser, args["decay"])
    elif kind == "cosine":
        full = optimiser.param_groups[0]["lr"]
        main = lr.CosineAnnealingLR(optimiser, args["length"], args.get("end", 0.0) * full)
    else:
        main = lr.ConstantLR(optimiser, 1.0)
    if not warmup:
        return main
    start = args.get("warmup_start", 1 / (warmup + 1))
    linear = lr.LinearLR(optimiser, start_factor=start, end_factor=1.0, total_iters=warmup)
    return lr.SequentialLR(optimiser, [linear, main], milestones=[warmup])


@pytest.mark.parametrize("args", SGDS, ids=str)
def test_sgd_takes_pytorchs_steps(args: dict[str, Any]) -> None:
    given = {name: value for name, value in args.items() if name != "clip"}
    theirs = torch_models(lambda optim, p: optim.SGD(p, lr=0.05, **given), args.get("clip"))
    np.testing.assert_allclose(models(SGD(step=0.05, **args)), theirs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("args", ADAMS, ids=str)
def test_adam_and_adamw_take_pytorchs_steps(name: str, args: dict[str, Any]) -> None:
    ours = optimiser_class(name)(rate=0.02, **args)
    words: dict[str, Any] = ours.model_dump(include={"eps", "weight_decay"})
    words |= {"lr": 0.02, "betas": (ours.beta1, ours.beta2), "amsgrad": ours.max_square}  # type: ignore[attr-defined]
    cls = {"adam": "Adam", "adamw": "AdamW"}[name]
    theirs = torch_models(lambda optim, p: getattr(optim, cls)(p, **words), args.get("clip"))
    np.testing.assert_allclose(models(ours), theirs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", ["sgd", "adamw"])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_schedules_take_pytorchs_steps(name: str, schedule: dict[str, Any]) -> None:
    if name == "sgd":
        ours: Optimiser = SGD(step=0.05, momentum=0.9, schedule=schedule)
        theirs = torch_models(
            lambda optim, p: optim.SGD(p, lr=0.05, momentum=0.9),
            schedule=lambda optimiser: torch_schedule(optimiser, schedule),
        )
    else:
        ours = AdamW(rate=0.02, schedule=schedule)
        theirs = torch_models(
            lambda optim, p: optim.AdamW(p, lr=0.02),
            schedule=lambda optimiser: torch_schedule(optimiser, schedule),
        )
    np.testing.assert_allclose(models(ours), theirs, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_l2_is_in_the_gradient_once(weight_decay: float) -> None:
    """L2 regularisation is a part of the objective, and weight decay is not. Together, both apply."""
    ours = models(SGD(step=0.05, weight_decay=weight_decay), l2=0.1)
    theirs = torch_models(lambda optim, p: optim.SGD(p, lr=0.05, weight_decay=weight_decay), l2=0.1)
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE)
    coupled = models(SGD(step=0.05, weight_decay=weight_decay + 0.1))
    np.testing.assert_allclose(ours, coupled, rtol=TOLERANCE, atol=TOLERANCE)


def test_sgd_velocity_in_closed_form() -> None:
    """The velocity is the sum of all gradients, each times momentum ** age."""
    _, gradients = recorded()
    means = np.array(gradients) / SAMPLES
    velocity = [sum(0.9 ** (t - s) * means[s] for s in range(t + 1)) for t in range(STEPS)]
    closed = np.linspace(-1, 1, SIZE) - 0.05 * np.cumsum(velocity, axis=0)
    np.testing.assert_allclose(models(SGD(step=0.05, momentum=0.9)), closed, rtol=1e-10, atol=1e-10)


def test_adam_moments_in_closed_form() -> None:
    """Kingma and Ba 2015, equation (1): the weights (1 - beta) beta^age sum to 1 after the correction."""
    _, gradients = recorded()
    means, model = np.array(gradients) / SAMPLES, np.linspace(-1, 1, SIZE)
    for t in range(STEPS):
        first, second = (
            np.array([beta ** (t - s) for s in range(t + 1)]) * (1 - beta) / (1 - beta ** (t + 1))
            for beta in (0.9, 0.999)
        )
        assert math.isclose(second.sum(), 1.0, rel_tol=1e-9)
        model = model - 0.02 * (first @ means[: t + 1]) / (np.sqrt(second @ means[: t + 1] ** 2) + 1e-8)
    np.testing.assert_allclose(models(Adam(rate=0.02))[-1], model, rtol=1e-9, atol=1e-9)


def test_adamw_without_gradients_only_decays() -> None:
    problem, _ = recorded()
    optimiser = AdamW(rate=0.1, weight_decay=0.5)
    model, state = np.ones(SIZE), optimiser.start(problem)
    for t in range(10):
        model, state = optimiser.update(state, model, np.zeros(SIZE), problem, t)
    np.testing.assert_allclose(model, 0.95**10)


def test_clipped_gradient_is_no_longer_than_asked() -> None:
    problem, gradients = recorded()
    optimiser = SGD(step=1.0, clip=0.5)
    for gradient in gradients:
        moved, _ = optimiser.update(optimiser.start(problem), np.zeros(SIZE), gradient, problem, 0)
        length, mean = np.linalg.norm(moved), np.linalg.norm(gradient) / SAMPLES
        assert length <= 0.5
        assert math.isclose(length, min(mean, 0.5), rel_tol=1e-4)


def test_plain_sgd_equals_gradient_descent_bit_for_bit() -> None:
    np.testing.assert_array_equal(models(SGD(step=0.05)), models(GradientDescent(step=0.05)))


def test_inverse_time_schedule_and_optimiser_take_the_same_steps() -> None:
    schedule = {"kind": "inverse_time", "offset": 30.0}
    ours = models(GradientDescent(step=2.0 / 30.0, schedule=schedule))
    np.testing.assert_allclose(ours, models(InverseTime(c1=2.0, c2=30.0)), rtol=TOLERANCE)


def test_milestones_of_gradient_descent_and_of_the_schedule_take_the_same_steps() -> None:
    schedule = {"kind": "steps", "decay": 0.7, "milestones": (20, 90)}
    own = models(GradientDescent(step=0.05, decay=0.7, milestones=(20, 90)))
    np.testing.assert_allclose(models(GradientDescent(step=0.05, schedule=schedule)), own, rtol=TOLERANCE)


@pytest.mark.parametrize("name", list(Optimiser.catalogue))
def test_schedule_of_every_optimiser_scales_its_first_step(name: str) -> None:
    assert wb.check(name, only="schedule", examples=5).ok
    assert wb.check(name, only="schedule", examples=5).rows[0].verdict == "passes"


@pytest.mark.parametrize(
    ("optimiser", "args", "says"),
    [
        ("sgd", {"nesterov": True}, "optimiser_args.nesterov = True: needs a momentum above 0; set momentum"),
        ("sgd", {"momentum": 1.0}, "optimiser_args.momentum = 1.0: take 0 to below 1"),
        ("sgd", {"clip": 0}, "optimiser_args.clip = 0: take a number above 0, or leave it empty"),
        ("adamw", {"weight_decay": -1}, "optimiser_args.weight_decay = -1: take 0 or more"),
        ("adam", {"amsgrad": True}, "optimiser_args.amsgrad: Adam has no such field; its fields are"),
    ],
)
def test_optimiser_refuses_in_one_sentence(optimiser: str, args: dict[str, Any], says: str) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(optimiser=optimiser, optimiser_args=args)
    assert str(error.value).startswith(says)
    assert "\n" not in str(error.value)

"""The job of a script without a launcher: a single rank, whose weighted backward pass is the mean's gradient."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - needs torch

from workbench import ddp  # noqa: E402


def script() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    loader = DataLoader(TensorDataset(torch.randn(10, 3), torch.randn(10, 2)), batch_size=4, shuffle=True)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), loader


def losses(model: Any, x: Any, y: Any) -> Any:
    return (model(x) - y).square()


def test_single_rank_takes_the_gradient_of_the_mean() -> None:
    model, optimiser, loader = script()
    job = ddp.prepare(model, optimiser, loader)
    assert (job.rank, job.ranks, len(job)) == (0, 1, 3)
    for x, y in job:
        optimiser.zero_grad()
        expected = torch.autograd.grad(losses(model, x, y).mean(), list(model.parameters()))
        job.backward(losses(model, x, y))
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
        assert job.loss == pytest.approx(float(losses(model, x, y).mean().detach()))
        optimiser.step()
    assert job.step == 3


def test_until_goes_over_epochs() -> None:
    model, optimiser, loader = script()
    job = ddp.prepare(model, optimiser, loader)
    for x, y in job.until(7):
        job.backward(losses(model, x, y))
    assert job.step == 7


@pytest.mark.parametrize("shape", ["mean", "short"])
def test_losses_of_another_shape_are_refused(shape: str) -> None:
    model, optimiser, loader = script()
    job = ddp.prepare(model, optimiser, loader)
    x, y = next(iter(job))
    given = losses(model, x, y).mean() if shape == "mean" else losses(model, x, y)[:3]
    with pytest.raises(SettingError, match="reduction='none'"):
        job.backward(given)


def test_forgotten_backward_is_an_error() -> None:
    model, optimiser, loader = script()
    batches = iter(ddp.prepare(model, optimiser, loader))
    next(batches)
    with pytest.raises(RunError, match=r"call job.backward\(losses\)"):
        next(batches)


def test_backward_twice_for_a_batch_or_after_the_loop_is_an_error() -> None:
    model, optimiser, loader = script()
    job = ddp.prepare(model, optimiser, loader)
    with pytest.raises(RunError, match=r"step 1: backward is called without a batch"):
        job.backward(torch.zeros(4, requires_grad=True))
    for x, y in job:
        job.backward(losses(model, x, y))
        with pytest.raises(RunError, match=r"step \d: .* or twice for it; add the losses"):
            job.backward(losses(model, x, y))
        optimiser.step()
    with pytest.raises(RunError, match=r"step 4: backward is called without a batch"):
        job.backward(losses(model, x, y))


def test_step_counts_as_soon_as_the_loop_is_left() -> None:
    model, optimiser, loader = script()
    job = ddp.prepare(model, optimiser, loader)
    for x, y in job:
        job.backward(losses(model, x, y))
        optimiser.step()
        break
    assert job.step == 1

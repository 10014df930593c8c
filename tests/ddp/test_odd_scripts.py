"""Scripts that do more between their steps than the example: what works is as in one process, the rest is refused."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.ddp.threads import ended, environment_of_thread, losses, run, small  # noqa: E402
from workbench import ddp  # noqa: E402
from workbench.core.base.errors import RunError  # noqa: E402
from workbench.ddp import environment  # noqa: E402

STEPS = 6
Body = Callable[[Any, Any, Any, Any, Any], None]
Made = tuple[Any, Any, Any]


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "read", environment_of_thread)


def trained(body: Body, make: Callable[[], Made], scheme: str, **args: Any) -> list[list[float]]:
    """Return the weights of four ranks after a script whose steps are `body`."""

    def script() -> list[float]:
        model, optimiser, loader = make()
        job = ddp.prepare(model, optimiser, loader)
        try:
            for x, y in job.until(STEPS):
                body(job, model, optimiser, x, y)
        except BaseException:
            atexit.unregister(job._finish)
            job._channel.close()
            raise
        ended(job)
        return weights(model)

    return run([script] * 4, scheme, **args)[1]


def alone(body: Body, make: Callable[[], Made]) -> list[float]:
    """Return the weights after the same script in one process, with plain PyTorch."""

    class Plain:
        step = 0

        def backward(self, losses: Any) -> None:
            losses.mean().backward()

    model, optimiser, loader = make()
    batches = [*loader, *loader][:STEPS]
    for step, (x, y) in enumerate(batches):
        Plain.step = step
        body(Plain(), model, optimiser, x, y)
    return weights(model)


def weights(model: Any) -> list[float]:
    return [float(each) for parameter in model.parameters() for each in parameter.detach().flatten()]


def four() -> Made:
    return small(4)


def short() -> Made:
    """Return a script whose last batch of an epoch has 2 samples instead of 6."""
    return small(6)


def frozen() -> Made:
    model, _, loader = small(4)
    model.bias.requires_grad_(False)
    return model, torch.optim.Adam(model.parameters(), lr=0.1), loader


class Embedded(torch.nn.Module):
    """A network with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 1, sparse=True)
        torch.nn.init.ones_(self.table.weight)

    def forward(self, x: Any) -> Any:
        return self.table((3 * x[:, 0]).long().abs() % 10)


def sparse() -> Made:
    model = Embedded()
    return model, torch.optim.SGD(model.parameters(), 0.1), small(4)[2]


def plain(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    optimiser.zero_grad()
    job.backward(losses(model, x, y))
    optimiser.step()


def clipped(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    optimiser.zero_grad(set_to_none=False)
    job.backward(losses(model, x, y))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimiser.step()


def unfrozen(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    """Train the bias only from the fourth step on."""
    model.bias.requires_grad_(job.step >= 3)
    plain(job, model, optimiser, x, y)


def evaluated(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    plain(job, model, optimiser, x, y)
    model.eval()
    with torch.no_grad():
        model(x)
    model.train()


@pytest.mark.parametrize(
    ("body", "make"),
    [(clipped, four), (unfrozen, frozen), (evaluated, four), (plain, short), (plain, sparse)],
)
def test_script_trains_as_in_one_process(body: Body, make: Callable[[], Made]) -> None:
    found = trained(body, make, "GC", stragglers=1)
    assert found == [found[0]] * 4
    assert found[0] == pytest.approx(alone(body, make), rel=1e-4, abs=1e-5)


def accumulated(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    job.backward(losses(model, x, y))
    if job.step % 2:
        optimiser.step()
        optimiser.zero_grad()


def in_two_parts(job: Any, model: Any, optimiser: Any, x: Any, y: Any) -> None:
    optimiser.zero_grad()
    job.backward(losses(model, x, y))
    job.backward(losses(model, x, y))
    optimiser.step()


@pytest.mark.parametrize(
    ("body", "scheme", "args", "why"),
    [
        (accumulated, "GC", {"stragglers": 1}, r"step 2: .* call optimiser.zero_grad\(\) in each step"),
        (in_two_parts, "GC", {"stragglers": 1}, "step 1: .* twice for it; add the losses"),
        (in_two_parts, "LocalSGD", {"local_steps": 2}, "step 1: .* twice for it; add the losses"),
    ],
)
def test_script_that_would_train_otherwise_is_refused(
    body: Body, scheme: str, args: dict[str, Any], why: str
) -> None:
    with pytest.raises(RunError, match=why):
        trained(body, four, scheme, **args)


def test_gradients_may_be_accumulated_between_averages_of_models() -> None:
    found = trained(accumulated, four, "LocalSGD", local_steps=2)
    assert found == [found[0]] * 4

"""Averages of models with LocalSGD and H-SGD, after loops of any length. The ranks are threads of this process."""

from __future__ import annotations

import atexit
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tests.support.ddp.threads import ended, environment_of_thread, losses, run, small, train  # noqa: E402
from workbench import ddp  # noqa: E402
from workbench.core.base.errors import RunError  # noqa: E402
from workbench.ddp import environment  # noqa: E402
from workbench.ddp.master import Master  # noqa: E402


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "read", environment_of_thread)


LOCAL = [("LocalSGD", {"local_steps": 4}, 2), ("H-SGD", {"local_steps": 4, "levels": [[2, 2]]}, 4)]


@pytest.mark.parametrize(("scheme", "args", "ranks"), LOCAL)
@given(limits=st.lists(st.integers(1, 5), min_size=1, max_size=3), end=st.sampled_from(["end", "break"]))
@settings(max_examples=10, deadline=None)
def test_ranks_have_the_average_model_after_a_loop(
    scheme: str, args: dict[str, Any], ranks: int, limits: list[int], end: str
) -> None:
    """Loops end after any number of steps of a period. After `break`, the script calls `average`."""

    def script() -> list[list[float]]:
        model, optimiser, loader = small(4)
        job, found = ddp.prepare(model, optimiser, loader), []
        for limit in limits:
            steps = job.step + limit
            for x, y in job.until(steps if end == "end" else steps + 3):
                train(job, model, optimiser, x, y)
                if end == "break" and job.step + 1 == steps:
                    break
            if end == "break":
                job.average()
            assert job.step == steps
            found.append(model.weight.flatten().tolist())
        ended(job)
        return found

    _, found = run([script] * ranks, scheme, **args)
    assert found == [found[0]] * ranks


def test_rank_that_receives_the_first_state_late_does_the_first_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rank 0 has done its first local steps by then. Its average waits for rank 1, which begins at step 0 as well."""
    reply = Master._reply

    def held(master: Master, rank: int, request: dict[str, Any]) -> Any:
        if rank == 1 and request["what"] == "join":
            master.changed.wait_for(lambda: any(0 in each.answers for each in master._open.values()), 60)
            until = time.monotonic() + 0.3
            master.changed.wait_for(lambda: time.monotonic() > until, 0.3)
        return reply(master, rank, request)

    def script() -> tuple[int, list[float]]:
        model, optimiser, loader = small(4)
        job = ddp.prepare(model, optimiser, loader)
        begun = job.step
        for x, y in job.until(4):
            train(job, model, optimiser, x, y)
        ended(job)
        return begun, model.weight.flatten().tolist()

    monkeypatch.setattr(Master, "_reply", held)
    _, (first, second) = run([script] * 2, "LocalSGD", local_steps=4)
    assert first == second
    assert first[0] == 0


@pytest.mark.parametrize("steps", [3, 4, 6])
def test_model_after_a_loop_is_the_mean_of_the_ranks_models(steps: int) -> None:
    """Each rank trains on its half of each batch. The reference does so with plain PyTorch."""

    def script() -> list[float]:
        model, optimiser, loader = small(4)
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(steps):
            train(job, model, optimiser, x, y)
        averaged = model.weight.flatten().tolist()
        ended(job)
        return averaged

    _, found = run([script] * 2, "LocalSGD", local_steps=4)
    replicas = [small(4) for _ in range(2)]
    for step, (x, y) in enumerate([*replicas[0][2], *replicas[0][2]][:steps], 1):
        for half, (model, optimiser, _) in zip((slice(0, 2), slice(2, 4)), replicas, strict=True):
            optimiser.zero_grad()
            losses(model, x[half], y[half]).mean().backward()
            optimiser.step()
        if step in (4, steps):
            for many in zip(*(model.parameters() for model, *_ in replicas), strict=True):
                mean = torch.stack([each.detach() for each in many]).mean(0)
                for each in many:
                    each.data.copy_(mean)
    assert found == [pytest.approx(replicas[0][0].weight.flatten().tolist(), rel=1e-5)] * 2


@pytest.mark.parametrize("batches", [3, 4])
def test_script_sees_averages_as_soon_as_the_optimiser_has_stepped(batches: int) -> None:
    """With `break` after a period's last step, nothing else is needed. Within a loop, `average` works as well."""

    def script() -> list[float]:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(8):
            train(job, model, optimiser, x, y)
            if job.step + 1 == batches:
                if batches == 3:
                    job.average()
                break
        found = [job.step, *model.weight.flatten().tolist()]
        ended(job)
        return found

    _, (one, other) = run([script] * 2, "LocalSGD", local_steps=4)
    assert one == other
    assert one[0] == batches


def test_training_continues_after_an_average_within_a_loop() -> None:
    def script() -> tuple[int, int]:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(8):
            train(job, model, optimiser, x, y)
            if job.step in (1, 3):  # after step 4 there is an average anyway
                job.average()
        ended(job)
        return job.step, job._exchanges

    assert run([script] * 2, "LocalSGD", local_steps=4)[1] == [(8, 3)] * 2


@pytest.mark.parametrize("scheme", ["LocalSGD", "GC"])
def test_averages_of_loops_that_are_left_after_different_steps_are_refused(scheme: str) -> None:
    """With gradients, `average` does nothing, so that each rank may leave when it likes."""

    def script() -> int:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(8):
            train(job, model, optimiser, x, y)
            if job.step >= 4 + job.rank:  # with GC, a late rank skips steps
                break
        try:
            job.average()
        finally:
            atexit.unregister(job._finish)
        ended(job)
        return job.step

    args = {"local_steps": 4} if scheme == "LocalSGD" else {"stragglers": 1}
    if scheme == "GC":
        _, (first, second) = run([script] * 2, scheme, **args)
        assert first >= 5
        assert second >= 6
        return
    with pytest.raises(RunError, match=r"steps 5 and 6: .* leave loops after the same step"):
        run([script] * 2, scheme, **args)


def test_late_rank_has_the_newest_model_after_a_loop() -> None:
    """Rank 2 begins its last steps only after the others have averaged their models at the end of the loop."""
    done: list[int] = []

    def script() -> list[float]:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        master = environment_of_thread().master
        for x, y in job.until(6):
            if job.rank == 2 and job.step == 4:
                with master.changed:
                    assert master.changed.wait_for(lambda: len(done) == 2, 60)
            train(job, model, optimiser, x, y)
        found = [job.step, *model.weight.flatten().tolist()]
        with master.changed:
            done.append(job.rank)
            master.changed.notify_all()
        ended(job)
        return found

    _, found = run([script] * 3, "LocalSGD", local_steps=4, stragglers=1)
    assert found == [found[0]] * 3

"""Scripts of all shapes: loops that are left and begun again, schedules, resumed jobs, and scripts that fail.

The ranks are threads of this process. A real `Job` sends real messages to a master.
"""

from __future__ import annotations

import atexit
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, TensorDataset  # noqa: E402 - needs torch

import workbench as wb  # noqa: E402
from tests.support.ddp.threads import ended, environment_of_thread, run, small, train  # noqa: E402
from workbench import ddp  # noqa: E402
from workbench.ddp import environment  # noqa: E402
from workbench.ddp.master import Options  # noqa: E402
from workbench.ddp.record import Recorder, State, saved_state  # noqa: E402
from workbench.ddp.states import digests  # noqa: E402
from workbench.mpi.launch.processes import awaited  # noqa: E402

EPOCHS, PER_EPOCH = 4, 2


@pytest.fixture(autouse=True)
def _ranks_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "read", environment_of_thread)


class Killed(Exception):
    """End of a script that was killed."""


def die(job: Any) -> None:
    """End a script without a report to the master."""
    atexit.unregister(job._finish)
    job._channel.close()
    raise Killed


def checkpoint(folder: Path) -> State:
    return saved_state(folder) or State(0, b"")


# ------------------------------------------------------------------ loops that are left


@given(limits=st.lists(st.integers(0, 6), min_size=1, max_size=5), taken=st.sampled_from(["break", "islice"]))
@settings(max_examples=20, deadline=None)
def test_loops_that_are_left_do_all_steps_once_and_in_order(limits: list[int], taken: str) -> None:
    """Each loop of a script is left after some batches. The next one begins where it ended, up to the next epoch."""
    seen: list[list[float]] = []

    def script() -> int:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        for limit in limits:
            for i, (x, y) in enumerate(islice(job, limit) if taken == "islice" else job):
                if taken == "break" and i == limit:
                    break  # the batch is not used
                train(job, model, optimiser, x, y)
                seen.append(y.tolist())
        ended(job)
        return job.step

    _, (steps,) = run([script])
    wanted = 0
    for epoch, limit in enumerate(limits, 1):
        wanted += min(limit, 4 * epoch - wanted)
    _, _, loader = small(5)
    batches = [y.tolist() for _, y in loader]
    assert seen == [batches[step % 4] for step in range(wanted)]
    assert steps == wanted


def test_loop_is_left_and_begun_again_without_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "read", environment.Environment)
    model, optimiser, loader = small(5)
    job = ddp.prepare(model, optimiser, loader)
    steps = []
    for _ in range(3):
        for x, y in job:
            train(job, model, optimiser, x, y)
            steps.append(job.step)
            if len(steps) % 2 == 0:
                break
    assert steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("scheme", ["UMW", "LocalSGD"])
def test_ranks_that_leave_their_loops_end_equal(scheme: str) -> None:
    def script() -> list[float]:
        model, optimiser, loader = small(5)
        job = ddp.prepare(model, optimiser, loader)
        for _ in range(3):
            for i, (x, y) in enumerate(job):
                train(job, model, optimiser, x, y)
                if i == 1:
                    break
        ended(job)
        return [job.step, *model.weight.flatten().tolist()]

    _, (one, other) = run([script, script], scheme, **({"local_steps": 2} if scheme == "LocalSGD" else {}))
    assert one == other
    assert one[0] == 6


# ------------------------------------------------------------------ schedules


def rates(
    epochs: int, schedule_per: str, passed: bool, found: dict[int, float], until: str, slow: Any = None
) -> Any:
    """Return a script that stores the learning rate of each step. `slow`: called before each step."""

    def script() -> int:
        model, optimiser, loader = small(rate=1.0)
        schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
        job = ddp.prepare(model, optimiser, loader, **({"schedule": schedule} if passed else {}))
        for epoch in range(epochs):
            for x, y in job if until == "epoch" else job.until((epoch + 1) * PER_EPOCH):
                if slow:
                    slow(job)
                found[job.step] = optimiser.param_groups[0]["lr"]
                train(job, model, optimiser, x, y)
                if schedule_per == "step":
                    schedule.step()
            if schedule_per == "epoch":
                schedule.step()
        ended(job)
        return job.step

    return script


def wanted_rates(schedule_per: str) -> dict[int, float]:
    """Return the learning rate of each step of a script for one process."""
    per = PER_EPOCH if schedule_per == "epoch" else 1
    return {step: 0.5 ** (step // per) for step in range(EPOCHS * PER_EPOCH)}


@pytest.mark.parametrize("until", ["epoch", "until"])
@pytest.mark.parametrize(("schedule_per", "passed"), [("epoch", True), ("epoch", False), ("step", True)])
@pytest.mark.parametrize("first", ["epochs", "killed"])
def test_resumed_job_has_the_learning_rates_of_an_uninterrupted_one(
    schedule_per: str, passed: bool, first: str, until: str, tmp_path: Path
) -> None:
    """The first start ends after one to three epochs, or is killed after a checkpoint in any step."""
    wanted = wanted_rates(schedule_per)
    for steps in range(1, EPOCHS * PER_EPOCH):
        if first == "epochs" and steps % PER_EPOCH:
            continue
        folder, found = tmp_path / str(steps), dict[int, float]()

        def killed(job: Any, steps: int = steps) -> None:
            if first == "killed" and job.step == steps:
                die(job)

        epochs = steps // PER_EPOCH if first == "epochs" else EPOCHS
        script = rates(epochs, schedule_per, passed, found, until, killed)
        options = Options(checkpoint_every=0 if first == "epochs" else 1)
        with pytest.raises(Killed) if first == "killed" else nullcontext():
            run([script], recorder=Recorder(folder), options=options)
        assert awaited(lambda folder=folder, steps=steps: checkpoint(folder).step == steps, 30.0)
        assert found == {step: wanted[step] for step in range(steps)}
        again = dict[int, float]()
        run(
            [rates(EPOCHS, schedule_per, passed, again, until)],
            recorder=Recorder(folder, steps),
            state=checkpoint(folder),
        )
        assert again == {step: wanted[step] for step in range(steps, EPOCHS * PER_EPOCH)}, (
            f"resumed after {steps}"
        )


@pytest.mark.parametrize("schedule_per", ["epoch", "step"])
@pytest.mark.parametrize("missed", [1, 2, 3])
def test_late_rank_that_misses_the_end_of_an_epoch_has_the_right_learning_rates(
    schedule_per: str, missed: int
) -> None:
    """Rank 2 misses the steps from `missed` on, and takes part again from the third step after it on."""
    found: list[dict[int, float]] = [{}, {}, {}]
    at, wanted = [0, 0, 0], wanted_rates(schedule_per)

    def slow(job: Any) -> None:
        """Keep the ranks in the same step, but for the steps that rank 2 misses."""
        master, step = environment_of_thread().master, job.step
        at[job.rank] = step
        with master.changed:
            master.changed.notify_all()
            if job.rank == 2 and step == missed:
                assert master.changed.wait_for(lambda: min(at[:2]) == missed + 2, 60)
            elif job.rank != 2 and step == missed + 2:
                assert master.changed.wait_for(lambda: 2 in master._late.until, 60)
            else:
                ranks = at[:2] if missed < step < missed + 3 else at
                assert master.changed.wait_for(lambda: min(at[: len(ranks)]) >= step, 60)

    scripts = [rates(EPOCHS, schedule_per, True, each, "epoch", slow) for each in found]
    _, steps = run(scripts, "GC", stragglers=1)
    assert steps == [EPOCHS * PER_EPOCH] * 3
    assert {**found[0], **found[1]} == wanted
    for each in found:
        assert each == {step: wanted[step] for step in each}
    assert sorted(found[2])[: missed + 2] == [*range(missed + 1), missed + 3]


# ------------------------------------------------------------------ parameters, regularisation, waits


class Branches(torch.nn.Module):
    """A network in which a sample uses one of two weights, by the sign of its first input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))

    def forward(self, x: Any) -> Any:
        negative = x[:, 0] < 0
        out = torch.zeros(len(x))
        for rows, weight in ((negative, self.first), (~negative, self.second)):
            if rows.any():  # otherwise the weight has no gradient
                out[rows] = x[rows] @ weight
        return out


@given(
    signs=st.lists(st.sampled_from([-1.0, 1.0]), min_size=24, max_size=24),
    kind=st.sampled_from(["Adam", "SGD"]),
)
@settings(max_examples=15, deadline=None)
@pytest.mark.parametrize("scheme", ["GC", "Backup", "UMW"])
def test_states_are_equal_where_only_some_samples_use_a_parameter(
    scheme: str, signs: list[float], kind: str
) -> None:
    """A parameter has a gradient on all ranks, or on none: that of one process, if the scheme is exact."""
    inputs = torch.tensor(signs)[:, None] * torch.ones(24, 2)
    loader = DataLoader(TensorDataset(inputs, torch.zeros(24)), batch_size=4)
    more = {"lr": 0.1, "weight_decay": 0.1, **({"momentum": 0.9} if kind == "SGD" else {})}

    def script() -> tuple[list[float], dict[str, str]]:
        model = Branches()
        optimiser = getattr(torch.optim, kind)(model.parameters(), **more)
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(6):
            optimiser.zero_grad()
            job.backward((model(x) - y).square())
            optimiser.step()
        ended(job)
        return [*model.first.tolist(), *model.second.tolist()], digests(
            {name: each for name, each in job._state().items() if name != "more"}
        )

    _, found = run([script] * 4, scheme, **({} if scheme == "UMW" else {"stragglers": 1}))
    assert all(states == found[0][1] for _, states in found)
    if scheme != "Backup":
        model = Branches()
        optimiser = getattr(torch.optim, kind)(model.parameters(), **more)
        for x, y in loader:
            optimiser.zero_grad()
            (model(x) - y).square().mean().backward()
            optimiser.step()
        alone = [*model.first.tolist(), *model.second.tolist()]
        assert found[0][0] == pytest.approx(alone, rel=1e-4, abs=1e-6)


GRADIENT_SCHEMES = ["UMW", "GC", "FRC", "CRC", "IS-GC", "SGD", "Backup", "SGC", "BGC", "GGC", "ErasureHead"]


@pytest.mark.parametrize("scheme", GRADIENT_SCHEMES)
def test_weight_decay_is_applied_once_and_unscaled(scheme: str) -> None:
    """Gradients are 0 here, so a step multiplies the weights by 1 - rate * weight decay, with any set of answers."""
    rate, decay, steps = 0.1, 0.5, 4

    def script() -> tuple[int, float]:
        model = torch.nn.Linear(2, 1)
        torch.nn.init.ones_(model.weight)
        optimiser = torch.optim.SGD(model.parameters(), rate, weight_decay=decay)
        _, _, loader = small()
        job = ddp.prepare(model, optimiser, loader)
        for x, _ in job.until(steps):
            optimiser.zero_grad()
            job.backward(0 * model(x)[:, 0])
            optimiser.step()
        ended(job)
        return job.step, float(model.weight[0, 0])

    _, found = run([script] * 4, scheme)
    assert found == [(steps, pytest.approx((1 - rate * decay) ** steps, rel=1e-6))] * 4


@pytest.mark.parametrize("scheme", ["UMW", "LocalSGD"])
def test_recorder_records_waits_for_other_ranks_as_exchange(scheme: str, tmp_path: Path) -> None:
    """Rank 1 answers only after the answer of rank 0 has arrived. So rank 0 waits about as long as rank 1 sleeps."""
    wait, steps = 0.1, 3

    def slow(job: Any) -> None:
        master = environment_of_thread().master
        if job.rank == 1:
            with master.changed:
                assert master.changed.wait_for(lambda: 0 in master._pending or 0 in master.finished, 60)
            time.sleep(wait)

    def fast() -> None:
        with wb.record(tmp_path):
            script()

    def script() -> None:
        model, optimiser, loader = small()
        job = ddp.prepare(model, optimiser, loader)
        for x, y in job.until(steps):
            if scheme != "LocalSGD":
                slow(job)
            train(job, model, optimiser, x, y)
            if scheme == "LocalSGD":
                slow(job)
        ended(job)

    run([fast, script], scheme, **({"local_steps": 1} if scheme == "LocalSGD" else {}))
    with np.load(next(tmp_path.glob("rank*.npz"))) as file:
        recorded = file["steps"]["exchange"]
    assert len(recorded) == steps
    # with local steps, the exchange is at the end of a step, after the optimiser: it counts in the next one
    assert (recorded[scheme == "LocalSGD" :] >= 0.9 * wait).all()

"""A training script for tests: a small network on drawn data, with faults that the environment variable FAULT names.

It writes `rank-R.json` into the folder OUT: losses of the committed batches by step, and a hash of the last state.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from workbench import ddp
from workbench.ddp.states import digests, pack
from workbench.ddp.wire import digest

OUT, STEPS = Path(os.environ["OUT"]), int(os.environ.get("STEPS", "12"))
FAULT = dict(item.split("=") for item in os.environ.get("FAULT", "").split() if item)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Samples with noise from PyTorch and from a generator of Python: the global one, or one that is not seeded."""

    def __init__(self, data: TensorDataset, seeded: bool) -> None:
        self.data, self.random = data, random if seeded else random.Random()

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, sample: int) -> tuple[Tensor, Tensor]:
        x, y = self.data[sample]
        return x + 0.1 * self.random.random() + 0.1 * torch.rand(1), y


def network() -> nn.Module:
    extra = {"batch_norm": nn.BatchNorm1d(16), "dropout": nn.Dropout(0.5)}.get(FAULT.get("layer", ""))
    return nn.Sequential(nn.Linear(6, 16), *([extra] if extra else []), nn.Tanh(), nn.Linear(16, 3))


def main() -> None:
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(96, 6, generator=generator)
    data: Dataset = TensorDataset(x, (x[:, :3] ** 2).argmax(1))
    if "noise" in FAULT:
        data = Noisy(data, FAULT["noise"] == "seeded")  # type: ignore[arg-type]
    torch.manual_seed(1)
    loader = DataLoader(data, batch_size=24, shuffle=True, num_workers=int(FAULT.get("workers", "0")))
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.95)
    job = ddp.prepare(model, optimiser, loader, schedule=schedule)
    losses: dict[int, float] = {}
    for inputs, targets in job.until(STEPS):
        fail(job, model)
        optimiser.zero_grad()
        job.backward(nn.functional.cross_entropy(model(inputs), targets, reduction="none"))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if not job.late:
            losses[job.step] = job.loss
    state = {"model": model.state_dict(), "optimiser": optimiser.state_dict()}
    report = {"step": job.step, "losses": losses, "state": digest(pack(state)), "tensors": digests(state)}
    (OUT / f"rank-{job.rank}.json").write_text(json.dumps(report))


def fail(job: ddp.Job, model: nn.Module) -> None:
    """Cause the faults of this rank and step."""
    mine = job.rank == int(FAULT.get("rank", "-1"))
    if mine and job.step == int(FAULT.get("kill", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)
    if mine and job.step > int(FAULT.get("kill", "1000000")):  # started again
        (OUT / "again").touch()
    if (
        mine
        and job.step == int(FAULT.get("orphan", "-1"))
        and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    ):
        os.kill(os.getppid(), signal.SIGKILL)  # the launcher
    if mine and job.step >= int(FAULT.get("raise", "1000000")):
        raise ValueError("a fault of the test")
    if mine and job.step == int(FAULT.get("change", "-1")):
        with torch.no_grad():
            next(model.parameters()).add_(1e-3)
    if mine and job.step >= int(FAULT.get("late", "1000000")):
        time.sleep(float(FAULT["seconds"]))
    elif "pace" in FAULT:  # so that a late rank misses more than one exchange
        time.sleep(float(FAULT["pace"]) / (10 if (OUT / "again").exists() else 1))


if __name__ == "__main__":
    sys.exit(main())

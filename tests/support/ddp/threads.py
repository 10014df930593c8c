"""Jobs in threads of this process: each rank is a `Job` that is connected to a master over a pair of sockets."""

from __future__ import annotations

import atexit
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ddp.ranks import REPLY_TIMEOUT_S
from workbench.ddp.environment import Environment
from workbench.ddp.job import Job
from workbench.ddp.master import Master, Options
from workbench.ddp.record import Recorder, State
from workbench.ddp.rules import rule
from workbench.ddp.wire import Channel

SAMPLES = 20
_here = threading.local()


@dataclass(frozen=True)
class Paired(Environment):
    """Environment of a rank whose master is in this process."""

    address: str = "pair"
    master: Any = field(default=None)

    def connect(self, timeout: float = 0.0) -> tuple[Channel, str]:
        mine, other = socket.socketpair()
        mine.settimeout(REPLY_TIMEOUT_S)
        threading.Thread(target=self.master.serve, args=(Channel(other),), daemon=True).start()
        return Channel(mine), ""


def run(
    scripts: Sequence[Callable[[], Any]],
    scheme: str = "UMW",
    state: State | None = None,
    recorder: Recorder | None = None,
    options: Options | None = None,
    **args: Any,
) -> tuple[Master, list[Any]]:
    """Run one script for each rank, and return the master and what the scripts return.

    `state`: that of a checkpoint. `args`: parameters of the scheme.
    """
    ranks = len(scripts)
    master = Master(rule(scheme, args, ranks), recorder or Recorder(None), options or Options(), state)

    def rank(number: int) -> Any:
        _here.environment = Paired(number, ranks, scheme, args, check_every=1, master=master)
        return scripts[number]()

    with ThreadPoolExecutor(ranks) as pool:
        return master, [each.result() for each in [pool.submit(rank, number) for number in range(ranks)]]


def environment_of_thread() -> Environment:
    """Return the environment of the rank in this thread. Tests put it in place of `environment.read`."""
    return _here.environment


def ended(job: Job) -> None:
    """End the script of a rank, as at the exit of its process."""
    atexit.unregister(job._finish)
    job._finish()


def small(loader_size: int = 10, rate: float = 0.1, seed: int = 0) -> tuple[nn.Module, Any, DataLoader[Any]]:
    """Return a model, its optimiser, and a loader in order. An epoch has `SAMPLES` samples."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(2, 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    data = TensorDataset(
        torch.randn(SAMPLES, 2, generator=generator), torch.randn(SAMPLES, generator=generator)
    )
    return model, torch.optim.SGD(model.parameters(), rate), DataLoader(data, batch_size=loader_size)


def losses(model: nn.Module, x: Any, y: Any) -> Any:
    """Return the losses of samples."""
    return (model(x)[:, 0] - y).square()


def train(job: Job, model: nn.Module, optimiser: torch.optim.Optimizer, x: Any, y: Any) -> None:
    """Do one step of a script."""
    optimiser.zero_grad()
    job.backward(losses(model, x, y))
    optimiser.step()

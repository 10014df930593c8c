"""Real jobs of PyTorch's DistributedDataParallel over gloo, with a fault that is switched on and off.

Ranks are processes, forked from one that has imported PyTorch. A fault is on in every other block of steps. So the
steps without it are measured in the same job, at almost the same time. Only the steps with the fault are diagnosed.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import workbench as wb
from workbench.analysis.recorder.record import Recorder
from workbench.analysis.recordings import Recording

RANKS, NAP = 4, 0.2  # number of ranks; sleep of the slow rank, s
WIDTH, BATCH = 320, 32
DEVICE_CYCLES_PER_S = 1.9e9  # clock of the device during a fault, about
WARM = 6  # number of first steps, which are ignored
DRAWS = 1000  # number of draws of blocks for an interval
PROBE_EVERY = 6  # steps between two probes of the links
NEW_NETWORK = 0x40000000  # CLONE_NEWNET
SLOW_LINK = "rate {}mbit burst 128kb latency 1s"  # a queue of the kernel that limits the bandwidth


@dataclass(frozen=True)
class Job:
    """One job.

    `fault`: backward, forward, loader, link, lengths (each rank's sequences differ), or "" (healthy). `who`: slow rank.
    `blocks`: blocks with the fault, each followed by one without. `steps`: of a block. The fault "kernel" makes a CUDA
    device busy in the backward pass. `mbit`: bandwidth of the slow link, Mbit/s. `usual`: that of the
    others, 0 if the kernel does not limit them. `width`: of the network's layers.
    """

    fault: str = ""
    who: int = 2
    ranks: int = RANKS
    blocks: int = 12
    steps: int = 3
    nap: float = NAP
    accumulate: int = 1
    overlap: bool = False
    profiler: bool = False
    device: str = "cpu"
    mbit: int = 100
    usual: int = 400
    width: int = WIDTH

    @property
    def count(self) -> int:
        """Number of all steps."""
        return WARM + 2 * self.blocks * self.steps

    def is_faulty(self, step: int) -> bool:
        """Return whether the fault is on in a step."""
        return step >= WARM and (step - WARM) // self.steps % 2 == 0

    def is_settled(self, step: int) -> bool:
        """Return whether a step counts.

        The first of a block begins while ranks leave the one before. In the last step of all, the profiler writes.
        """
        return step >= WARM and (step - WARM) % self.steps > 0 and step < self.count - 1


class Switch:
    """Whether the fault is on, in this rank."""

    on = False


class Sleepy(nn.Module):
    """Identity that sleeps in its forward or backward pass while the fault is on."""

    def __init__(self, switch: Switch, where: str, nap: float) -> None:
        super().__init__()
        self.switch, self.where, self.nap = switch, where, nap

    def forward(self, x: Tensor) -> Tensor:
        if self.where == "forward" and self.switch.on:
            time.sleep(self.nap)
        if self.where in ("backward", "kernel") and x.requires_grad:
            x.register_hook(self._slept)
        return x

    def _slept(self, _: Tensor) -> None:
        if self.switch.on and self.where == "kernel":
            torch.cuda._sleep(int(self.nap * DEVICE_CYCLES_PER_S))
        elif self.switch.on:
            time.sleep(self.nap)


class Samples(Dataset[tuple[Tensor, Tensor]]):
    """Random samples; the first one of each batch takes long to load while the fault is on."""

    def __init__(self, job: Job, rank: int, switch: Switch, nap: float) -> None:
        self.job, self.switch, self.nap = job, switch, nap
        self.x = torch.randn(BATCH, job.width, generator=torch.Generator().manual_seed(rank))

    def __len__(self) -> int:
        return self.job.count * self.job.accumulate * BATCH

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        if place % BATCH == 0 and self.job.fault == "loader" and self.switch.on:
            time.sleep(self.nap)
        return self.x[place % BATCH], torch.tensor(place % 10)


class Sequences(Dataset[Tensor]):
    """Sequences of token ids, in batches of one; their lengths differ while the fault is on."""

    def __init__(self, job: Job, rank: int, switch: Switch) -> None:
        self.job, self.switch = job, switch
        self.rng = np.random.default_rng((rank, job.who))

    def __len__(self) -> int:
        return self.job.count

    def __getitem__(self, place: int) -> Tensor:
        length = int(self.rng.choice([64, 128, 256, 512])) if self.switch.on else 240
        return torch.randint(0, 50, (length,), generator=torch.Generator().manual_seed(place))


class Reader(nn.Module):
    """A small transformer that predicts the tokens it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 96)
        self.layers = nn.TransformerEncoderLayer(96, 4, 256, dropout=0.0, batch_first=True)
        self.last = nn.Linear(96, 50)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.embedding(x)))


def network(job: Job, switch: Switch, mine: bool) -> nn.Module:
    """Return the network of a rank: a `Reader` for the fault "lengths", otherwise one with BatchNorm.

    With BatchNorm, DDP also waits for rank 0 before each forward pass.
    """
    if job.fault == "lengths":
        return Reader()
    torch.manual_seed(0)
    nap = job.nap / job.accumulate if mine else 0.0
    layers: list[nn.Module] = []
    for place in range(8):
        layers += [nn.Linear(job.width, job.width), nn.ReLU()]
        if place == 3 and mine and job.fault in ("backward", "forward", "kernel"):
            layers.append(Sleepy(switch, job.fault, nap))
    layers.insert(2, nn.BatchNorm1d(job.width))
    return nn.Sequential(*layers, nn.Linear(job.width, 10))


def loss_of(module: nn.Module, batch: Any, device: str) -> Tensor:
    """Return the loss of a batch."""
    x, y = (each.to(device) for each in ((batch, batch) if isinstance(batch, Tensor) else batch))
    found = module(x)
    return nn.functional.cross_entropy(found.reshape(-1, found.shape[-1]), y.reshape(-1))


def train(job: Job, rank: int, folder: Path) -> None:
    """Train as one rank, and write when each step began and ended, without the probes of links before it."""
    torch.set_num_threads(1)
    switch, mine = Switch(), rank == job.who or job.fault == "lengths"
    module = DistributedDataParallel(
        network(job, switch, mine).to(job.device), bucket_cap_mb=1 if job.overlap else 25
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    loader: Any = (
        DataLoader(Sequences(job, rank, switch), batch_size=1)
        if job.fault == "lengths"
        else DataLoader(Samples(job, rank, switch, job.nap / job.accumulate if mine else 0.0), BATCH)
    )
    if job.fault == "link" and job.usual:
        limit_link(rank, job.usual)
    batches, moments = iter(loader), list[tuple[float, float]]()
    for step in range(job.count):
        on = job.is_faulty(step) and bool(job.fault) and mine
        if on != switch.on:
            switch.on = on
            if job.fault == "link":
                limit_link(rank, job.mbit if on else job.usual)
        if job.fault in ("", "link") and not job.profiler and (step - WARM) % PROBE_EVERY == 1:
            recorders[0].probe_links()
        begun = time.monotonic()
        for micro in range(job.accumulate):
            last = micro == job.accumulate - 1
            with nullcontext() if last else module.no_sync():
                loss_of(module, next(batches), job.device).backward()
        optimiser.step()
        optimiser.zero_grad()
        yielded(step)
        moments.append((begun, time.monotonic()))
    (folder / f"moments-{rank}.json").write_text(json.dumps(moments))


recorders: list[Recorder] = []
_after_step: list[Callable[[], None]] = []


def yielded(step: int) -> None:
    """End a step of the profiler, if there is one."""
    for tell in _after_step:
        tell()


@contextmanager
def observed(job: Job, folder: Path) -> Iterator[None]:
    """Record the block with the recorder, or with PyTorch's profiler."""
    if not job.profiler:
        with wb.record(folder / "record") as recorder:
            recorders.append(recorder)
            yield
        return
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

    handler = tensorboard_trace_handler(str(folder / "record"))
    plan = schedule(wait=1, warmup=1, active=job.count - 2)
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (job.device == "cuda")]
    with profile(activities=activities, schedule=plan, on_trace_ready=handler) as found:
        _after_step.append(found.step)
        yield


def rank_process(job: Job, rank: int, folder: Path, ready: Any) -> None:
    """Run one rank in this process."""
    try:
        os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        if job.fault == "link":
            join_network(rank, ready)
        store = distributed.FileStore(str(folder / "store"), job.ranks)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=job.ranks)
        with observed(job, folder):
            train(job, rank, folder)
        distributed.barrier()
        distributed.destroy_process_group()
    except BaseException:
        (folder / f"error-{rank}.txt").write_text(traceback.format_exc())
        raise


def run(job: Job, folder: Path) -> None:
    """Run a job into a folder. Raise `RuntimeError` if a rank fails."""
    folder.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    ready = [context.Pipe() for _ in range(job.ranks)]
    ranks = [
        context.Process(target=rank_process, args=(job, rank, folder, ready[rank][1]), daemon=True)
        for rank in range(job.ranks)
    ]
    for process in ranks:
        process.start()
    try:
        if job.fault == "link":
            make_network([process.pid or 0 for process in ranks], [each[0] for each in ready])
        for process in ranks:
            process.join()
    finally:
        for process in ranks:
            process.kill()
    if errors := sorted(folder.glob("error-*.txt")):
        raise RuntimeError(errors[0].read_text())


@dataclass(frozen=True)
class Measured:
    """Result of a job: the recording of the steps with the fault, and mean seconds of a step with and without it.

    `band`: 90 % interval of their ratio, from draws of whole blocks. It is wide if other programs use the cores.
    """

    job: Job
    recording: Recording
    faulty: float
    healthy: float
    band: tuple[float, float]

    @property
    def ratio(self) -> float:
        """Mean step with the fault over that without."""
        return self.faulty / self.healthy

    @property
    def saving(self) -> float:
        """Share of the time that removing the fault saves."""
        return 1 - self.healthy / self.faulty


def measured(job: Job, folder: Path) -> Measured:
    """Read the files of a job. Without a fault, all blocks are diagnosed."""
    moments = np.array([json.loads(file.read_text()) for file in sorted(folder.glob("moments-*.json"))])
    took = np.diff(moments, axis=2).mean(axis=(0, 2))
    on = np.array([job.is_settled(step) and job.is_faulty(step) for step in range(job.count)])
    off = np.array([job.is_settled(step) and not job.is_faulty(step) for step in range(job.count)])
    whole = wb.traces.load(folder / "record")
    chosen = np.flatnonzero(on if job.fault else on | off)
    frame = whole.frame[whole.frame["step"].isin(chosen)].reset_index(drop=True)
    pairs = (np.arange(job.count) - WARM) // (2 * job.steps)  # blocks with the fault, and those after them
    sums = [[took[each & (pairs == pair)].sum() for each in (on, off)] for pair in range(job.blocks)]
    counts = [[(each & (pairs == pair)).sum() for each in (on, off)] for pair in range(job.blocks)]
    draws = np.random.default_rng(0).integers(0, job.blocks, (DRAWS, job.blocks))
    means = np.array(sums)[draws].sum(axis=1) / np.array(counts)[draws].sum(axis=1)
    low, high = np.quantile(means[:, 0] / means[:, 1], (0.05, 0.95)).tolist()
    faulty, healthy = float(took[on].mean()), float(took[off].mean())
    return Measured(job, replace(whole, frame=frame), faulty, healthy, (low, high))


# ---------------------------------------------------------------- a link that is really slow


def join_network(rank: int, ready: Any) -> None:
    """Leave the network of the machine, and wait until this rank has an interface of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "a rank cannot have its own network")
    ready.send("apart")
    ready.recv()
    os.environ["GLOO_SOCKET_IFNAME"] = f"rank{rank}"


def make_network(pids: list[int], ready: list[Any]) -> None:
    """Connect the ranks, each in a network of its own, by a bridge in the network of rank 0."""
    for each in ready:
        each.recv()
    inside = ["nsenter", f"--net=/proc/{pids[0]}/ns/net"]
    command(*inside, "ip", "link", "set", "lo", "up")
    command(*inside, "ip", "link", "add", "bridge", "type", "bridge")
    command(*inside, "ip", "link", "set", "bridge", "up")
    for rank, pid in enumerate(pids):
        mine = ["nsenter", f"--net=/proc/{pid}/ns/net"]
        name = f"rank{rank}"
        command(*inside, "ip", "link", "add", f"port{rank}", "type", "veth", "peer", "name", "new")
        command(*inside, "ip", "link", "set", f"port{rank}", "master", "bridge", "up")
        command(*inside, "ip", "link", "set", "new", "name", name)
        if rank:
            command(*inside, "ip", "link", "set", name, "netns", str(pid))
        command(*mine, "ip", "address", "add", f"10.9.0.{rank + 1}/24", "dev", name)
        command(*mine, "ip", "link", "set", name, "up")
    for each in ready:
        each.send("connected")


def limit_link(rank: int, mbit: int) -> None:
    """Limit the bandwidth of this rank's messages to `mbit` Mbit/s. 0 removes the limit."""
    what = ["replace", "dev", f"rank{rank}", "root", "tbf", *SLOW_LINK.format(mbit).split()]
    command("tc", "qdisc", *(what if mbit else ["del", "dev", f"rank{rank}", "root"]))


def command(*texts: str) -> None:
    subprocess.run(texts, check=True, capture_output=True)

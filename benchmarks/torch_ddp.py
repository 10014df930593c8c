"""Compare codes in a script of torchrun with PyTorch's DistributedDataParallel (DDP).

    python benchmarks/torch_ddp.py [speed] [sleeper] [loss] [death] [forecast] [--steps 60] [--repeats 3] [--batch 16]
                                   [--device cpu | cuda]

Both have eight ranks with one thread each, a transformer of a million parameters in float32, Adam, the same
mini-batches of the same text, and the same cores. DDP uses gloo. Nothing is emulated: in "sleeper", rank 3 sleeps 200
ms per step. Measurements of the two alternate. `--steps` is for speed and sleeper. Loss and death have 200 steps. With
`--device cuda`, all ranks share the CUDA devices of this machine.

Goals: the uncoded scheme makes 0.9 of DDP's steps a second. With the sleeper, DDP's step takes 200 ms longer, and GC's
at most 5 % longer. The loss after 200 steps is within the spread of two runs of DDP. After a death, the job completes
200 steps with status 0. Forecasts are within 15 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

RANKS, SLEEPER, VICTIM = 8, 3, 5
WARM_STEPS, NAP_S, LONG_STEPS, DEATH_STEP = 8, 0.2, 200, 20
SAMPLES, RATE = 512, 1e-3
DEVICE = os.environ.get("DEVICE", "cpu")  # of a rank's network
ROOT, HERE = Path(__file__).resolve().parents[1], Path(__file__).resolve()
SCHEMES = {
    "uncoded": ["--scheme", "UMW"],
    "GC": ["--scheme", "GC", "--set", "stragglers=1"],
    "GC fractional": ["--scheme", "GC", "--set", "stragglers=1", "--set", "code=fractional"],
    "IS-GC": ["--scheme", "IS-GC", "--set", "replication=2", "--set", "wait_for=7"],
    "backup": ["--scheme", "Backup", "--set", "stragglers=1"],
    "local SGD": ["--scheme", "LocalSGD", "--set", "local_steps=8"],
    "H-SGD": ["--scheme", "H-SGD", "--set", "local_steps=8", "--set", "levels=[[2, 2]]"],
}


# ---------------------------------------------------------------- the script


def pieces() -> tuple[nn.Module, DataLoader]:
    """Return the transformer of the examples, and a loader of pieces of text."""
    sys.path.insert(0, str(ROOT / "examples"))
    import networks

    torch.manual_seed(0)
    data = TensorDataset(*networks.text(SAMPLES))
    loader = DataLoader(data, batch_size=int(os.environ["BATCH"]), shuffle=True, drop_last=True)
    return networks.million().to(DEVICE), loader


def misbehave(rank: int, step: int) -> None:
    """Sleep or die, if this rank has the fault."""
    if rank == SLEEPER and os.environ.get("SLEEPY"):
        time.sleep(NAP_S)
    if rank == VICTIM and step == int(os.environ.get("DEATH", "-1")):
        os.kill(os.getpid(), signal.SIGKILL)


def loss_of(model: nn.Module, x: Tensor, y: Tensor, rank: int, step: int) -> Tensor:
    """Return the losses of the samples, (samples, places)."""
    scores = model(x)
    misbehave(rank, step)
    return nn.functional.cross_entropy(scores, y, reduction="none")


class Log:
    """Ends of steps and losses of one rank of DDP."""

    def __init__(self, rank: int) -> None:
        self.path = Path(os.environ["OUT"]) / f"log-{rank}.json"
        self.ends: list[float] = []
        self.losses: list[float] = []

    def step(self, loss: float) -> None:
        self.ends.append(time.monotonic())
        self.losses.append(loss)

    def write(self) -> None:
        self.path.write_text(json.dumps({"ends": self.ends, "losses": self.losses}))


def train_ddp(steps: int) -> None:
    """Train as one rank of DDP, on its share of the batches of a job."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from workbench.ddp.batches import JobBatches

    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    place = (rank + int(os.environ.get("SHIFT", "0"))) % RANKS  # which share: changes the order of sums only
    net, loader = pieces()
    batches, log = JobBatches(loader, seed=0), Log(rank)
    model = DistributedDataParallel(net)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    for step in range(steps):
        rows = batches.of(step)
        share = torch.as_tensor(np.array_split(np.asarray(rows), RANKS)[place])
        x, y = (tensor[share].to(DEVICE) for tensor in loader.dataset.tensors)
        optimiser.zero_grad()
        loss = loss_of(model, x, y, rank, step).mean()
        loss.backward()
        optimiser.step()
        log.step(float(loss.detach()))
        if rank == 0 and "DEATH" in os.environ:
            log.write()
    mine = torch.tensor(log.losses)
    distributed.all_reduce(mine)
    log.losses = (mine / RANKS).tolist()
    if rank == 0:
        log.write()
    distributed.destroy_process_group()


def train_coded(steps: int) -> None:
    """Train as one rank of a job with a scheme."""
    from workbench import ddp

    net, loader = pieces()
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    job = ddp.prepare(net, optimiser, loader)
    for x, y in job.until(steps):
        optimiser.zero_grad()
        job.backward(loss_of(net, x.to(DEVICE), y.to(DEVICE), job.rank, job.step))
        optimiser.step()


# ---------------------------------------------------------------- jobs


@dataclass
class Ended:
    """An ended job: exit status, seconds of each step after the first few, losses, and the ranks' times."""

    status: int
    seconds: list[float]
    losses: list[float]
    times: list[dict[str, str]]


def job(
    side: str, steps: int, batch: int, shift: int = 0, sleepy: bool = False, death: bool = False
) -> Ended:
    """Run a job of torchrun until its end."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "job"
        command = [
            *start,
            *([] if side == "DDP" else ["-m", "workbench.ddp", *SCHEMES[side], "--folder", str(log)]),
        ]
        command += [str(HERE), "--train", side, "--steps", str(steps)]
        env = {**os.environ, "OUT": folder, "BATCH": str(batch), "OMP_NUM_THREADS": "1", "SHIFT": str(shift)}
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env |= {"PYTHONPATH": path, "GLOO_SOCKET_IFNAME": "lo"}
        env |= {"SLEEPY": "1"} if sleepy else {}
        env |= {"DEATH": str(DEATH_STEP)} if death else {}
        quiet = subprocess.DEVNULL if death else None
        status = subprocess.run(command, env=env, check=False, stderr=quiet, stdout=quiet).returncode
        return ended(status, Path(folder)) if side == "DDP" else ended_coded(status, log)


def ended(status: int, folder: Path) -> Ended:
    """Return the job from the log of rank 0 of DDP."""
    file = folder / "log-0.json"
    found = json.loads(file.read_text()) if file.exists() else {"ends": [], "losses": []}
    return Ended(status, [b - a for a, b in pairwise(found["ends"][WARM_STEPS:])], found["losses"], [])


def ended_coded(status: int, folder: Path) -> Ended:
    """Return the job from the master's files. Steps of local schemes are those between two averages."""
    rows = list(csv.DictReader((folder / "steps.csv").open()))
    ends = [(int(row["step"]), float(row["time"])) for row in rows if int(row["step"]) > WARM_STEPS]
    seconds = [(b - a) / (j - i) for (i, a), (j, b) in pairwise(ends)]
    times = list(csv.DictReader((folder / "times.csv").open()))
    return Ended(status, seconds, [float(row["loss"]) for row in rows], times)


def turns(sides: list[tuple[str, bool]], args: argparse.Namespace) -> dict[tuple[str, bool], list[Ended]]:
    """Return the jobs of each side, with or without a sleeper. Every other turn is in reverse order."""
    found: dict[tuple[str, bool], list[Ended]] = {side: [] for side in sides}
    for turn in range(args.repeats):
        for name, sleepy in sides[:: 1 if turn % 2 == 0 else -1]:
            done = job(name, args.steps, args.batch, sleepy=sleepy)
            found[name, sleepy].append(done)
            what = f"{name}{' with a sleeper' if sleepy else ''}"
            print(
                f"  turn {turn + 1} {what:28s} status {done.status}, step: mean {1e3 * mean(done.seconds):.0f} ms,"
                f" median {1e3 * median(done.seconds):.0f} ms   load of the machine {os.getloadavg()[0]:.0f}",
                flush=True,
            )
    return found


def ratios(over: list[Ended], under: list[Ended]) -> Iterator[float]:
    """Return ratios of mean steps, turn by turn."""
    return (mean(a.seconds) / mean(b.seconds) for a, b in zip(over, under, strict=True))


def speed(args: argparse.Namespace) -> None:
    print("steps a second over DDP's, nothing sleeps; goal: uncoded 0.9", flush=True)
    names = ["DDP", *(SCHEMES if args.all else ("uncoded", "GC"))]
    found = turns([(name, False) for name in names], args)
    for name in names[1:]:
        each = sorted(ratios(found["DDP", False], found[name, False]))
        print(f"  {name}: {median(each):.2f} ({', '.join(f'{ratio:.2f}' for ratio in each)})")


def sleeper(args: argparse.Namespace) -> None:
    print("rank 3 sleeps 200 ms a step; goals: DDP 200 ms longer, GC at most 5 % longer", flush=True)
    names = ["DDP", *(SCHEMES if args.all else ("GC",))]
    found = turns([(name, naps) for name in names for naps in (False, True)], args)
    for name in names:
        plain, late = found[name, False], found[name, True]
        longer = [mean(b.seconds) - mean(a.seconds) for a, b in zip(plain, late, strict=True)]
        print(f"  {name}: {1e3 * median(longer):+.0f} ms, {median(ratios(late, plain)):.2f} times as long")


def loss(args: argparse.Namespace) -> None:
    print("loss after 200 steps on the same batches; goal: within the spread of two runs of DDP", flush=True)
    last = {f"DDP {shift}": job("DDP", LONG_STEPS, args.batch, shift).losses[-1] for shift in (0, 3)}
    spread = abs(last["DDP 0"] - last["DDP 3"])
    for name in ("uncoded", "GC", "GC fractional"):
        last[name] = job(name, LONG_STEPS, args.batch).losses[-1]
    centre = mean((last["DDP 0"], last["DDP 3"]))
    for name, value in last.items():
        print(f"  {name}: {value:.6f}, {value - centre:+.2e} from DDP's mean; spread of DDP {spread:.2e}")


def death(args: argparse.Namespace) -> None:
    print("rank 5 is killed in step 20 of 200; goal: 200 steps, status 0", flush=True)
    for name in ("DDP", "GC", "GC fractional"):
        done = job(name, LONG_STEPS, args.batch, death=True)
        print(f"  {name}: {len(done.losses)} steps, status {done.status}", flush=True)


def forecast(args: argparse.Namespace) -> None:
    """Predict steps from the first job of uncoded and of GC, and compare them with further jobs."""
    print("steps forecast by the simulator, from the times of one healthy job; goal: within 15 %", flush=True)
    profile = {name: job(name, args.steps, args.batch) for name in ("uncoded", "GC")}
    found = turns([(name, naps) for name in profile for naps in (False, True)], args)
    for (name, naps), ended in found.items():
        predicted, measured = (
            simulated(name, profile[name], naps),
            median(mean(done.seconds) for done in ended),
        )
        what = f"{name}{' with a sleeper' if naps else ''}"
        print(
            f"  {what}: forecast {1e3 * predicted:.0f} ms,"
            f" measured {1e3 * measured:.0f} ms, {predicted / measured - 1:+.0%}"
        )


def simulated(name: str, profile: Ended, sleepy: bool) -> float:
    """Return the mean step in the simulator: recorded processor times on shared cores, and the rest of a step.

    The rest of a step is the time beyond the slowest awaited rank, also from the profile: sending, adding up, and the
    optimiser. A rank that sleeps leaves the cores to the others.
    """
    rows = [row for row in profile.times if int(row["step"]) > WARM_STEPS and row["used"] == "1"]
    steps = sorted({int(row["step"]) for row in rows})
    usual = median(float(row["cpu"]) for row in rows)
    alone = np.full((len(steps), RANKS), usual)
    for row in rows:
        alone[int(row["step"]) - steps[0], int(row["worker"])] = float(row["cpu"])
    beside = mean(profile.seconds) - simulated_rounds(name, alone)
    return simulated_rounds(name, alone, NAP_S if sleepy else 0.0) + max(beside, 0.0)


def simulated_rounds(name: str, alone: np.ndarray, nap: float = 0.0) -> float:
    """Return the mean round of the scheme, from times on separate cores, (rounds, ranks), s."""
    import workbench as wb
    from workbench.core.contract.sharing import slowed

    cores = float(len(os.sched_getaffinity(0)))
    awake = np.delete(alone, SLEEPER, axis=1) if nap else alone
    shared = slowed(awake, cores)
    if nap:
        shared = np.insert(shared, SLEEPER, nap + alone[:, SLEEPER], axis=1)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "times.csv"
        rows = [f"{w},{r},{s}" for r, row in enumerate(shared) for w, s in enumerate(row)]
        table.write_text("\n".join(["worker,step,seconds", *rows, ""]))
        scheme, args = ("UMW", {}) if name == "uncoded" else ("GC", {"stragglers": 1})
        delays = {"kind": "replay", "path": str(table), "as_recorded": True}
        e = wb.Experiment(scheme=scheme, scheme_args=args, workers=RANKS, rounds=len(alone), delays=delays)
        return float(np.diff(wb.run(e).rounds["time"], prepend=0).mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["speed", "sleeper", "loss", "death", "forecast"])
    for name, number in (("steps", 60), ("repeats", 3), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--all", action="store_true", help="all schemes, for speed and sleeper")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--train", help=argparse.SUPPRESS)  # run as a rank
    args = parser.parse_args()
    if args.train:
        torch.set_num_threads(1)
        (train_ddp if args.train == "DDP" else train_coded)(args.steps)
        return
    os.environ["DEVICE"] = args.device
    for what in args.what:
        {"speed": speed, "sleeper": sleeper, "loss": loss, "death": death, "forecast": forecast}[what](args)


if __name__ == "__main__":
    main()

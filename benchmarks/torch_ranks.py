"""Compare real runs that train a PyTorch network with DistributedDataParallel (DDP), also with a slow or a dead rank.

    python benchmarks/torch_ranks.py [speed] [sleeper] [death] [--rounds 30] [--repeats 3] [--samples 256]
                                     [--network transformer | digits]

The workbench and DDP both have eight ranks that train, on the same cores, with one thread per rank. They train the same
transformer of a million parameters (or a small convolutional network on the digits) in float32, on the same samples.
DDP uses gloo. Nothing is emulated: in "sleeper", one of the eight ranks sleeps 200 ms per step, and the others can use
its core meanwhile. Measurements of the workbench and of DDP alternate. (A file with the name torch.py would hide
PyTorch, since a script's folder precedes other folders on the path.)
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

RANKS = 8  # number of ranks that train
WARM_UP_ROUNDS = 4  # first rounds that are not counted
SLEEP_S = 0.2  # s that the slow rank sleeps in each step
NETWORKS = Path(__file__).parents[1] / "examples" / "networks.py"
HERE = Path(__file__).resolve()
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def rank() -> int:
    """Return this process's number among the ranks that train, from 1. Return 0 for other processes."""
    if "DDP_RANK" in os.environ:
        return int(os.environ["DDP_RANK"]) + 1
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", 0)))


def network() -> nn.Module:
    """Return the network to train: the transformer of the examples with a million parameters, or their `DigitsNet`."""
    sys.path.insert(0, str(NETWORKS.parent))
    import networks

    return networks.DigitsNet() if digits() else networks.million()


def digits() -> bool:
    """Return whether the small network is chosen."""
    return os.environ.get("DDP_NETWORK") == "digits"


class Sleepy(nn.Module):
    """The network to train, with a forward pass that takes longer on one of the ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        if rank() == 3 and self.training_now():
            time.sleep(SLEEP_S)
        return self.inner(x)

    def training_now(self) -> bool:
        """Return whether gradients are computed. None are computed when the network is tried on a first sample."""
        return torch.is_grad_enabled()


def samples() -> tuple[Tensor, Tensor]:
    """Return inputs and targets of DDP_SAMPLES samples: pieces of text, or digits."""
    sys.path.insert(0, str(NETWORKS.parent))
    import networks

    count = int(os.environ.get("DDP_SAMPLES", "256"))
    if digits():
        X, y = load_digits(return_X_y=True)
        return torch.tensor(X[:count] / 16, dtype=torch.float32), torch.tensor(y[:count])
    return networks.text(count)


# ---------------------------------------------------------------- DistributedDataParallel


def train(rounds: int, sleepy: bool, death: int | None, out: Path) -> None:
    """Train as one rank of DDP, by gradient descent on full batches. Write the time at which each step ended."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank() - 1, world_size=RANKS)
    torch.manual_seed(0)
    module = DistributedDataParallel(Sleepy() if sleepy else network())
    X, y = (part.tensor_split(RANKS)[rank() - 1] for part in samples())
    descent = torch.optim.SGD(module.parameters(), lr=0.05)
    ends = []
    for step in range(rounds):
        if death is not None and step == death and rank() == 3:
            os.kill(os.getpid(), 9)
        descent.zero_grad()
        nn.functional.cross_entropy(module(X), y).backward()
        descent.step()
        ends.append(time.monotonic())
        if rank() == 1:
            out.write_text(json.dumps(ends))
    distributed.destroy_process_group()


def ddp(rounds: int, sleepy: bool = False, death: int | None = None) -> tuple[list[float], list[int]]:
    """Return the seconds of each step of DDP after the first ones, and the exit codes of its processes."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port, out = free.getsockname()[1], Path(folder) / "ends.json"
        free.close()
        texts = [sys.executable, str(HERE), "--train", str(out), "--rounds", str(rounds)]
        texts += ["--sleepy"] * sleepy + (["--death", str(death)] if death is not None else [])
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
        each = {**os.environ, **ONE_THREAD, **where}
        quiet = subprocess.DEVNULL if death is not None else None
        ranks = [
            subprocess.Popen(texts, env={**each, "DDP_RANK": str(r)}, stderr=quiet) for r in range(RANKS)
        ]
        codes = [process.wait() for process in ranks]
        return steps(json.loads(out.read_text())), codes


def steps(ends: list[float]) -> list[float]:
    """Return the seconds of each step after the first `WARM_UP_ROUNDS`. `ends`: time at which each step ended."""
    return [b - a for a, b in zip(ends[WARM_UP_ROUNDS:], ends[WARM_UP_ROUNDS + 1 :], strict=False)]


# ---------------------------------------------------------------- ours


def ours(scheme: str, rounds: int, sleepy: bool = False, death: int | None = None, **args: Any) -> Any:
    """Return the trace of a real run without emulation."""
    import workbench as wb

    e = wb.Experiment(
        scheme=scheme,
        scheme_args=args,
        workers=RANKS,
        rounds=rounds,
        problem="torch",
        problem_args={"module": Sleepy if sleepy else network, "dataset": samples, "device": "cpu"},
        optimiser_args={"step": 0.05},
        faults=[{"worker": 3, "round": death}] if death is not None else (),
    )
    return wb.run(e, engine="mpi", emulate="nothing")


def timed(scheme: str, rounds: int, sleepy: bool = False, **args: Any) -> list[float]:
    """Return the seconds of each round of a real run, after the first `WARM_UP_ROUNDS`."""
    return steps(ours(scheme, rounds, sleepy, **args).rounds["time"].tolist())


SIDES: dict[str, Callable[[int, bool], list[float]]] = {
    "DDP": lambda rounds, sleepy: ddp(rounds, sleepy)[0],
    "UMW": lambda rounds, sleepy: timed("UMW", rounds, sleepy),
    "RAR": lambda rounds, sleepy: timed("RAR", rounds, sleepy),
    "GC": lambda rounds, sleepy: timed("GC", rounds, sleepy, stragglers=1),
}
LOAD = {"GC": 2}


def turns(
    names: list[str], rounds: int, repeats: int, sleepy: tuple[bool, ...]
) -> dict[tuple[str, bool], Any]:
    """Return the step times, s: (name, whether a rank sleeps) -> one list per repetition."""
    found: dict[tuple[str, bool], Any] = {(name, naps): [] for name in names for naps in sleepy}
    for turn in range(repeats):
        for name, naps in _ordered(found, turn):
            took = SIDES[name](rounds, naps)
            found[name, naps].append(took)
            print(
                f"  turn {turn + 1} {name:4s}{' with a sleeper' if naps else '':15s} mean step {mean(took):.3f} s,"
                f" median {median(took):.3f} s   load of the machine {os.getloadavg()[0]:.0f}",
                flush=True,
            )
    return found


def _ordered(names: Any, turn: int) -> Iterator[tuple[str, bool]]:
    """Yield the names, in reverse order in every other repetition, so that other load affects all alike."""
    yield from list(names) if turn % 2 == 0 else list(names)[::-1]


def speed(rounds: int, repeats: int) -> None:
    """Print rounds per second divided by DDP's steps per second: the median and each repetition."""
    print("rounds a second over DDP's, nothing delayed; goal: UMW and RAR 0.8", flush=True)
    found = turns(list(SIDES), rounds, repeats, (False,))
    for name in ("UMW", "RAR", "GC"):
        pairs = zip(found["DDP", False], found[name, False], strict=True)
        ratios = [median(theirs) / median(mine) for theirs, mine in pairs]
        shown = ", ".join(f"{ratio:.2f}" for ratio in sorted(ratios))
        print(f"  {name}: {median(ratios):.2f} ({shown}), with {LOAD.get(name, 1)} times DDP's load")


def sleeper(rounds: int, repeats: int) -> None:
    """Print the mean step with and without a rank that sleeps 200 ms per step."""
    print(
        "one rank of eight sleeps 200 ms a step; goals: GC within 5 % of itself, DDP 200 ms longer",
        flush=True,
    )
    found = turns(["DDP", "GC"], rounds, repeats, (False, True))
    for name in ("DDP", "GC"):
        pairs = list(zip(found[name, False], found[name, True], strict=True))
        longer = [mean(late) - mean(plain) for plain, late in pairs]
        ratios = [mean(late) / mean(plain) for plain, late in pairs]
        print(f"  {name}: mean step {1e3 * median(longer):+.0f} ms, {median(ratios):.2f} times as long")


def death(rounds: int, repeats: int) -> None:
    """Kill a rank in its tenth step. Print how many rounds each side completes."""
    took, codes = ddp(rounds, death=10)
    done = WARM_UP_ROUNDS + 1 + len(took)
    print(
        f"a rank is killed in step 10: DDP ends after {done} of {rounds} steps, its processes' codes {codes}"
    )
    for scheme, args in (("GC", {"stragglers": 1}), ("FRC", {"replication": 2, "wait_for": 7})):
        trace = ours(scheme, rounds, death=10, **args)
        print(
            f"  {scheme} does {len(trace.rounds)} of {rounds} rounds, loss {trace.rounds['loss'].iloc[-1]:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=["speed", "sleeper", "death"])
    for name, number in (("rounds", 30), ("repeats", 3), ("samples", 256)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--network", choices=["transformer", "digits"], default="transformer")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)  # run as a rank of DDP
    parser.add_argument("--sleepy", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--death", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.rounds, args.sleepy, args.death, args.train)
        return
    os.environ |= {"DDP_SAMPLES": str(args.samples), "DDP_NETWORK": args.network}
    for what in args.what:
        {"speed": speed, "sleeper": sleeper, "death": death}[what](args.rounds, args.repeats)


if __name__ == "__main__":
    main()

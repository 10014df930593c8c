"""Measure the cost of `wb.record`, as a share of a step of about 20 ms.

    python benchmarks/recorder.py [--steps 400] [--repeats 7] [--device cpu | cuda]

A network is trained with and without the recorder, in alternating blocks of steps, in one process with one thread.
Each turn has a block of steps with the recorder and one without. The median steps of the two blocks are compared. The
goal is less than 1 %. The recorder's own calls are also timed alone, without the network. That time hardly depends on
other load of the machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import workbench as wb

WIDTH, BATCH, LAYERS = 512, 64, 12
STEP_S = 0.02  # duration of the step to which the cost is compared, s


class Training:
    """A network, its optimiser and its batches."""

    def __init__(self, width: int, layers: int, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        inside = [part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())]
        self.network = nn.Sequential(*inside, nn.Linear(width, 10)).to(device)
        self.optimiser = torch.optim.SGD(self.network.parameters(), lr=1e-3)
        self.data = TensorDataset(torch.randn(BATCH, width), torch.randint(0, 10, (BATCH,)))

    def steps(self, count: int) -> list[float]:
        """Return the seconds of every step."""
        found, loader = [], DataLoader(self.data, BATCH)
        for _ in range(count):
            begun = time.perf_counter()
            x, y = (each.to(self.device) for each in next(iter(loader)))
            nn.functional.cross_entropy(self.network(x), y).backward()
            self.optimiser.step()
            self.optimiser.zero_grad()
            if self.device == "cuda":
                torch.cuda.synchronize()
            found.append(time.perf_counter() - begun)
        return found


def in_turns(training: Training, steps: int, repeats: int) -> list[tuple[float, float]]:
    """Return median seconds of a step without the recorder and with it, for every turn."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            without, with_ = [], []
            for _ in range(steps // 20):
                without += training.steps(10)
                with wb.record(Path(folder) / str(turn), every=1.0):
                    with_ += training.steps(11)[1:]
            found.append((median(without), median(with_)))
    return found


def own_calls(device: str, count: int = 2000) -> float:
    """Return the processor seconds of the recorder's calls for one step, without any work of a network."""
    parameter = torch.zeros(1, requires_grad=True, device=device)
    optimiser = torch.optim.SGD([parameter], lr=0.0)

    def took() -> float:
        begun = time.thread_time()
        for _ in range(count):
            (parameter * 1.0).backward()
            optimiser.step()
        return (time.thread_time() - begun) / count

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(7):
            without = took()
            with wb.record(Path(folder) / str(turn)):
                found.append(took() - without)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    width, layers = (WIDTH, LAYERS) if args.device == "cpu" else (8 * WIDTH, 3 * LAYERS)
    training = Training(width, layers, args.device)
    training.steps(20)
    turns = in_turns(training, args.steps, args.repeats)
    shares = sorted(with_ / without - 1 for without, with_ in turns)
    usual = median(without for without, _ in turns)
    band = f"{shares[0]:+.2%} to {shares[-1]:+.2%}"
    print(f"a step of {1e3 * usual:.1f} ms takes {median(shares):+.2%} with the recorder ({band})")
    calls = own_calls(args.device)
    print(
        f"its calls alone take {1e6 * calls:.0f} µs a step, {calls / STEP_S:.2%} of {1e3 * STEP_S:.0f} ms; goal: 1 %"
    )


if __name__ == "__main__":
    main()

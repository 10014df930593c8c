"""Compare gradients of networks on a CUDA device with those on the processor, and their times.

    python benchmarks/devices.py [--repeats 5] [--samples 64] [--channels 32]

A gradient is that of a worker's part, with the whole data on the device. Its error is relative to the largest value of
the processor's gradient. "equal bits": whether the device returns the same bits for the same samples. Times include the
copies of the model and of the gradient between the device and NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import workbench as wb
from workbench.core.contract.problem import Problem

EXAMPLES = Path(__file__).parents[1] / "examples" / "networks.py"
NETWORKS: dict[str, dict[str, Any]] = {
    "cnn": {"problem": "cnn"},
    "transformer": {
        "problem": "torch",
        "problem_args": {"module": f"{EXAMPLES}:million", "dataset": f"{EXAMPLES}:text"},
    },
    "resnet18": {"problem": "resnet18"},
    "resnet18, BatchNorm": {"problem": "resnet18", "problem_args": {"batch_norm": "local"}},
}


def problem(kind: str, precision: str, device: str, channels: int) -> Problem:
    """Return a problem on a device. `channels`: those of ResNet-18."""
    chosen = NETWORKS[kind]
    args = {**chosen.get("problem_args", {}), "precision": precision, "device": device}
    if chosen["problem"] == "resnet18":
        args |= {"channels": channels, "samples": 1024}
    e = wb.Experiment(scheme="UMW", workers=4, rounds=1, problem=chosen["problem"], problem_args=args)
    return e.build_problem()


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median seconds of a call, after one that is not counted."""
    work()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return median(found)


def gradients(options: argparse.Namespace) -> None:
    """Print error and time of a gradient on the device."""
    print(
        f"{'network':20} {'precision':9} {'parameters':>10} {'error':>8} {'equal bits':>10} {'CPU s':>7} {'CUDA s':>7}"
    )
    for kind in NETWORKS:
        for precision in ("float32", "float64"):
            found, took, again = {}, {}, True
            for device in ("cpu", "cuda"):
                one = problem(kind, precision, device, options.channels)
                part = [(0, min(options.samples, one.samples), 1.0)]
                model = one.start()
                found[device] = one.gradient(part, model)
                took[device] = seconds(partial(one.gradient, part, model), options.repeats)
                again = again and np.array_equal(found[device], one.gradient(part, model))
            error = np.abs(found["cuda"] - found["cpu"]).max() / np.abs(found["cpu"]).max()
            print(
                f"{kind:20} {precision:9} {len(found['cpu']):10,} {error:8.1e} {again!s:>10} {took['cpu']:7.3f}"
                f" {took['cuda']:7.4f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=64, help="samples of a gradient")
    parser.add_argument("--channels", type=int, default=32, help="channels of the first stage of ResNet-18")
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {torch.get_num_threads()} threads")
    gradients(options)


if __name__ == "__main__":
    main()

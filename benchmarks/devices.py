"""Compare networks on a CUDA device with the same networks on the processor: gradients, runs, and time of a gradient.

    python benchmarks/devices.py [--repeats 5]

A gradient is that of a worker's part, with the whole data on the device. Its error is relative to the largest value of
the processor's gradient. "equal bits": whether the device returns the same bits for the same samples. The runs compare
the models of an exact code with those of the uncoded scheme, both on the device. Times include the copies of the model
and of the gradient between the device and NumPy.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import workbench as wb
from workbench.core.contract.problem import Problem

EXAMPLES = Path(__file__).parents[1] / "examples" / "networks.py"
RESNET = {"channels": 32, "samples": 512}
NETWORKS: dict[str, dict[str, Any]] = {
    "cnn": {"problem": "cnn"},
    "transformer": {
        "problem": "torch",
        "problem_args": {"module": f"{EXAMPLES}:million", "dataset": f"{EXAMPLES}:text"},
    },
    "resnet18": {"problem": "resnet18", "problem_args": RESNET},
    "resnet18, BatchNorm": {"problem": "resnet18", "problem_args": {**RESNET, "batch_norm": "local"}},
}


def problem(kind: str, precision: str, device: str) -> Problem:
    """Return a problem on a device."""
    chosen = NETWORKS[kind]
    args = {**chosen.get("problem_args", {}), "precision": precision, "device": device}
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
                one = problem(kind, precision, device)
                part = [(0, min(64, one.samples), 1.0)]
                model = one.start()
                found[device] = one.gradient(part, model)
                took[device] = seconds(
                    lambda one=one, part=part, model=model: one.gradient(part, model), options.repeats
                )
                again = again and np.array_equal(found[device], one.gradient(part, model))
            error = np.abs(found["cuda"] - found["cpu"]).max() / np.abs(found["cpu"]).max()
            print(
                f"{kind:20} {precision:9} {len(found['cpu']):10,} {error:8.1e} {again!s:>10} {took['cpu']:7.3f}"
                f" {took['cuda']:7.4f}",
                flush=True,
            )


def runs() -> None:
    """Print how far the models of a code are from those of the uncoded scheme, on each device."""
    common: dict[str, Any] = {"workers": 12, "rounds": 20, "batch": 96, "problem": "resnet18", "seed": 3}
    common |= {"optimiser": "sgd", "optimiser_args": {"step": 0.05, "momentum": 0.9}}
    for device in ("cpu", "cuda"):
        args = {"channels": 16, "samples": 1200, "test": 200, "device": device, "crop": 4, "flip": True}
        pair = [
            wb.Experiment(scheme="UMW", problem_args=args, **common),
            wb.Experiment(scheme="GC", scheme_args={"stragglers": 2}, problem_args=args, **common),
        ]
        begun = time.perf_counter()
        uncoded, coded = (trace.columns["loss"] for trace in wb.compare(pair))
        apart = np.abs(coded - uncoded).max() / np.abs(uncoded).max()
        print(
            f"{device}: GC's losses are within {apart:.1e} of UMW's in 20 rounds; {time.perf_counter() - begun:.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {torch.get_num_threads()} threads")
    gradients(options)
    runs()


if __name__ == "__main__":
    main()

"""G-CADA against CADA, D-Adam and D-SGD in the experiment of paper 3: ratios of costs until the training loss is 0.1.

    python benchmarks/adaptive.py [--samples 2000] [--rounds 6000] [--seeds 1] [--rate 0.01] [--scale 0.1]

Linear regression with noiseless targets y = X theta, theta standard normal. X are 28 x 28 pixels from 0 to 1: the
bundled digits, enlarged, at random places. The paper's loss has no factor 1/2.

The paper's c depends on smoothness constants that it does not state. They are measured here, and c is the paper's value
times scale L^2, where L is the smoothness of the whole data set. Scale 0.1 = 1/D makes the right-hand side of the rule
a mean over the last D steps.

Settings: (G, M_G) = (3, 4) as in the paper, (4, 3) and (3, 3), for G groups of M_G workers. In groups of 3,
communication divided by computation is 4/3, as published: 12292 / 9219. "nan": the loss is not reached.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.ndimage import zoom
from sklearn.datasets import load_digits
from tqdm import tqdm

import workbench as wb

ETA, TARGET, BATCH = 1e-4, 0.1 / 2, 100
ADAM = {"beta1": 0.9, "beta2": 0.999}
PUBLISHED = {"time": 0.380 / 0.068, "communication": 19292 / 12292, "computation": 9646 / 9219}


def pixels(samples: int) -> np.ndarray:
    """Return digits of 20 x 20 pixels, each at a random place near the middle of 28 x 28 pixels: (samples, 784)."""
    rng = np.random.default_rng(0)
    digits = zoom(load_digits().images / 16, (1, 2.5, 2.5), order=1)
    canvas = np.zeros((samples, 28, 28))
    for image, which, (a, b) in zip(
        canvas, rng.integers(len(digits), size=samples), rng.integers(2, 7, size=(samples, 2)), strict=True
    ):
        image[a : a + 20, b : b + 20] = digits[which]
    return canvas.reshape(samples, -1)


def write(path: Path, samples: int) -> None:
    """Write the data with noiseless targets in the last column."""
    X = pixels(samples)
    np.save(path, np.column_stack([X, X @ np.random.default_rng(1).standard_normal(784)]))


def settings(c: float) -> Iterator[tuple[str, int, str, dict[str, Any]]]:
    """Yield label, workers, scheme and its parameters. `c`: factor on the paper's c."""
    yield "D-SGD", 12, "D-SGD", {}
    yield "D-Adam", 12, "D-Adam", {}
    yield "CADA", 12, "CADA", {"c": 2.0 * c}
    yield "G-CADA (3,4)", 12, "G-CADA", {"c": 0.3 * c, "groups": 3}
    yield "G-CADA (4,3)", 12, "G-CADA", {"c": 0.3 * c, "groups": 4}
    yield "G-CADA (3,3)", 9, "G-CADA", {"c": 0.3 * c, "groups": 3}


def experiment(
    path: Path, workers: int, scheme: str, args: dict[str, Any], rate: float = 0.01, **fields: Any
) -> wb.Experiment:
    """Return one experiment of the paper. D-SGD has the automatic step, since its mean gradient has another scale."""
    adam = scheme != "D-SGD"
    return wb.Experiment(
        scheme=scheme,
        scheme_args={**args, "worker_batch": BATCH},
        workers=workers,
        problem="least_squares",
        problem_args={"data": str(path), "scale": False},
        optimiser="amsgrad" if adam else "gd",
        optimiser_args={**ADAM, "rate": rate} if adam else {},
        delays={"kind": "exponential", "mean": ETA},
        **fields,
    )


def until_target(trace: wb.Trace) -> dict[str, float]:
    """Return rounds, seconds, messages and mini-batches until the loss is 0.1, or NaN if it never is."""
    rounds = trace.rounds
    reached = np.flatnonzero(rounds["loss"] <= TARGET)
    if not len(reached):
        return dict.fromkeys(("rounds", "time", "communication", "computation", "uploads"), np.nan)
    part = rounds.iloc[: reached[0] + 1]
    uploads = float(part["messages"].sum())
    return {
        "rounds": float(len(part)),
        "time": float(part["time"].iloc[-1]),
        "communication": uploads + float(part["downloads"].sum()),
        "computation": float(part["started"].sum()) / BATCH,
        "uploads": uploads,
    }


def show(costs: dict[str, dict[str, float]]) -> None:
    """Print ratios: the costs of CADA, and of D-Adam, divided by those of each scheme."""
    print(f"\n{'':14}{'CADA over it':^36}{'D-Adam over it':^36}{'communication':>15}{'share':>8}")
    names = ("time", "communication", "computation")
    print(f"{'':14}" + 2 * "".join(f"{n[:10]:>12}" for n in names) + f"{'/ computation':>15}{'asked':>8}")
    for label, cost in costs.items():
        ratios = [costs[base][n] / cost[n] for base in ("CADA", "D-Adam") for n in names]
        of = 12 if label[0] != "G" else int(label[8])
        asked = cost["uploads"] / cost["rounds"] / of
        last = f"{cost['communication'] / cost['computation']:15.4f}{asked:8.2f}"
        print(f"{label:14}" + "".join(f"{x:12.2f}" for x in ratios) + last)
    print(
        f"{'published':14}" + "".join(f"{PUBLISHED[n]:12.2f}" for n in names) + f"{'':36}{12292 / 9219:15.4f}"
    )


def main() -> None:
    """Run every setting with every seed, and print the ratios of the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=6000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--scale", type=float, default=0.1)
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        os.environ["WORKBENCH_CACHE"] = folder
        path = Path(folder) / "pixels.npy"
        write(path, chosen.samples)
        c = chosen.scale * experiment(path, 12, "D-Adam", {}).build_problem().smoothness() ** 2
        found: dict[str, list[dict[str, float]]] = {}
        runs = [(seed, *s) for seed in range(chosen.seeds) for s in settings(c)]
        for seed, label, workers, scheme, args in tqdm(runs, desc="runs", unit="run"):
            e = experiment(path, workers, scheme, args, chosen.rate, rounds=chosen.rounds, seed=seed)
            found.setdefault(label, []).append(until_target(wb.run(e, events=False)))
    show({k: {n: float(np.mean([v[n] for v in vs])) for n in vs[0]} for k, vs in found.items()})


if __name__ == "__main__":
    main()

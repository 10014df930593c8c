"""Hierarchical SGD against synchronous SGD, with stragglers that stall for a second: published speedups."""

from __future__ import annotations

import numpy as np

from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench_book.catalogue import Entry
from workbench_book.setting import Setting
from workbench_book.values import Claim, Line, Result

# s of a training step, s that a straggler adds, training steps between averages over all workers
STEP, STALL, STEPS = (0.055, 1.0, 8)
RATES = {64: 0.02, 128: 0.01, 256: 0.01}  # share of stragglers in a step, by number of workers
LEVELS: dict[int, dict[str, tuple[tuple[int, int], ...]]] = {
    64: {"2-8,4-32,8-64": ((2, 8), (4, 32)), "4-32,8-64": ((4, 32),)},
    128: {"2-8,4-32,8-128": ((2, 8), (4, 32)), "4-32,8-128": ((4, 32),)},
    256: {
        "1-4,2-16,4-64,8-256": ((1, 4), (2, 16), (4, 64)),
        "2-8,4-64,8-256": ((2, 8), (4, 64)),
        "4-16,8-256": ((4, 16),),
    },
}
PUBLISHED = {64: (2.08, 2.45), 128: (2.57, 2.68), 256: (2.63, 3.25)}  # range over the configurations


def experiment(workers: int, scheme: str, args: dict[str, object], steps: int, seed: int) -> Experiment:
    """Return an experiment of `steps` training steps. In each step, a worker stalls with the probability in `RATES`."""
    rate = RATES[workers]
    return Experiment(
        scheme=scheme,
        scheme_args=args,
        workers=workers,
        rounds=steps // int(str(args.get("local_steps", 1))),
        seed=seed,
        problem="unit",
        problem_args={"samples": workers},
        delays={
            "kind": "markov", "shift": STEP, "factor": (STEP + STALL) / STEP, "p_slow": rate, "p_recover": 1 - rate,
        },
    )  # fmt: skip


def speedups(workers: int, steps: int, seed: int) -> dict[str, float]:
    """Return the time of synchronous SGD divided by that of each configuration.

    Local SGD with 2, 4 and 8 steps is included.
    """
    base = float(forecast(experiment(workers, "UMW", {}, steps, seed)).seconds.sum())
    found = {
        f"HSGD {name}": ("H-SGD", {"local_steps": STEPS, "levels": levels})
        for name, levels in LEVELS[workers].items()
    }
    found |= {f"local SGD, {k} steps": ("LocalSGD", {"local_steps": k}) for k in (2, 4, 8)}
    return {
        label: base / float(forecast(experiment(workers, *which, steps, seed)).seconds.sum())
        for label, which in found.items()
    }


def find(setting: Setting) -> Result:
    """Compute the speedups per step, on clusters of all three sizes."""
    steps, seeds = setting.pick(200, 1000), range(setting.seed, setting.seed + setting.pick(2, 5))
    lines, claims, specs = [], list[Claim](), dict[str, Experiment]()
    for done, workers in enumerate(LEVELS, 1):
        runs = [speedups(workers, steps, seed) for seed in seeds]
        means = {label: float(np.mean([run[label] for run in runs])) for label in runs[0]}
        errors = {
            label: float(np.std([run[label] for run in runs], ddof=1)) / len(runs) ** 0.5 for label in means
        }
        ours = sorted((means[label], label) for label in means if label.startswith("HSGD"))
        for what, (value, label), published in (
            ("least", ours[0], PUBLISHED[workers][0]),
            ("most", ours[-1], PUBLISHED[workers][1]),
        ):
            name = f"{workers} workers, {what} speedup: {label}"
            lines.append(
                Line(name, published, {"ours": value}, by="wb.forecast", errors={"ours": errors[label]})
            )
        rest = [label for label in means if label not in (ours[0][1], ours[-1][1])]
        lines += [
            Line(
                f"{workers} workers, {k}",
                None,
                {"ours": means[k]},
                by="wb.forecast",
                errors={"ours": errors[k]},
            )
            for k in rest
        ]
        between = all(means["local SGD, 2 steps"] < value < means["local SGD, 8 steps"] for value, _ in ours)
        text = f"{workers} workers: the speedups are between those of local SGD with 2 steps and with 8"
        listed = ", ".join(f"{label} {value:.3g}" for label, value in means.items())
        claims.append(Claim(text, between, listed, "wb.forecast"))
        name, levels = next(iter(LEVELS[workers].items()))
        args = {"local_steps": STEPS, "levels": levels}
        specs[f"HSGD {name}"] = experiment(workers, "H-SGD", args, steps, setting.seed)
        setting.report(done, len(LEVELS))
    return Result(
        lines=lines,
        claims=claims,
        text=[
            f"A step takes {STEP:g} s, and a straggler {STALL:g} s more: 2 % of 64 workers, and 1 % of 128 and 256,"
            f" drawn in every step. Speedups are per step, over synchronous SGD, in {steps} steps and"
            f" {len(seeds)} seeds. Messages take no time, as the authors call the model too small for that. A"
            " configuration such as 2-8,8-64 averages groups of 8 every 2 steps, and all 64 every 8. The published"
            " ranges do not say which configuration has which speedup; theirs are measured on T4 GPUs.",
        ],
        baseline=1.0,
        reasons={"ours": "messages take no time here, and local SGD inside each host is not counted"},
        specs=specs,
        data=["None: computing times are drawn, and nothing is learnt."],
        seed=setting.seed,
    )


PLACE = (6, 2)
ENTRIES = (Entry("hierarchical", "Speedups of hierarchical SGD with stalls of a second", find, weight=2.0),)

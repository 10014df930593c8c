"""Settings of the comparison in lecture 7: problems, delays, schemes, their parameters, and sizes of mini-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core import schemes
from workbench.core.experiment import Experiment

WORKERS, ROUNDS, TOLERANCE = 12, 60, 0.01
PROBLEMS: dict[str, dict[str, Any]] = {
    "logistic": {
        "problem": "logistic",
        "problem_args": {"data": "breast_cancer", "intercept": True, "l2": 1e-3, "test": 0.2},
    },
    "softmax": {
        "problem": "softmax",
        "problem_args": {"data": "digits", "samples": 750, "l2": 1e-3, "test": 0.2},
    },
    "least squares": {  # condition number 100
        "problem": "numpy",
        "problem_args": {"test": 0.2, "loss_and_gradient": "workbench_lectures.network:squares"},
    },
    "network": {
        "problem": "numpy",
        "problem_args": {
            "data": "digits",
            "samples": 750,
            "test": 0.2,
            "targets": "classes",
            "loss_and_gradient": "workbench_lectures.network:loss_and_gradient",
            "first": "workbench_lectures.network:first",
        },
    },
}
# shares of the data in a round: mini-batches, and all samples. The smallest has at least one sample per worker.
SHARES = (1 / 64, 1 / 16, 1 / 4, 1.0)
ANSWERS = (1, 3, 6, 9, 11)  # numbers of answers, of 12 workers, for each scheme that takes the first k
COSTS = (0.02,)  # time of a message, in units
LEVELS: dict[str, tuple[float, ...]] = {
    "bursts": (2.0, 5.0),  # factor by which a delayed worker takes longer
    "tail": (1.0, 5.0),  # mean of the random time that is added to each share
}
TUNED, TIMED = 2, 10  # number of seeds for tuning, and for timing
FAMILIES: dict[str, tuple[str, ...]] = {  # family -> its schemes, as far as they exist
    "wait for all": ("UMW", "RAR", "CR", "D-SGD"),  # CR: a tree without a code
    "exact code": ("GC", "CR", "M-SGC", "GC-MMC", "UC-MMC", "CEGC"),
    "inexact code": ("FRC", "CRC", "IS-GC", "PGC"),
    "k of n": ("Backup", "SGD", "AdaptiveK", "DBW", "DropCompute"),
    "local steps": ("LocalSGD",),
    "asynchronous": ("ASGD",),
    "own optimiser": ("CADA", "D-Adam"),
}
MINI = {"D-SGD", "D-Adam", "CADA"}  # schemes whose workers draw their own mini-batches
Contender = tuple[str, str]  # family, scheme


def experiment(
    delays: dict[str, Any], cost: float, problem: str = "logistic", share: float = 1.0, **fields: Any
) -> Experiment:
    """Return the common settings. `cost`: time of one message. `share`: share of the data in a mini-batch."""
    common: dict[str, Any] = {"scheme": "UMW", "workers": WORKERS, "rounds": ROUNDS, "delays": delays}
    e = Experiment(**{**common, **PROBLEMS[problem], **fields})
    samples, floats = e.shape()
    link = {"bandwidth": 8.0 * floats / cost, "downloads": True} if cost else {}
    return e.replace(link=link, batch=None if share == 1.0 else batch_of(share, samples))


def batch_of(share: float, samples: int) -> int:
    """Return the samples of a mini-batch with this share of the data, at least one per worker.

    >>> batch_of(1 / 16, 800), batch_of(1 / 64, 455)
    (50, 12)
    """
    return max(WORKERS, int(np.ceil(share * samples - 1e-3)))


def true_share(e: Experiment) -> float:
    """Return the mean share of the data in a mini-batch of an experiment."""
    own = e.scheme_args.get("worker_batch")
    if own is not None:
        return float(own * WORKERS / e.shape()[0])
    return e.sampler.share if e.sampler else 1.0


def unit(problem: str) -> float:
    """Return the samples of an uncoded share, whose time is the unit."""
    return float(experiment({"kind": "constant"}, 0.0, problem).shape()[0] / WORKERS)


def synthetic(delay_model: str, level: float, problem: str = "logistic") -> dict[str, Any]:
    """Return the delays of a cell, in which a share takes 1 without straggling."""
    each = 1.0 / unit(problem)
    if delay_model == "bursts":
        return {"kind": "markov", "shift": each, "p_slow": 0.05, "p_recover": 0.2, "factor": level}
    return {"kind": "shifted_exponential", "shift": each, "rate": unit(problem) / level}


def contenders(only: Sequence[str] = ()) -> list[Contender]:
    """Return families and schemes, as far as they exist. `only`: restrict to these."""
    found = [
        (family, name) for family, names in FAMILIES.items() for name in names if name in schemes.names()
    ]
    return [each for each in found if not only or each[1] in only]


def settings(name: str) -> list[dict[str, Any]]:
    """Return the parameters to try. For schemes that take the first k of n answers, k is from `ANSWERS`."""
    late = [{"stragglers": WORKERS - k} for k in reversed(ANSWERS)]
    repeated = [{"replication": r, "wait_for": k} for r in (2, 3) for k in ANSWERS]
    some: dict[str, list[dict[str, Any]]] = {
        "D-SGD": [{}],
        "Backup": late,
        "AdaptiveK": [{"start": k, "step": 1} for k in ANSWERS],
        "DropCompute": [{"micro_batches": m} for m in (2, 4, 12)],
        "FRC": repeated,
        "CRC": repeated,
        "IS-GC": repeated,
        "PGC": late,
        "M-SGC": [{"burst": 1, "window": 2, **each} for each in late],
        "LocalSGD": [{"local_steps": h} for h in (2, 4, 8)],
        "ASGD": [{"damping": 0.0}],
        "CADA": [{}],
        "D-Adam": [{}],
    }
    return some.get(name) or list(schemes.get(name).candidates(WORKERS))

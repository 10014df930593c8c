"""Comparison of replicas: the samples that several ranks compute in the first step, and the states of all ranks.

A code is exact only if a sample has the same gradient on every rank that computes it. For each sample of its first
pass, a rank reports the loss and a hash of the inputs. Inputs that differ come from a dataset with random
augmentation. Losses that differ come from dropout, or from a normalisation over all samples of a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LOSS_TOLERANCE = 1e-3  # max relative difference of a sample's losses that counts as rounding
Report = Mapping[str, Any]


def first_pass(
    samples: Sequence[int], inputs: Sequence[str], losses: Sequence[float], random: Sequence[str]
) -> Report:
    """Return a rank's report of its first pass.

    `samples`: indices in the data set. `inputs`: hashes of the samples' inputs, or empty. `random`: names of the
    modules that may cause a difference.
    """
    return {"samples": list(samples), "inputs": list(inputs), "losses": list(losses), "random": list(random)}


def disagreement(reports: Mapping[int, Report], tolerance: float = LOSS_TOLERANCE) -> str | None:
    """Return a sentence about a sample on which two ranks differ, or None if they agree.

    It is the first sample with unequal inputs. If there is none, it is the sample whose losses differ most.

    >>> reports = {0: first_pass([7], ["ab"], [1.0], []), 1: first_pass([7], ["cd"], [1.0], [])}
    >>> disagreement(reports).partition(";")[0]
    'sample 7: its inputs differ between ranks 0 and 1'
    """
    seen: dict[int, tuple[int, int]] = {}  # sample -> rank, and position in its report
    worst, found = tolerance, None
    for rank, report in sorted(reports.items()):
        for place, sample in enumerate(report["samples"]):
            first, at = seen.setdefault(sample, (rank, place))
            pair, who = (reports[first], report), f"between ranks {first} and {rank}"
            if first != rank and _inputs(pair[0], at) != _inputs(report, place):
                return f"sample {sample}: its inputs differ {who}; {_KEYED}"
            a, b = pair[0]["losses"][at], report["losses"][place]
            if first != rank and not abs(a - b) <= worst * (1 + abs(a)):
                worst = abs(a - b) / (1 + abs(a))
                found = (
                    f"sample {sample}: its loss is {a:.6g} and {b:.6g}, though its inputs are equal, {who}; "
                )
                found += _cause(report["random"])
    return found


_KEYED = "draw augmentations from torch, numpy or random, whose generators are seeded for each sample, epoch and job"


def _inputs(report: Report, place: int) -> str:
    return report["inputs"][place] if report["inputs"] else ""


def _cause(modules: Sequence[str]) -> str:
    named = ", ".join(modules[:3]) + (f" and {len(modules) - 3} more" if len(modules) > 3 else "")
    where = f"{named}: depends" if modules else "the forward pass depends"
    return (
        f"{where} on random numbers or on the other samples of a pass; take GroupNorm or LayerNorm for BatchNorm, "
        "p = 0 for dropout, or a scheme without replicas, such as Backup"
    )


def unequal_states(states: Mapping[int, Mapping[str, str]]) -> str | None:
    """Return a sentence about the first tensor that differs between ranks, or None.

    `states`: rank -> name of a tensor -> hash.

    >>> unequal_states({0: {"model.w": "ab"}, 1: {"model.w": "ab"}, 2: {"model.w": "cd"}}).partition(";")[0]
    'model.w: differs between ranks 0 and 2'
    """
    first, reference = min(states.items())
    for rank, state in sorted(states.items()):
        names = [name for name in {**reference, **state} if reference.get(name) != state.get(name)]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            why = "change models and optimisers only by the steps of the job"
            return f"{names[0]}{more}: differs between ranks {first} and {rank}; {why}"
    return None


def unequal_scripts(scripts: Mapping[int, Mapping[str, str]]) -> str | None:
    """Return a sentence about models, optimisers or batches that differ between scripts, or None.

    >>> unequal_scripts({0: {"optimiser": "SGD"}, 1: {"optimiser": "Adam"}})
    'optimiser: is SGD at rank 0 and Adam at rank 1; make them equal'
    """
    first = min(scripts)
    for rank, script in sorted(scripts.items()):
        for name, value in script.items():
            if value != (other := scripts[first].get(name)):
                return f"{name}: is {other} at rank {first} and {value} at rank {rank}; make them equal"
    return None


class Comparison:
    """Comparison of ranks' reports as they arrive: first passes of one step, and newest states."""

    def __init__(self, tolerance: float) -> None:
        self.tolerance = tolerance
        # by number of the step, because a script that is started again makes another first pass
        self._passes: dict[int, dict[int, Report]] = {}
        self._states: tuple[int, dict[int, Mapping[str, str]]] = (0, {})

    def add(self, rank: int, header: dict[str, Any]) -> str | None:
        """Move the reports out of an answer's header.

        Return a sentence if they differ from those of other ranks, else None.
        """
        if "pass" in header:
            passes = self._passes.setdefault(header["event"], {})
            passes[rank] = header.pop("pass")
            if why := disagreement(passes, self.tolerance):
                return f"first step: {why}"
        if "states" in header:
            step, found = header.pop("states")
            if step > self._states[0]:
                self._states = (step, {})
            if step == self._states[0]:
                self._states[1][rank] = found
                if why := unequal_states(self._states[1]):
                    return f"after step {step}: {why}"
        return None

"""Properties of problems: the gradient is that of the loss, and the sum of the gradients of its slices."""

from itertools import pairwise
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.checking.property import Case, Property, PropertyFailed
from workbench.core.problems.base import Problem, Request

RELATIVE_DIFFERENCE_STEP = 1e-5  # distance of finite differences, relative to the norm of the model
MAX_RELATIVE_GRADIENT_ERROR = 1e-8  # maximum error of a gradient, relative to its largest component


def _model(problem: Problem, case: Case) -> Array:
    start = np.asarray(problem.start())
    return start + case["far"] * np.random.default_rng(case["seed"]).standard_normal(start.shape)


def _close(found: Array, wanted: Array, what: str) -> None:
    off = float(np.abs(np.asarray(found) - wanted).max() / max(1e-12, float(np.abs(wanted).max())))
    if not off <= MAX_RELATIVE_GRADIENT_ERROR:
        raise PropertyFailed(f"{what}: off by {off:.2g} of its size")


def starts(problem: Problem, case: Case) -> None:
    """Check that the first model has `size` finite numbers, the same in each call."""
    one, two = problem.start(), problem.start()
    if one.shape != (problem.size,):
        raise PropertyFailed(f"`start` gives shape {one.shape}; `size` says ({problem.size},)")
    if not np.array_equal(one, two) or not np.isfinite(one).all():
        raise PropertyFailed("`start` gives other numbers in each call, or numbers that are not finite")


def differences(problem: Problem, case: Case) -> None:
    """Check that sum / d + l2 * model is the gradient of the loss, by finite differences in any direction."""
    model = _model(problem, case)
    direction = np.random.default_rng(case["seed"] + 1).standard_normal(model.shape)
    direction /= float(np.linalg.norm(direction))
    h = RELATIVE_DIFFERENCE_STEP * max(1.0, float(np.linalg.norm(model)))
    up, here, down = problem.evaluate([Request(model + s * h * direction) for s in (1, 0, -1)])
    assert here.gradient is not None
    slope = (here.gradient / problem.samples + problem.l2 * model) @ direction
    found = (up.loss - down.loss) / (2 * h)
    size = float(np.linalg.norm(here.gradient)) / problem.samples + 1e-8 / RELATIVE_DIFFERENCE_STEP * max(
        1.0, abs(here.loss)
    )
    if abs(found - slope) > 1e-4 * size:
        raise PropertyFailed(
            f"along a direction the loss changes by {found:.6g}; the gradient says {slope:.6g}"
        )


def slices(problem: Problem, case: Case) -> None:
    """Check that the gradient is the sum of the gradients of weighted slices, for any cuts."""
    model, d = _model(problem, case), problem.samples
    rng = np.random.default_rng(case["seed"])
    cuts = [0, *sorted({int(c) for c in rng.integers(0, d + 1, 3)}), d]
    pairs = [(a, b) for a, b in pairwise(cuts) if a < b]
    each = np.array([problem.gradient([(a, b, 1.0)], model) for a, b in pairs])
    _close(each.sum(axis=0), problem.gradient([(0, d, 1.0)], model), f"cut at {cuts}")
    weights = rng.standard_normal(len(pairs))
    together = problem.gradient([(a, b, float(w)) for (a, b), w in zip(pairs, weights, strict=True)], model)
    _close(together, weights @ each, f"weighted slices {cuts}")


def passes(problem: Problem, case: Case) -> None:
    """Check that `evaluate` and `gradient` return the same gradient, also with a weight for every sample."""
    model, d = _model(problem, case), problem.samples
    rng = np.random.default_rng(case["seed"])
    cut = int(rng.integers(0, d + 1))
    weights = np.where(np.arange(d) < cut, 0.5, 2.0)
    (plain, weighted) = problem.evaluate([Request(model), Request(model, weights)])
    assert plain.gradient is not None
    assert weighted.gradient is not None
    _close(plain.gradient, problem.gradient([(0, d, 1.0)], model), "`evaluate` without weights")
    parts = [each for each in ((0, cut, 0.5), (cut, d, 2.0)) if each[0] < each[1]]
    wanted = problem.gradient(parts, model)
    _close(weighted.gradient, wanted, f"`evaluate` with weights 0.5 before sample {cut}")


def smooth(problem: Problem, case: Case) -> None:
    """Check that gradients at two models differ by at most `smoothness` times the distance of the models."""
    one = _model(problem, case)
    other = one + 0.1 * np.random.default_rng(case["seed"] + 2).standard_normal(one.shape)
    declared = problem.smoothness()
    a, b = (
        problem.gradient([(0, problem.samples, 1.0)], m) / problem.samples + problem.l2 * m
        for m in (one, other)
    )
    found = float(np.linalg.norm(a - b) / np.linalg.norm(one - other))
    if found > declared * (1 + 1e-6) + 1e-12:
        why = f"`smoothness` says {declared:.6g}"
        raise PropertyFailed(f"between two models the gradient changes {found:.6g} times as fast; {why}")


def _unit(problem: Problem) -> str:
    return (
        "its loss is always 0, because it is for gradients only" if type(problem).__name__ == "Unit" else ""
    )


def _no_sum(problem: Problem) -> str:
    inexact = "a sample's gradient depends on the others of its pass (batch_norm = 'local')"
    return _unit(problem) or (inexact if getattr(problem, "local", None) else "")


PROPERTIES: tuple[Property[Any], ...] = (
    Property("start", starts),
    Property("differences", differences, _no_sum),
    Property("slices", slices, _no_sum),
    Property("passes", passes, _unit),
    Property("smoothness", smooth, lambda problem: _unit(problem) or getattr(problem, "rough", "")),
)

"""Properties of delay models: draws depend only on seed, round and slot, and have the declared distribution."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.checking.property import Case, Property, PropertyFailed, through_json
from workbench.core.contract.delays import CounterRNG, DelayModel, DelayStream

DRAWS_PER_CHECK = 10_000  # number of draws (rounds times workers) for a statistical property
# number of rounds of these draws; for `per_run` delay models, few rounds of many workers are drawn instead
ROUNDS_PER_CHECK = 400
# A failing property is tested again with this many times as many draws, because rare events need many.
RETRY_FACTOR = 16
WORKER_BLOCKS = 50  # number of blocks of workers
MAX_MEAN_ERROR_SIGMAS = 6.0  # maximum error of a mean, in standard errors
MAX_SHARE_ERROR_SIGMAS = 3.5  # maximum error of a share, in standard errors


def _seconds(model: DelayModel, seed: int, rounds: list[int], workers: int, samples: int) -> Array:
    """Return the seconds of a load of that many samples, (rounds, workers), drawn in the given order of rounds."""
    stream = DelayStream(model, seed, workers)
    loads = np.full(workers, samples)
    return np.stack([stream.whole(r, loads) for r in rounds])


def finite(model: DelayModel, case: Case) -> None:
    """Check that times are finite numbers of at least 0 s, one per worker."""
    workers, samples = case["workers"], case["samples"]
    found = _seconds(model, case["seed"], [0, 1, 2], workers, samples)
    if found.shape != (3, workers):
        raise PropertyFailed(f"`compute` gives an array of shape {found.shape[1:]} for {workers} workers")
    if not np.isfinite(found).all() or found.min() < 0:
        raise PropertyFailed(f"{samples} samples take {found.min():g} to {found.max():g} s")


def ordered(model: DelayModel, case: Case) -> None:
    """Check that draws of a round depend only on seed, round and slot, not on the order of the calls."""
    rounds = [0, 1, 2, 3, 4, 5]
    one = _seconds(model, case["seed"], rounds, case["workers"], 10)
    stream = DelayStream(model, case["seed"], case["workers"], keep=8)
    loads = np.full(case["workers"], 10)
    other = {r: stream.whole(r, loads) for r in (3, 0, 5, 1, 4, 2)}
    for r in rounds:
        if not np.array_equal(one[r], other[r]):
            why = "draw from `keyed.rng(round)`"
            raise PropertyFailed(f"round {r} takes other times when round 3 is asked for first; {why}")


def growing(model: DelayModel, case: Case) -> None:
    """Check that more samples never take less time, with the same draw."""
    draw = model.draw(CounterRNG(case["seed"]), 0, case["workers"], 0, None)
    k, more = case["samples"], 2 * case["samples"] + 1
    few, many = (np.asarray(model.compute(draw, np.full(case["workers"], n))) for n in (k, more))
    if np.any(many < few):
        raise PropertyFailed(f"{more} samples take less time than {k}")


def memory(model: DelayModel, case: Case) -> None:
    """Check that draws do not depend on the round before, unless the delay model is `markovian`."""
    keyed, workers = CounterRNG(case["seed"]), case["workers"]
    alone = model.draw(keyed, 1, workers, 0, None)
    after = model.draw(keyed, 1, workers, 0, model.draw(keyed, 0, workers, 0, None))
    if not np.array_equal(alone, after):
        raise PropertyFailed("its draws change with `before`; declare `markovian = True`")


def seeds(model: DelayModel, case: Case) -> None:
    """Check that other seeds give other draws, unless nothing is drawn."""
    one, other = (_seconds(model, seed, list(range(20)), 8, 100) for seed in (1, 2))
    if np.array_equal(one, other) and np.ptp(one) > 0:
        raise PropertyFailed("seeds 1 and 2 give the same times in 20 rounds of 8 workers")


def _drawn(model: DelayModel, case: Case, times: int) -> Array:
    """Return the drawn seconds of one check, with `times` times as many draws as usual."""
    rounds = 4 if model.per_run else ROUNDS_PER_CHECK
    workers = DRAWS_PER_CHECK // rounds * (times if model.per_run or model.markovian else 1)
    many = rounds * (1 if model.per_run or model.markovian else times)
    return _seconds(model, case["seed"], list(range(many)), workers, case["samples"])


def _error(model: DelayModel, values: Array) -> float:
    """Return the standard error of the mean. Rounds of a worker, and workers of a group, may be correlated.

    Groups are mostly within one of `WORKER_BLOCKS` blocks of workers, whose means are therefore nearly independent.
    """
    if model.markovian or model.per_run:
        blocks = np.array_split(values, min(WORKER_BLOCKS, values.shape[1]), axis=1)
        values = np.array([block.mean() for block in blocks])
    return float(values.std(ddof=1)) / values.size**0.5


def _twice(wrong: Callable[[Array], str], model: DelayModel, case: Case) -> None:
    """Raise `PropertyFailed` if draws are wrong, and `RETRY_FACTOR` times as many draws are wrong as well."""
    if wrong(_drawn(model, case, 1)) and (why := wrong(_drawn(model, case, RETRY_FACTOR))):
        raise PropertyFailed(why)


def mean(model: DelayModel, case: Case) -> None:
    """Check that draws have the mean that the delay model declares."""
    declared = model.expected(case["samples"])
    assert declared is not None

    def wrong(found: Array) -> str:
        off = abs(found.mean() - declared) > MAX_MEAN_ERROR_SIGMAS * _error(model, found) + 1e-12 * declared
        why = f"{found.size} draws have a mean of {found.mean():.6g} s; declared is {declared:.6g} s"
        return why if off else ""

    _twice(wrong, model, case)


def quantiles(model: DelayModel, case: Case) -> None:
    """Check that the share of draws below each declared quantile q is q."""
    for q in (0.1, 0.5, 0.9, 0.99):
        declared = model.quantile(q, case["samples"])
        assert declared is not None
        _twice(partial(_share_wrong, model, q, declared), model, case)


def _share_wrong(model: DelayModel, q: float, declared: float, found: Array) -> str:
    below, most = found < declared * (1 - 1e-12), found <= declared * (1 + 1e-12)
    least = (q * (1 - q) / found.size) ** 0.5
    low, high = (float(share.mean()) for share in (below, most))
    slack = [
        MAX_SHARE_ERROR_SIGMAS * max(least, _error(model, share.astype(float))) for share in (below, most)
    ]
    if high < q - slack[1] or low > q + slack[0]:
        return f"{high:.4f} of {found.size} draws are at most {declared:.6g} s; declared is {q:g}"
    return ""


def _undeclared(what: str, declared: float | None) -> str:
    return "" if declared is not None else f"declare `{what}` to have it checked"


PROPERTIES: tuple[Property[Any], ...] = (
    Property("settings", through_json),
    Property("finite", finite),
    Property("order", ordered),
    Property("growing", growing),
    Property(
        "memory", memory, lambda model: "it has a memory (`markovian = True`)" if model.markovian else ""
    ),
    Property("seeds", seeds),
    Property("mean", mean, lambda model: _undeclared("expected(samples)", model.expected(1))),
    Property(
        "quantiles", quantiles, lambda model: _undeclared("quantile(q, samples)", model.quantile(0.5, 1))
    ),
)

"""Properties of every delay model: draws depend on seed, round and slot alone, and follow what the model declares."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from workbench.core.base.types import Array
from workbench.core.checking.property import Case, Property, PropertyFailed, through_json
from workbench.core.contract.delays import CounterRNG, DelayModel, DelayStream

DRAWS_PER_CHECK = 10_000  # of the statistical properties, rounds times workers
ROUNDS_PER_CHECK = 400  # of them; where workers differ for a whole run, a few of very many workers
# times as many draws, other ones too, before a property is said to fail: rare events need many
RETRY_FACTOR = 16
MAX_MEAN_ERROR_SIGMAS = 6.0  # standard errors that a mean may be off
MAX_SHARE_ERROR_SIGMAS = 3.5  # that of a share


def _seconds(model: DelayModel, seed: int, rounds: list[int], workers: int, samples: int) -> Array:
    """Seconds of a load of so many samples, (rounds, workers), asked for in the order given."""
    stream = DelayStream(model, seed, workers)
    loads = np.full(workers, samples)
    return np.stack([stream.whole(r, loads) for r in rounds])


def finite(model: DelayModel, case: Case) -> None:
    """Seconds are finite numbers, none below 0, one per worker."""
    workers, samples = case["workers"], case["samples"]
    found = _seconds(model, case["seed"], [0, 1, 2], workers, samples)
    if found.shape != (3, workers):
        raise PropertyFailed(f"`compute` gives an array of shape {found.shape[1:]} for {workers} workers")
    if not np.isfinite(found).all() or found.min() < 0:
        raise PropertyFailed(f"{samples} samples take {found.min():g} to {found.max():g} s")


def ordered(model: DelayModel, case: Case) -> None:
    """A round's draws are the same whoever asks first: they hang on seed, round and slot alone."""
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
    """With one draw, more samples never take less time."""
    draw = model.draw(CounterRNG(case["seed"]), 0, case["workers"], 0, None)
    k, more = case["samples"], 2 * case["samples"] + 1
    few, many = (np.asarray(model.compute(draw, np.full(case["workers"], n))) for n in (k, more))
    if np.any(many < few):
        raise PropertyFailed(f"{more} samples take less time than {k}")


def memory(model: DelayModel, case: Case) -> None:
    """A delay model that declares no memory does not look at the round before."""
    keyed, workers = CounterRNG(case["seed"]), case["workers"]
    alone = model.draw(keyed, 1, workers, 0, None)
    after = model.draw(keyed, 1, workers, 0, model.draw(keyed, 0, workers, 0, None))
    if not np.array_equal(alone, after):
        raise PropertyFailed("its draws change with `before`; declare `markovian = True`")


def seeds(model: DelayModel, case: Case) -> None:
    """Other seeds give other draws, unless nothing is drawn at all."""
    one, other = (_seconds(model, seed, list(range(20)), 8, 100) for seed in (1, 2))
    if np.array_equal(one, other) and np.ptp(one) > 0:
        raise PropertyFailed("seeds 1 and 2 give the same times in 20 rounds of 8 workers")


def _drawn(model: DelayModel, case: Case, times: int) -> Array:
    """Seconds of many rounds and workers; so many times as many where that is asked for."""
    rounds = 4 if model.per_run else ROUNDS_PER_CHECK
    workers = DRAWS_PER_CHECK // rounds * (times if model.per_run or model.markovian else 1)
    many = rounds * (1 if model.per_run or model.markovian else times)
    return _seconds(model, case["seed"], list(range(many)), workers, case["samples"])


def _error(model: DelayModel, values: Array) -> float:
    """Standard error of their mean; a worker's rounds may hang together."""
    groups = values.mean(axis=0) if model.markovian or model.per_run else values.ravel()
    return float(groups.std(ddof=1)) / len(groups) ** 0.5


def _twice(wrong: Callable[[Array], str], model: DelayModel, case: Case) -> None:
    """Raise `PropertyFailed` where many draws are wrong, and so many more as well."""
    if wrong(_drawn(model, case, 1)) and (why := wrong(_drawn(model, case, RETRY_FACTOR))):
        raise PropertyFailed(why)


def mean(model: DelayModel, case: Case) -> None:
    """Draws have the mean that the delay model declares."""
    declared = model.expected(case["samples"])
    assert declared is not None

    def wrong(found: Array) -> str:
        off = abs(found.mean() - declared) > MAX_MEAN_ERROR_SIGMAS * _error(model, found) + 1e-12 * declared
        why = f"{found.size} draws have a mean of {found.mean():.6g} s; declared is {declared:.6g} s"
        return why if off else ""

    _twice(wrong, model, case)


def quantiles(model: DelayModel, case: Case) -> None:
    """As many draws lie below a declared quantile as should."""
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

"""What every delay law keeps: draws that hang on seed, round and slot alone, and that follow what the law declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.base.types import Array
from workbench.checking.law import Broken, Case, Law
from workbench.core.delays import DelayModel, DelayStream, Keyed

DRAWS, WORKERS = 400, 25  # of the statistical laws: so many rounds of so many workers
SIGMAS = 6.0  # standard errors that a mean may be off
SURE = 3.5  # that of a share


def _seconds(law: DelayModel, seed: int, rounds: list[int], workers: int, samples: int) -> Array:
    """Seconds of a load of so many samples, (rounds, workers), asked for in the order given."""
    stream = DelayStream(law, seed, workers)
    loads = np.full(workers, samples)
    return np.stack([stream.whole(r, loads) for r in rounds])


def finite(law: DelayModel, case: Case) -> None:
    """Seconds are finite numbers, none below 0, one per worker."""
    workers, samples = case["workers"], case["samples"]
    found = _seconds(law, case["seed"], [0, 1, 2], workers, samples)
    if found.shape != (3, workers):
        raise Broken(f"`compute` gives an array of shape {found.shape[1:]} for {workers} workers")
    if not np.isfinite(found).all() or found.min() < 0:
        raise Broken(f"{samples} samples take {found.min():g} to {found.max():g} s")


def ordered(law: DelayModel, case: Case) -> None:
    """A round's draws are the same whoever asks first: they hang on seed, round and slot alone."""
    rounds = [0, 1, 2, 3, 4, 5]
    one = _seconds(law, case["seed"], rounds, case["workers"], 10)
    stream = DelayStream(law, case["seed"], case["workers"], keep=8)
    loads = np.full(case["workers"], 10)
    other = {r: stream.whole(r, loads) for r in (3, 0, 5, 1, 4, 2)}
    for r in rounds:
        if not np.array_equal(one[r], other[r]):
            raise Broken(
                f"round {r} takes other times when round 3 is asked for first; draw from `keyed.rng(round)`"
            )


def growing(law: DelayModel, case: Case) -> None:
    """With one draw, more samples never take less time."""
    draw = law.draw(Keyed(case["seed"]), 0, case["workers"], 0, None)
    few, many = (
        law.compute(draw, np.full(case["workers"], k)) for k in (case["samples"], 2 * case["samples"] + 1)
    )
    if np.any(np.asarray(many) < np.asarray(few)):
        raise Broken(f"{2 * case['samples'] + 1} samples take less time than {case['samples']}")


def memory(law: DelayModel, case: Case) -> None:
    """A law that declares no memory does not look at the round before."""
    keyed, workers = Keyed(case["seed"]), case["workers"]
    alone = law.draw(keyed, 1, workers, 0, None)
    after = law.draw(keyed, 1, workers, 0, law.draw(keyed, 0, workers, 0, None))
    if not np.array_equal(alone, after):
        raise Broken("its draws change with `before`; declare `memory = True`")


def seeds(law: DelayModel, case: Case) -> None:
    """Other seeds give other draws, unless nothing is drawn at all."""
    one, other = (_seconds(law, seed, list(range(20)), 8, 100) for seed in (1, 2))
    if np.array_equal(one, other) and np.ptp(one) > 0:
        raise Broken("seeds 1 and 2 give the same times in 20 rounds of 8 workers")


def mean(law: DelayModel, case: Case) -> None:
    """Draws have the mean that the law declares."""
    found = _seconds(law, case["seed"], list(range(DRAWS)), WORKERS, case["samples"])
    told = float(law.expected(case["samples"]))  # type: ignore[attr-defined]
    groups = found.mean(axis=0) if law.memory else found.ravel()  # a worker's rounds may hang together
    error = float(groups.std(ddof=1)) / len(groups) ** 0.5
    if abs(found.mean() - told) > SIGMAS * error + 1e-12 * told:
        raise Broken(f"{found.size} draws have a mean of {found.mean():.6g} s; declared is {told:.6g} s")


def quantiles(law: DelayModel, case: Case) -> None:
    """As many draws lie below a declared quantile as should."""
    found = _seconds(law, case["seed"], list(range(DRAWS)), WORKERS, case["samples"])
    for q in (0.1, 0.5, 0.9, 0.99):
        told = float(law.quantile(q, case["samples"]))  # type: ignore[attr-defined]
        slack = SURE * (q * (1 - q) / found.size) ** 0.5
        low, high = float(np.mean(found < told * (1 - 1e-12))), float(np.mean(found <= told * (1 + 1e-12)))
        if high < q - slack or low > q + slack:
            raise Broken(f"{high:.4f} of {found.size} draws are at most {told:.6g} s; declared is {q:g}")


def through_json(law: DelayModel, case: Case) -> None:
    """Settings come back from JSON as they were."""
    back = type(law).model_validate_json(law.model_dump_json())
    if back != law:
        raise Broken(f"{law!r} became {back!r}")


def _declares(name: str, how: str) -> Any:
    def but(law: DelayModel) -> str:
        if law.lasting and name == "quantile":
            return "workers differ for a whole run (`lasting = True`): few workers say little of the law"
        return "" if callable(getattr(law, name, None)) else f"declare `{how}` to have it checked"

    return but


def _remembers(law: DelayModel) -> str:
    return "it has a memory (`memory = True`)" if law.memory else ""


LAWS: tuple[Law[Any], ...] = (
    Law("settings", "settings come back from JSON as they were", through_json),
    Law("finite", "seconds are finite, none below 0, one per worker", finite),
    Law("order", "a round's draws are the same whoever asks first", ordered),
    Law("growing", "more samples never take less time", growing),
    Law("memory", "without declared memory, a round does not look at the one before", memory, _remembers),
    Law("seeds", "other seeds give other draws", seeds),
    Law("mean", "draws have the declared mean", mean, _declares("expected", "expected(samples)")),
    Law(
        "quantiles",
        "draws have the declared quantiles",
        quantiles,
        _declares("quantile", "quantile(q, samples)"),
    ),
)

__all__ = ["LAWS"]

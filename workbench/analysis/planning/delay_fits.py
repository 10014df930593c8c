"""Fit delay models to measured times.

Times of one task are an array (rounds, workers). A delay model is fitted in units of that task: one sample represents
it, so `delay_model.compute(draw, 1)` gives such times. The fit is evaluated on draws that the engines would make, so no
formula of a delay model is repeated here. There are three criteria. The first is the Kolmogorov distance, where each
time may deviate by MAX_FIT_ERROR. (Otherwise no delay model with discrete times could fit a measurement.) The second is
the tail. The third is persistence: whether slow workers stay slow, separately or together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.planning.distribution_fits import (
    evidence_of_groups,
    fit_distribution,
    fit_gamma,
    fit_groups,
    fit_lognormal,
    fit_mixture,
    fit_weibull,
    l_moments,
    levels,
    slow_states,
    straggling,
)
from workbench.core.base.settings import SettingError, Settings, setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import (
    Constant,
    Delays,
    DelayStream,
    Distribution,
    Fritchman,
    Groups,
    Heterogeneous,
    Markov,
    Pareto,
    ShiftedExponential,
    delay_models,
    resampled,
)

MAX_FIT_ERROR = 0.05  # relative deviation of a time that the Kolmogorov distance ignores
MAX_DISTANCE, MAX_CORRELATION_GAP, MAX_TAIL_RATIO = 0.1, 0.3, 1.5  # a delay model fits up to these values
TAIL_QUANTILE = 0.99
# number of bootstrap samples for the relative standard error of a median, and min value of this error
REDRAWS, MIN_RELATIVE_ERROR = 40, 1e-3
# the model `groups` is preferred if the correlation is above this many standard errors
MIN_GROUP_ERRORS = 4.0
MIN_LIKELIHOOD_RATIO = 20.0  # likelihood ratio above which several slow states are preferred to one
# min rounds, and workers, that are drawn from a delay model to evaluate it
COMPARED_ROUNDS, COMPARED_WORKERS = 60, 400
# number of simulated runs, each with the measured number of workers, for the correlations of `Groups`
GROUPS_RUNS = 8
_MISFITS = {
    "together": "workers are slow together",
    **dict.fromkeys(
        ("lag", "far"), "slow workers stay slow for more or fewer rounds than in the delay model"
    ),
}
Fit = Callable[[Array], Delays | None]
# kind of the delay model of each load (None: recorded times are replayed), or one kind for all loads
Kinds = Sequence[str | None] | str


class Correlations(NamedTuple):
    """Correlations of the logarithms of times."""

    lag: float  # correlation of a worker's times in successive rounds
    # correlation of a worker's times a third of the rounds apart; high if workers are permanently slow
    far: float
    together: float  # correlation of two workers' times in one round; high if something delays all workers


class FittedModel(Settings):
    """Delay model fitted to times of one task, and the quality of the fit. In the model, the task is one sample."""

    delays: Delays = setting(..., "the fitted model, in units of the measured task")
    distance: float = setting(..., "Kolmogorov distance from the measured times, with a tolerance of 5 %")
    tail: float = setting(..., "the delay model's 99 % quantile, divided by the measured one")
    correlation_gap: float = setting(
        ..., "largest difference between the delay model's correlations and the measured ones"
    )
    worst_correlation: str = setting(
        ..., "correlation with the largest difference: lag, far or together, see `Correlations`"
    )

    @property
    def fits(self) -> bool:
        """Whether the fit is good enough for forecasts."""
        return not self.complaint

    @property
    def complaint(self) -> str:
        """Reasons why it does not fit; empty if it does."""
        reasons = []
        if self.distance > MAX_DISTANCE:
            reasons.append(f"its Kolmogorov distance is {self.distance:.2f}")
        if self.correlation_gap > MAX_CORRELATION_GAP:
            reasons.append(_MISFITS[self.worst_correlation])
        if not 1 / MAX_TAIL_RATIO <= self.tail <= MAX_TAIL_RATIO:
            reasons.append(f"its 99 % quantile is {self.tail:.2g} times the measured one")
        return " and ".join(reasons)


# ---------------------------------------------------------------- delay models


def fit_constant(times: Array) -> Constant:
    """Fit a constant: the mean."""
    return Constant(shift=float(times.mean()))


def fit_shifted_exponential(times: Array) -> ShiftedExponential:
    """Fit by L-moments, which are robust to single outliers: mean = shift + 1/rate, mean difference = 1/rate.

    >>> fit_shifted_exponential(1.0 + np.random.default_rng(0).exponential(0.5, (500, 4))).shift.__round__(1)
    1.0
    """
    mean, half = l_moments(times)
    spread = min(2 * half, mean)
    return ShiftedExponential(shift=mean - spread, rate=1 / max(spread, 1e-9 * mean))


def fit_pareto(times: Array) -> Pareto:
    """Fit a shifted exponential to the logarithms, because logarithms of Pareto times have this distribution."""
    mean, half = l_moments(np.log(times))
    spread = min(max(2 * half, 1e-9), 0.999)
    return Pareto(shift=float(np.exp(mean - spread)), shape=1 / spread)


def fit_heterogeneous(times: Array) -> Heterogeneous | None:
    """Fit the model of paper 4, a mixture of two binomials over the workers: some straggle often, others seldom."""
    late = straggling(times)
    if late is None:
        return None
    slow, often, seldom = _two_kinds(late.sum(axis=0), len(late))
    shift, factor = levels(times, late)
    return Heterogeneous(shift=shift, slow=slow, slow_straggles=often, active_straggles=seldom, factor=factor)


def fit_straggles(times: Array) -> Heterogeneous | None:
    """Fit `heterogeneous` with a probability for each worker, in the order of workers."""
    found, late = fit_heterogeneous(times), straggling(times)
    shares = () if late is None else late.mean(axis=0).tolist()
    return None if found is None else found.model_copy(update={"straggles": tuple(shares)})


def fit_markov(times: Array, ends: Sequence[int] = ()) -> Markov | None:
    """Fit by counting transitions between a fast and a slow state."""
    late = straggling(times)
    # no worker changed its state, so slow workers are permanently slow
    if late is None or (late[1:] == late[:-1]).all():
        return None
    enter, leave = ((turned + 0.5) / (turned + stayed + 1) for turned, stayed in _transitions(late, ends))
    shift, factor = levels(times, late)
    return Markov(shift=shift, p_slow=enter, p_recover=leave, factor=factor)


def _transitions(late: NDArray[np.bool_], ends: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Count how often fast workers turned slow or stayed fast, and slow ones turned fast or stayed slow.

    Changes from one measurement to the next are left out.
    """
    within = np.setdiff1d(np.arange(1, len(late)), ends)
    changed, before = late[within] != late[within - 1], late[within - 1]
    turned, stayed = (
        [int(np.sum(which & state)) for state in (~before, before)] for which in (changed, ~changed)
    )
    return (turned[0], stayed[0]), (turned[1], stayed[1])


def fit_fritchman(times: Array, ends: Sequence[int] = ()) -> Fritchman | None:
    """Fit by the lengths of slow spells; None if none is complete, or if one slow state explains them best."""
    one, late = fit_markov(times, ends), straggling(times)
    if one is None or late is None or not (spells := _spells(late, ends)):
        return None
    states, leave, _ = slow_states(spells)
    fields = {"shift": one.shift, "factor": one.factor, "p_slow": one.p_slow}
    return None if states == 1 else Fritchman(p_next=leave, slow_states=states, **fields)


def _spells(late: NDArray[np.bool_], ends: Sequence[int]) -> list[int]:
    """Return the lengths of slow spells that begin and end within one measurement, in rounds."""
    found = []
    for part in np.split(late, list(ends)):
        steps = np.diff(part.astype(int), axis=0)
        for worker in steps.T:
            begun, over = np.flatnonzero(worker == 1), np.flatnonzero(worker == -1)
            over = over[over > begun[0]] if len(begun) else over[:0]
            found += (over - begun[: len(over)]).tolist()
    return found


FITS: dict[str, tuple[Fit, int]] = {  # by kind: fit function, number of parameters
    "constant": (fit_constant, 1),
    "shifted_exponential": (fit_shifted_exponential, 2),
    "pareto": (fit_pareto, 2),
    "heterogeneous": (fit_heterogeneous, 5),
    "straggles": (fit_straggles, 8),
    "markov": (fit_markov, 4),
    "lognormal": (fit_lognormal, 3),
    "gamma": (fit_gamma, 3),
    "weibull": (fit_weibull, 3),
    "fritchman": (fit_fritchman, 5),
    "mixture": (fit_mixture, 5),
    "groups": (fit_groups, 6),
}
# kinds that are fitted to profiles: also for other numbers of workers
PROFILE_KINDS = [kind for kind in FITS if kind != "straggles"]
IN_ORDER = {"markov": fit_markov, "fritchman": fit_fritchman}  # fits that need the rounds in their order


def slow_for_good(times: Array) -> Array | None:
    """Return the probability that each worker is slow in the sense of `Heterogeneous`, (workers,), or None.

    None means that all workers may be equal. Two kinds of workers need evidence: their likelihood must be larger by
    more than the two additional parameters explain (Bayesian information criterion, over the workers).

    >>> slow_for_good(np.where(np.arange(4) == 2, 5.0, 1.0) + np.zeros((9, 1))).round(3).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    late = straggling(times)
    if late is None:
        return None
    belongs, alike, two, _ = _kinds_of_workers(late)
    return belongs if two - alike > np.log(late.shape[1]) else None


def _kinds_of_workers(late: NDArray[np.bool_]) -> tuple[Array, float, float, float]:
    """Return the probability that each worker is a slow one, and the log-likelihoods of one, two and many kinds."""
    seen, rounds = late.sum(axis=0), len(late)
    slow, often, seldom = _two_kinds(seen, rounds)
    two = np.logaddexp(_logs(seen, rounds, slow, often), _logs(seen, rounds, 1 - slow, seldom)).sum()
    one, many = (float(_logs(seen, rounds, 1.0, share).sum()) for share in (late.mean(), seen / rounds))
    return _posterior(seen, rounds, slow, often, seldom), one, float(two), many


def _two_kinds(late: NDArray[np.int64], rounds: int, steps: int = 200) -> tuple[float, float, float]:
    """Fit the share of slow workers and both straggling probabilities: maximum likelihood by EM steps."""
    share = late / rounds
    often, seldom = float(share.max()), float(share.min())
    slow = float(np.mean(share > (often + seldom) / 2))
    slow = slow if 0 < slow < 1 else 0.5
    for _ in range(steps):
        belongs = _posterior(late, rounds, slow, often, seldom)
        slow = float(belongs.mean())
        often = float(belongs @ share / max(belongs.sum(), 1e-12))
        seldom = float((1 - belongs) @ share / max((1 - belongs).sum(), 1e-12))
    ends = np.clip([slow, often, seldom], 0.0, 1.0).tolist()
    return ends[0], ends[1], ends[2]


def _posterior(late: NDArray[np.int64], rounds: int, slow: float, often: float, seldom: float) -> Array:
    """Return the probability that each worker is a slow one."""
    off = _logs(late, rounds, 1 - slow, seldom) - _logs(late, rounds, slow, often)
    return np.asarray(1 / (1 + np.exp(np.clip(off, -700, 700))))


def _logs(late: NDArray[np.int64], rounds: int, weight: float, chance: Array | float) -> Array:
    """Return log-likelihoods, (workers,), for a kind with the share `weight` that is late with probability `chance`."""
    p = np.clip(chance, 1e-9, 1 - 1e-9)
    return np.asarray(np.log(max(weight, 1e-12)) + late * np.log(p) + (rounds - late) * np.log1p(-p))


# ---------------------------------------------------------------- quality of a fit


def persistence(times: Array) -> Correlations:
    """Return correlations of the logarithms of times. All are about 0 for independent rounds of equal workers.

    They are exactly 0 for constant times, and for too few rounds.
    """
    off = np.log(times) - np.log(times).mean()
    power = float(np.mean(off**2))
    rounds, workers = off.shape
    far = max(2, rounds // 3)
    if power < 1e-12 or rounds <= far:
        return Correlations(0.0, 0.0, 0.0)
    pairs = (off.sum(axis=1) ** 2 - (off**2).sum(axis=1)) / max(workers * (workers - 1), 1)
    lag, later = float(np.mean(off[1:] * off[:-1])), float(np.mean(off[far:] * off[:-far]))
    return Correlations(lag / power, later / power, float(pairs.mean()) / power)


def drawn(delay_model: Delays, rounds: int, workers: int, seed: int = 0) -> Array:
    """Return times of one sample as the engines draw them, (rounds, workers), s."""
    stream = DelayStream(delay_model, seed, workers)
    return np.stack([stream.whole(r, np.ones(workers)) for r in range(rounds)])


def distance(times: Array, others: Array, slack: float = MAX_FIT_ERROR) -> float:
    """Return the Kolmogorov distance of two samples, where times may deviate by the share `slack`.

    >>> distance(np.array([1.0, 1.0, 1.0, 2.0]), np.array([1.02]))
    0.25
    """
    a, b = np.sort(times, axis=None), np.sort(others, axis=None)
    points = np.concatenate([a, b])

    def above(one: Array, other: Array) -> float:
        """Return how far the distribution of `one` is above that of `other`, whose times are shortened by `slack`."""
        here = np.searchsorted(one, points, side="right") / len(one)
        there = np.searchsorted(other, points * (1 + slack), side="right") / len(other)
        return float(np.max(here - there, initial=0.0))

    return max(above(a, b), above(b, a))


def assess(times: Array, delay_model: Delays) -> FittedModel:
    """Evaluate how well a delay model, in units of the task, fits measured times."""
    ours = drawn(delay_model, max(COMPARED_ROUNDS, len(times)), COMPARED_WORKERS)
    measured, fitted = persistence(times), persistence(ours[: len(times)])
    # the share of pairs within one group depends on the number of workers
    if isinstance(delay_model, Groups):
        runs = [drawn(delay_model, len(times), times.shape[1], seed) for seed in range(GROUPS_RUNS)]
        fitted = Correlations(*np.mean([persistence(each) for each in runs], axis=0).tolist())
    gaps = {name: abs(getattr(measured, name) - getattr(fitted, name)) for name in Correlations._fields}
    return FittedModel(
        delays=delay_model,
        distance=distance(times, ours),
        tail=float(np.quantile(ours, TAIL_QUANTILE) / np.quantile(times, TAIL_QUANTILE)),
        correlation_gap=max(gaps.values()),
        worst_correlation=max(gaps, key=lambda name: gaps[name]),
    )


def fit_of(times: Array, kind: str) -> Delays | None:
    """Fit a kind of `FITS`, or a distribution of `scipy.stats` by its name; None if the times do not allow it."""
    if kind not in FITS and kind in delay_models():
        raise SettingError(f"kind = {kind!r}: cannot be fitted; take {', '.join(FITS)} or one of scipy.stats")
    return FITS[kind][0](times) if kind in FITS else fit_distribution(times, kind)


def fitted_models(times: Array, kinds: Sequence[str] = ()) -> list[FittedModel]:
    """Fit delay models to times of one task. Return first those that fit, then the others, each from best to worst.

    `kinds`: those to fit, each as in `fit_of` (default: all of `FITS`). Raises `SettingError` for an invalid table of
    times, and for a kind that cannot be fitted.
    """
    check_times(times)
    found, scores = dict[str, FittedModel](), dict[str, float]()
    for kind in kinds or FITS:
        if (delay_model := fit_of(times, kind)) is not None:
            known = found[kind] = assess(times, delay_model)
            parameters = 1 + len(delay_model.args) if isinstance(delay_model, Distribution) else FITS[kind][1]
            scores[kind] = known.distance + known.correlation_gap / 4 + 0.01 * parameters
    if kinds and not found:
        raise SettingError(f"kinds = {list(kinds)}: none of them can be fitted to these times")
    # kind -> kinds that are placed after it, by evidence that the distance does not show
    late, better = straggling(times), dict[str, Iterable[str]]()
    if late is not None:
        *_, two, many = _kinds_of_workers(late)
        # Bayesian information criterion: two kinds of workers have three parameters
        if many - two > (late.shape[1] - 3) / 2 * np.log(len(late)):
            better["straggles"] = ["heterogeneous"]
        if (spells := _spells(late, ())) and slow_states(spells)[2] > np.log(MIN_LIKELIHOOD_RATIO):
            better["fritchman"] = ["markov"]
    if evidence_of_groups(times) > MIN_GROUP_ERRORS:
        better["groups"] = set(scores) - set(IN_ORDER)
    for kind in [kind for kind in better if kind in scores]:
        others = [scores[other] - 1e-9 for other in better[kind] if other in scores]
        scores[kind] = min([scores[kind], *others])
    return [found[kind] for kind in sorted(found, key=lambda kind: (not found[kind].fits, scores[kind]))]


def refit(times: Array, kind: str, ends: Sequence[int] = ()) -> Delays:
    """Fit the delay model of one kind. If the times do not allow it, `fritchman` becomes `markov`, others a constant.

    `ends`: rounds at which another measurement begins; transitions into them are ignored. Raises `SettingError` for a
    kind that cannot be fitted.
    """
    delay_model = IN_ORDER[kind](times, ends) if kind in IN_ORDER else fit_of(times, kind)
    if delay_model is None and kind == "fritchman":
        delay_model = fit_markov(times, ends)
    return fit_constant(times) if delay_model is None else delay_model


def redrawn(
    times: Array,
    kind: str,
    rng: np.random.Generator | int,
    ends: Sequence[int] = (),
    at: Sequence[float] | Array | None = None,
) -> Delays:
    """Draw a delay model of one kind for new workers, with the uncertainty that few measured workers leave.

    Most kinds are fitted to resampled workers, and `groups` to resampled rounds. For `heterogeneous`, the share of
    permanently slow workers is drawn from Jeffreys' posterior of a binomial share. For `markov`, the transition
    probabilities are drawn from the posteriors of their counts. The times of both states then come from resampled
    rounds. `at`: two quantiles of these posteriors to use; default: drawn.

    >>> rng = np.random.default_rng(0)
    >>> redrawn(np.ones((9, 4)), "constant", rng).shift
    1.0
    """
    from scipy.special import betaincinv

    rng, workers = np.random.default_rng(rng), times.shape[1]
    if kind not in ("heterogeneous", "markov"):
        if kind == "groups":  # resampling workers would break up the groups
            return refit(times[resampled(len(times), rng)], kind)
        return refit(times[:, rng.integers(0, workers, (workers,))], kind, ends)
    delay_model, late = refit(times, kind, ends), straggling(times)
    if late is None or not isinstance(delay_model, Heterogeneous | Markov):
        return delay_model
    update, seen = dict[str, float](), dict[str, tuple[float, float]]()
    if isinstance(delay_model, Heterogeneous):
        seen["slow"] = workers * delay_model.slow, workers * (1 - delay_model.slow)
    else:
        seen["p_slow"], seen["p_recover"] = _transitions(late, ends)
        # the times of the states do not depend on the order of rounds, so rounds are resampled
        rows = resampled(len(times), rng)
        if 0 < late[rows].sum() < late.size:
            update["shift"], update["factor"] = levels(times[rows], late[rows])
    which = zip(seen.items(), rng.random(2) if at is None else at, strict=False)
    update |= {name: float(betaincinv(yes + 0.5, no + 0.5, q)) for (name, (yes, no)), q in which}
    return delay_model.model_copy(update=update)


def every_model(
    times: Sequence[Array], kinds: Kinds, fit: Callable[..., Delays] = refit
) -> tuple[Delays | None, ...]:
    """Fit the delay model of each load to its times, relative to their median. One kind is fitted to all at once."""
    relative = [t / np.median(t) for t in times]
    if isinstance(kinds, str):
        ends = np.cumsum([len(t) for t in times[:-1]]).tolist()
        return (fit(np.concatenate(relative), kinds, ends=ends),) * len(relative)
    return tuple(None if kind is None else fit(t, kind) for t, kind in zip(relative, kinds, strict=True))


def ordered(kinds: Kinds, times: Sequence[Array], again: Sequence[Array]) -> list[Array]:
    """Return each load's resampled times `again`, or its original `times` if its kind needs the order of rounds."""
    each = [kinds] * len(times) if isinstance(kinds, str) else kinds
    return [t if kind in IN_ORDER else a for kind, t, a in zip(each, times, again, strict=True)]


def evenly(count: int, rng: np.random.Generator) -> Array:
    """Return pairs of evenly spaced quantiles in random order, (count, 2), so that few pairs cover the distribution."""
    places = rng.permuted(np.tile(np.arange(count), (2, 1)), axis=1).T
    return np.asarray((places + 0.5) / max(count, 1))


def check_times(times: Array) -> None:
    """Raise `SettingError` for an invalid table of times."""
    if times.ndim != 2 or times.size < 2 or not np.all(np.isfinite(times)) or np.any(times <= 0):
        raise SettingError("times: give a table (rounds, workers) of finite seconds above 0")


def judged(times: Sequence[Array]) -> tuple[tuple[tuple[FittedModel, ...], ...], Kinds]:
    """Return the delay models of every load, the best first, and the kinds to use: one kind if it fits all loads."""
    relative = [t / np.median(t) for t in times]
    for delay_model in fitted_models(np.concatenate(relative), PROFILE_KINDS):
        each = [assess(t, delay_model.delays) for t in relative]
        if delay_model.fits and all(one.fits for one in each):
            return tuple((one,) for one in each), delay_model.delays.kind
    alone = tuple(tuple(fitted_models(t, PROFILE_KINDS)) for t in relative)
    kinds = [best.delays.kind if best.fits else None for best, *_ in alone]
    # if most loads have no fit, the models of the others fit their few rounds by chance
    return alone, kinds if 2 * kinds.count(None) <= len(kinds) else [None] * len(kinds)


def errors_of(times: Sequence[Array]) -> Array:
    """Return relative standard errors of the loads' medians, by block bootstrap over rounds.

    From few rounds, the error of one load is imprecise. Its square is therefore averaged with the mean square of all
    loads.
    """
    rng = np.random.default_rng(0)
    again = [[np.median(t[resampled(len(t), rng)]) for _ in range(REDRAWS)] for t in times]
    variance = np.var(np.log(again), axis=1)
    return np.asarray(np.maximum(np.sqrt((variance + variance.mean()) / 2), MIN_RELATIVE_ERROR))

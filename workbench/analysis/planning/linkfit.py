"""Fits of the cost of work and messages: seconds per load, latency and bandwidth of a link, time on a port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from workbench.analysis.planning.quantities import quantity_of
from workbench.core.base.settings import Settings, setting
from workbench.core.base.types import Array
from workbench.core.contract.round_times import port_departures

MAX_FIXED_RATIO = 1e4  # max ratio of the fixed cost to that of the samples; it represents any larger ratio
EXACT_RELATIVE_ERROR = 1e-6  # relative error of exact times

# ---------------------------------------------------------------- the cost of work


class Work(Settings):
    """Typical seconds of a round's work on s samples with p parameters: fixed + per_number p + s (sample + cell p)."""

    fixed: float = setting(0.0, "for each task: waking up, waiting for a core", "s", ge=0)
    per_number: float = setting(0.0, "for each parameter of the model", "s", ge=0)
    per_sample: float = setting(0.0, "for each sample", "s/sample", ge=0)
    per_cell: float = setting(0.0, "for each parameter of each sample", "s/sample", ge=0)

    def seconds(self, samples: float, floats: float) -> float:
        """Return the seconds for this amount of work."""
        return float(np.dot(_powers(samples, floats), list(vars(self).values())))

    def before(self, samples: float, floats: float) -> float:
        """Return the fixed cost over the cost of the samples, or `MAX_FIXED_RATIO` if these cost nothing."""
        begin = self.seconds(0, floats)
        rest = self.seconds(samples, floats) - begin
        return min(begin / rest, MAX_FIXED_RATIO) if rest > 0 else MAX_FIXED_RATIO


def _powers(samples: float, floats: float) -> list[float]:
    return [1.0, floats, samples, samples * floats]


def fit_work(
    samples: Sequence[float],
    floats: Sequence[float],
    seconds: Sequence[float] | Array,
    errors: Sequence[float] | Array = (EXACT_RELATIVE_ERROR,),
) -> tuple[Work, Array]:
    """Fit the cost of work to times of measured loads and model sizes.

    Returns the cost, and each load's seconds without their sampling error.

    `errors`: relative standard errors of the times. Every subset of the terms is fitted by least squares of the
    relative errors, with nonnegative costs. The fits are averaged with the weights of Bayes' criterion (Kass and
    Raftery, JASA 90, 1995). Otherwise sampling error would be fitted as a slope, which matters most for models
    smaller than all measured ones. Residuals are kept as far as they exceed the errors (James and Stein).

    >>> loads = [(1, 5), (10, 5), (1, 50), (10, 50)]
    >>> fit_work(*zip(*loads), [2 + s * p * 0.1 for s, p in loads])[0]
    Work(fixed=2.0, per_number=0.0, per_sample=0.0, per_cell=0.1)
    """
    rows = np.array([_powers(s, p) for s, p in zip(samples, floats, strict=True)])
    taken = np.array(seconds, dtype=float)
    off = np.broadcast_to(np.asarray(errors, dtype=float), taken.shape)
    found = [each for each in _subsets(rows / (taken * off)[:, None], 1 / off) if each is not None]
    chi, terms = (np.array([getattr(each, name) for each in found]) for name in ("chi", "terms"))
    score = chi + terms * np.log(len(taken))
    weights = np.exp((score.min() - score) / 2)
    weights /= weights.sum()
    costs = weights @ np.array([each.costs for each in found])
    numbers = [float(f"{value:.12g}") for value in costs]
    logs = np.log(taken / (rows @ costs))
    left, free = float(np.sum((logs / off) ** 2)), len(taken) - float(weights @ terms)
    remaining = max(1 - max(free, 0.0) / left, 0.0) if left > 0 else 0.0
    return Work(**dict(zip(Work.model_fields, numbers, strict=True))), rows @ costs * np.exp(remaining * logs)


class _Terms(NamedTuple):
    """Fit with some of the four costs, all above 0, and its residual, in squared standard errors."""

    costs: Array
    chi: float
    terms: int


def _subsets(rows: Array, wanted: Array) -> Iterator[_Terms | None]:
    """Yield a fit for each subset of the columns, or None if a smaller subset fits as well."""
    from scipy.optimize import nnls

    scale = rows.max(axis=0)
    for which in product((False, True), repeat=rows.shape[1]):
        some = np.flatnonzero(which)
        if not len(some):
            continue
        found, rest = nnls(rows[:, some] / scale[some], wanted)
        costs = np.zeros(rows.shape[1])
        costs[some] = found / scale[some]
        small = found * 1e9 < np.max(wanted)  # rounding errors of the largest relative time
        yield None if small.any() else _Terms(costs, float(rest) ** 2, len(some))


# ---------------------------------------------------------------- links


class PortFit(Settings):
    """Fitted link: a message reaches the port after the latency and occupies it for overhead + bytes / bandwidth."""

    latency: float = setting(0.0, "time on the way to the port", "s", ge=0)
    overhead: float = setting(0.0, "time on the port, independent of the length", "s", ge=0)
    bandwidth: float | None = setting(
        None, "bytes per second through the port; empty = too fast to measure", gt=0
    )
    residual: float = setting(0.0, "typical (median) error of a message's time", "s", ge=0)
    downloads: bool = setting(True, "whether sending the model down takes time as well")

    def transfer(self, bytes_: float) -> float:
        """Return the seconds on the port."""
        return self.overhead + (bytes_ / self.bandwidth if self.bandwidth else 0.0)


@dataclass(frozen=True)
class Messages:
    """Messages of one length to one port: times of leaving and of passing the port; both (rounds, senders), s."""

    bytes: float
    sent: Array
    end: Array


class _Line(NamedTuple):
    """Line with seconds = start + bytes / rate."""

    start: float
    rate: float | None


def fit_line(bytes_: Array, seconds: Array) -> _Line:
    """Fit a line to times of messages of several lengths, both of one shape, with a soft L1 loss.

    Start and slope are at least 0. A slope that explains less than a thousandth of the times is set to 0.
    """
    from scipy.optimize import least_squares

    scale, longest = float(np.mean(seconds)), float(bytes_.max())
    if scale <= 0:
        return _Line(0.0, None)
    noise = float(np.median(np.abs(seconds - np.median(seconds)))) + 1e-3 * scale

    def off(coefficients: Array) -> Array:
        return np.asarray((coefficients[0] + coefficients[1] * bytes_ / longest - seconds) / noise)

    low = float(np.min(seconds))
    found = least_squares(off, [low, max(scale - low, 1e-3 * scale)], bounds=(0, np.inf), loss="soft_l1").x
    visible = found[1] > 1e-3 * scale
    return _Line(float(found[0]), longest / float(found[1]) if visible else None)


def fit_port(found: Sequence[Messages], near: PortFit | None = None) -> PortFit:
    """Fit latency, overhead and bandwidth so that a port would receive the messages at the measured times.

    The fit uses the recursion of the forecast: message j of a round has passed at max over i <= j of t_(i) + (j - i +
    1) transfers. Absolute errors are summed, so single late messages hardly matter. `near`: a fit to similar messages,
    as the start of the search.
    """
    from scipy.optimize import minimize

    alone = [_unhindered(m) for m in found]
    scale = max(float(np.median(np.concatenate(alone))), 1e-9)
    longest = max(m.bytes for m in found)

    def error(logs: Array) -> float:
        latency, overhead, rest = np.exp(np.clip(logs, -46, 46))
        off = [_port_off(m, latency, overhead + rest * m.bytes / longest).mean() for m in found]
        return float(np.mean(off)) / scale

    starts = _starts(found, alone, longest, scale, near)
    options = {"maxfev": 240 if near is None else 90}
    tried = [minimize(error, np.log(s), method="Nelder-Mead", options=options) for s in starts]
    best = min(tried, key=lambda each: float(each.fun))
    latency, overhead, rest = (float(x) for x in np.exp(np.clip(best.x, -46, 46)))
    off = np.concatenate([_port_off(m, latency, overhead + rest * m.bytes / longest).ravel() for m in found])
    return PortFit(
        latency=latency,
        overhead=overhead,
        bandwidth=longest / rest if rest > 1e-3 * scale else None,
        residual=float(np.median(off)),
    )


def _starts(
    found: Sequence[Messages], alone: Sequence[Array], longest: float, scale: float, near: PortFit | None
) -> list[list[float]]:
    """Return starts of the search: near a fit, or at a line through the messages that found the port idle.

    A small share or half of the line's start is taken as overhead.
    """
    if near is not None:
        rest = longest / near.bandwidth if near.bandwidth else 1e-4 * scale
        return [[max(near.latency, 1e-9), max(near.overhead, 1e-9), rest]]
    lengths = np.concatenate([np.full(len(a), m.bytes) for m, a in zip(found, alone, strict=True)])
    start, rate = fit_line(lengths, np.concatenate(alone))
    rest = longest / rate if rate else 1e-3 * scale
    return [[max(start * (1 - share), 1e-9), max(start * share, 1e-9), rest] for share in (0.02, 0.5)]


def _port_off(messages: Messages, latency: float, transfer: float) -> Array:
    return np.asarray(
        np.abs(port_departures(messages.sent + latency, transfer) - np.sort(messages.end, axis=1))
    )


def _unhindered(messages: Messages) -> Array:
    """Return the times of messages that found the port idle: at least the first one of each round."""
    order = np.argsort(messages.sent, axis=1)
    sent = np.take_along_axis(messages.sent, order, axis=1)
    end = np.take_along_axis(messages.end, order, axis=1)
    free = np.ones(sent.shape, dtype=bool)
    free[:, 1:] = sent[:, 1:] >= np.maximum.accumulate(end, axis=1)[:, :-1]
    return np.asarray((end - sent)[free])


def link_text(port: PortFit) -> str:
    """Return the fitted link as text: latency, time per message, bandwidth. Negligible terms are left out."""
    rate = "" if port.bandwidth is None else f", {port.bandwidth / 1e6:.3g} MB/s"
    each = f" + {quantity_of(port.overhead)} a message" if port.overhead > 0.01 * port.latency else ""
    return f"{quantity_of(port.latency)}{each}{rate}"

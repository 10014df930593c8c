"""Fits of the cost of work and messages: seconds per load, latency and bandwidth of a link, time on a port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from workbench.analysis.planning.quantities import quantity_of
from workbench.core.base.settings import Settings, setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import Delays
from workbench.core.contract.round_times import port_departures

# max ratio of the fixed cost to the cost of the samples; larger ratios are replaced by this one
MAX_FIXED_RATIO = 1e4
EXACT_RELATIVE_ERROR = 1e-6  # relative error of exact times
MIN_LINK_RATIO = 1.25  # min ratio of message times of links that count as different
# groups are kept if the fit with groups has at most this share of the error without groups
MAX_ERROR_RATIO = 0.9
# number of successive fits of a group's link, each of which starts with the latency of the previous one
GROUP_FITS = 5
ROBUST_SHARE = 0.05  # larger relative errors have less weight in these fits

# ---------------------------------------------------------------- the cost of work


class Work(Settings):
    """Typical seconds of a round's work on s samples with a model of p parameters.

    They are fixed + per_number p + per_sample s + per_cell s p.
    """

    fixed: float = setting(0.0, "time for each task: waking up, waiting for a core", "s", ge=0)
    per_number: float = setting(0.0, "time for each parameter of the model", "s", ge=0)
    per_sample: float = setting(0.0, "time for each sample", "s/sample", ge=0)
    per_cell: float = setting(0.0, "time for each sample and each parameter of the model", "s/sample", ge=0)

    def seconds(self, samples: float, floats: float) -> float:
        """Return the seconds for this amount of work."""
        return float(np.dot(_powers(samples, floats), list(vars(self).values())))

    def before(self, samples: float, floats: float) -> float:
        """Return the fixed cost divided by the cost of these samples, at most `MAX_FIXED_RATIO`."""
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
    Raftery, JASA 90, 1995). With the best fit alone, sampling error would be fitted as a slope, which matters most for
    models smaller than all measured ones. The part of the residuals that exceeds the errors is added to the fitted
    times (James and Stein).

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
    """Fit with a subset of the four costs, all above 0, and its residual, in squared standard errors."""

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


class PortLink(Settings):
    """Fitted link: a message reaches the port after the latency and occupies it for overhead + bytes / bandwidth."""

    latency: float = setting(0.0, "time on the way to the port", "s", ge=0)
    overhead: float = setting(0.0, "time on the port, independent of the length", "s", ge=0)
    bandwidth: float | None = setting(
        None, "bytes per second through the port; empty = too fast to measure", gt=0
    )
    delays: Delays | None = setting(
        None, "delay model of an answer's time beyond the latency; empty = about constant time"
    )
    download_delays: Delays | None = setting(
        None, "delay model of the time to send a model, beyond the latency; empty = about constant time"
    )

    def transfer(self, bytes_: float) -> float:
        """Return the seconds on the port."""
        return self.overhead + (bytes_ / self.bandwidth if self.bandwidth else 0.0)


class PortGroup(PortLink):
    """Fitted link of some workers, if it differs from the common link."""

    workers: tuple[int, ...] = setting(..., "ranks of the measured workers, from 1")


class PortFit(PortLink):
    """Fitted links of all workers: the common link, and those of groups."""

    residual: float = setting(0.0, "typical (median) error of a message's time", "s", ge=0)
    downloads: bool = setting(True, "whether sending models to the workers takes time as well")
    groups: tuple[PortGroup, ...] = setting((), "measured workers whose links differ from the common one")

    def of_worker(self, rank: int) -> PortLink:
        """Return the link of a measured worker."""
        return next((group for group in self.groups if rank in group.workers), self)

    def delayed(self, name: str) -> bool:
        """Return whether some link has a delay model in the field `name`."""
        return any(getattr(each, name) is not None for each in (self, *self.groups))

    def by_worker(self, bytes_: float, workers: int) -> tuple[Array, Array]:
        """Return the latency, and the time on the port of a message, of each measured worker; both (workers,), s.

        >>> port = PortFit(latency=0.1, groups=(PortGroup(workers=(2,), latency=0.5),))
        >>> port.by_worker(8.0, workers=2)[0].tolist()
        [0.1, 0.5]
        """
        links = [self.of_worker(rank) for rank in range(1, workers + 1)]
        return np.array([link.latency for link in links]), np.array([link.transfer(bytes_) for link in links])


@dataclass(frozen=True)
class Messages:
    """Messages of one length to one port: when they left their senders and passed the port, (rounds, senders), s."""

    bytes: float
    sent: Array
    end: Array


class _Line(NamedTuple):
    """Line with seconds = start + bytes / rate."""

    start: float
    rate: float | None


def fit_line(bytes_: Array, seconds: Array) -> _Line:
    """Fit a line to the times of messages of several lengths, with a soft L1 loss. Both arrays have the same shape.

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

    The fit uses the recursion of the forecast. Message j of a round has passed the port at the max over i <= j of t_i +
    (j - i + 1) transfers. Here, t_i is the i-th arrival. Absolute errors are summed, so single late messages hardly
    matter. `near`: a fit to similar messages, as the start of the search.
    """
    from scipy.optimize import minimize

    # times of messages that found the port idle: at least the first one of each round
    alone = [(m.end - m.sent)[m.sent >= end_before(m)] for m in found]
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
    costs = np.exp(np.clip(best.x, -46, 46))
    # smaller ones are rounding errors, as of links that take no time
    latency, overhead, rest = np.where(costs > EXACT_RELATIVE_ERROR * scale, costs, 0.0).tolist()
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
    """Return starting points of the search: near a given fit, or from a line through messages that found the port idle.

    A small share, or half, of the line's value at 0 bytes is taken as overhead.
    """
    if near is not None:
        rest = longest / near.bandwidth if near.bandwidth else 1e-4 * scale
        return [[max(near.latency, 1e-9), max(near.overhead, 1e-9), rest]]
    lengths = np.concatenate([np.full(len(a), m.bytes) for m, a in zip(found, alone, strict=True)])
    start, rate = fit_line(lengths, np.concatenate(alone))
    rest = longest / rate if rate else 1e-3 * scale
    return [[max(start * (1 - share), 1e-9), max(start * share, 1e-9), rest] for share in (0.02, 0.5)]


def fit_groups(found: Sequence[Messages], port: PortFit) -> PortFit:
    """Return the fit with groups of workers whose links differ, or `port` itself if one link explains the times.

    Groups come from `differing`. The largest group has the common link. Each group's link is fitted by robust least
    squares. A message that found the port idle took latency + overhead + bytes / bandwidth. One that waited took
    overhead + bytes / bandwidth from the end of the message before. The latency decides which messages waited, so the
    fit is repeated. Groups are kept if the recursion of `fit_port` then explains the times clearly better.
    """
    parts = differing(found, port)
    if len(parts) < 2:
        return port

    def error(fit: PortFit) -> float:
        each = (fit.by_worker(m.bytes, m.sent.shape[1]) for m in found)
        off = (_port_off(m, *link).mean() for m, link in zip(found, each, strict=True))
        return float(np.mean(list(off)))

    best = min((_grouped(found, port, parts, start) for start in (0.0, 1.0)), key=error)
    return best if error(best) < MAX_ERROR_RATIO * error(port) else port


def _grouped(
    found: Sequence[Messages], port: PortFit, parts: Sequence[tuple[int, ...]], start: float
) -> PortFit:
    """Return a link with a group for each set of workers in `parts`. Sets whose links agree are merged.

    `start`: initial latency, as a share of the shortest time.
    """
    links, lengths = [_settled(found, part, start) for part in parts], [m.bytes for m in found]
    while True:
        pairs = combinations(range(len(parts)), 2)
        pair = next((pair for pair in pairs if _agree(links[pair[0]], links[pair[1]], lengths)), None)
        if pair is None:
            break
        merged = tuple(sorted(i for k in pair for i in parts[k]))
        left = [k for k in range(len(parts)) if k not in pair]
        parts = [merged, *(parts[k] for k in left)]
        links = [_settled(found, merged, start), *(links[k] for k in left)]
    if len(parts) == 1:
        return port
    order = sorted(range(len(parts)), key=lambda k: (-len(parts[k]), parts[k]))
    parts, links = [parts[k] for k in order], [links[k] for k in order]
    fields = [{name: getattr(link, name) for name in ("latency", "overhead", "bandwidth")} for link in links]
    groups = [
        PortGroup(workers=tuple(i + 1 for i in part), **link)
        for part, link in zip(parts[1:], fields[1:], strict=True)
    ]
    return port.replace(groups=tuple(groups), **fields[0])


def _agree(one: PortFit, other: PortFit, lengths: Sequence[float]) -> bool:
    """Return whether messages of every measured length take about the same time on two links."""
    ratios = [
        (one.latency + one.transfer(b)) / max(other.latency + other.transfer(b), 1e-12) for b in lengths
    ]
    return all(1 / MIN_LINK_RATIO <= ratio <= MIN_LINK_RATIO for ratio in ratios)


def _settled(found: Sequence[Messages], part: tuple[int, ...], start: float) -> PortFit:
    """Return the fitted link of some workers. `start`: initial latency, as a share of the shortest time."""
    latency = start * min(float((m.end - m.sent)[:, part].min()) for m in found)
    for _ in range(GROUP_FITS):
        link = _link_of(found, list(part), latency)
        latency = link.latency
    return link


def _link_of(found: Sequence[Messages], workers: list[int], latency: float) -> PortFit:
    """Fit the link of some workers. `latency` decides which of their messages waited for the port."""
    from scipy.optimize import least_squares

    rows, longest = [], max(m.bytes for m in found)
    for m in found:
        before = end_before(m)[:, workers]
        sent, end = m.sent[:, workers], m.end[:, workers]
        idle = before <= sent + latency
        took = np.where(idle, end - sent, end - before)
        rows.append(
            np.stack([idle, np.ones_like(took), np.full(took.shape, m.bytes / longest), took], axis=-1)
        )
    *causes, took = np.concatenate([each.reshape(-1, 4) for each in rows]).T
    scale = max(float(np.median(took)), 1e-9)

    slopes, options = np.array(causes).T, {"loss": "soft_l1", "f_scale": ROBUST_SHARE, "bounds": (0, np.inf)}
    best = least_squares(lambda x: slopes @ x - took / scale, [0.3, 0.3, 0.4], lambda _: slopes, **options)
    costs = best.x * scale
    rate = longest / float(costs[2]) if costs[2] > 1e-3 * scale else None
    return PortFit(latency=float(costs[0]), overhead=float(costs[1]), bandwidth=rate)


def end_before(messages: Messages) -> Array:
    """Return when the message before each one had passed the port, (rounds, senders), s, or -infinity for the first."""
    order = np.argsort(messages.end, axis=1, kind="stable")
    end, found = np.take_along_axis(messages.end, order, axis=1), np.empty_like(messages.end)
    before = np.concatenate([np.full((len(end), 1), -np.inf), end[:, :-1]], axis=1)
    np.put_along_axis(found, order, before, axis=1)
    return found


def differing(found: Sequence[Messages], port: PortFit) -> list[tuple[int, ...]]:
    """Return groups of workers, from 0, by the times of their messages; the largest group first.

    Two workers differ if their typical times of one message length differ by the factor `MIN_LINK_RATIO`, and by more
    than 4 standard errors. Two times are compared: from sending to receipt, and this time without the wait for the port
    (`transits`).
    """
    from scipy.sparse.csgraph import connected_components

    workers = found[0].sent.shape[1]
    alike = np.ones((workers, workers), dtype=bool)
    whole = [np.maximum(m.end - m.sent, 1e-9) for m in found]
    for times in [*whole, *(np.maximum(transits(m, port.latency), 1e-9) for m in found)]:
        spread = np.log(times)
        typical = np.median(spread, axis=0)
        # standard error of a median of normal values
        errors = 1.86 * np.median(np.abs(spread - typical), axis=0) / np.sqrt(len(spread))
        noise = np.maximum(np.log(MIN_LINK_RATIO), 4 * np.hypot(errors, errors[:, None]))
        alike &= np.abs(typical - typical[:, None]) <= noise
    count, group = connected_components(alike, directed=False)
    parts = [tuple(np.flatnonzero(group == k).tolist()) for k in range(count)]
    return sorted(parts, key=len, reverse=True)


def transits(messages: Messages, latency: Array | float) -> Array:
    """Return each message's time on its way and on the port, (rounds, senders), s, without waiting for the port.

    `latency`: one value for all senders, or one for each, (senders,), s.
    """
    waited = np.maximum(end_before(messages) - messages.sent - latency, 0.0)
    return np.maximum(messages.end - messages.sent - waited, 0.0)


def _port_off(messages: Messages, latency: Array | float, transfer: Array | float) -> Array:
    return np.asarray(
        np.abs(port_departures(messages.sent + latency, transfer) - np.sort(messages.end, axis=1))
    )


def link_text(port: PortLink) -> str:
    """Return the fitted link as text: latency, time per message, bandwidth. Negligible terms are left out."""
    rate = "" if port.bandwidth is None else f", {port.bandwidth / 1e6:.3g} MB/s"
    each = f" + {quantity_of(port.overhead)} a message" if port.overhead > 0.01 * port.latency else ""
    apart = [
        f"; worker{'s' * (len(g.workers) > 1)} {spans(g.workers)}: {link_text(g)}"
        for g in (port.groups if isinstance(port, PortFit) else ())
    ]
    drawn = [
        f"; {what} delayed by {model.kind}"
        for what, model in (("answers", port.delays), ("models", port.download_delays))
        if model is not None
    ]
    return f"{quantity_of(port.latency)}{each}{rate}{''.join(drawn)}{''.join(apart)}"


def spans(ranks: Sequence[int]) -> str:
    """Return ascending ranks as text, with spans for consecutive ones.

    >>> spans((1, 2, 3, 7))
    '1-3, 7'
    """
    starts = [i for i, rank in enumerate(ranks) if i == 0 or rank != ranks[i - 1] + 1]
    ends = [*(i - 1 for i in starts[1:]), len(ranks) - 1]
    pairs = ((ranks[a], ranks[b]) for a, b in zip(starts, ends, strict=True))
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs)

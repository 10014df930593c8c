"""Predicted times of the workers in the next round, from the measured times of all rounds so far.

Six predictions of a worker's time are combined: from its own times, and from those of all workers, each with three
weights of older rounds. A prediction has more weight the better it predicted the earlier times (Bayesian model
averaging). So times that are independent of each other are soon predicted from all workers and rounds. The times of a
worker that becomes slow are predicted from its newest ones. Start-up costs of a task are compared in the same way.

If a round ends before a worker answers, only a lower bound of its time is known. The predicted distribution above the
bound then takes the place of the time, as in the EM algorithm. It counts less than a measured time. Schemes that wait
for few answers would otherwise confirm for ever that the others are late.

Logarithms of times are counted in bins. Only measured times are used: no delay model, and no later round.

J. A. Hoeting, D. Madigan, A. E. Raftery, C. T. Volinsky, "Bayesian model averaging", Statistical Science 14, 1999.
B. Efron, "The two sample problem with censored data", Berkeley Symposium, 1967: late times are distributed above.
"""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array

BIN_WIDTH, BINS = 0.06, 240  # width of a bin (logarithm of seconds), and number of bins
LEAST_S = 1e-12  # shortest time that has a logarithm
DECAYS = np.array([0.5, 0.9, 1.0])  # factors on the counts of older rounds, for each new round
# Counts of late workers, for each factor: a measured time counts 1.
LATE_COUNTS = np.array([0.3, 0.5, 0.9])
# Times of all workers that are added to a worker's own, as a number of times, for each factor.
SHARED_COUNTS = (0.2, 0.5, 3.0)
KERNEL_WIDTH = 0.2  # a time at this distance (logarithm) from the counted ones has 1/e of their density
LATE_WIDTH = 0.1  # the same for late workers without any counted time above the bound
# Start-up costs of a task that are compared, as numbers of loads of the first round, and their prior probabilities
STARTUP_LOADS, STARTUP_PRIOR = np.array([0.0, 0.5, 3.0, 50.0]), np.array([0.7, 0.1, 0.1, 0.1])
LEAST_PRIOR_SHARE = 1e-3  # share of the prior that is mixed in after each round, as costs may change
STARTUP_EXPONENT = 0.7  # exponent of the likelihood of a start-up cost, as times are correlated
LIKELIHOOD_DECAY = 0.99  # factor on the older part of the likelihoods of predictions, for each new round
# Kernel widths of times that no prediction expects, and their probabilities
OUTLIERS = ((0.15, 0.05), (0.5, 0.02))
LEAST_DENSITY = 1e-9  # least density of a bin
MAX_STORED_ROUNDS = 64  # max number of last rounds whose times the next segment of a run receives


def _kernel(width: float) -> Array:
    """Return the density of a double exponential distribution around each bin, (bins, bins)."""
    bins = np.arange(BINS)
    density = np.exp(-np.abs(bins[:, None] - bins) * BIN_WIDTH / width)
    return np.asarray(density / density.sum(axis=1, keepdims=True))


def _normalised(counts: Array) -> Array:
    return np.asarray(counts / np.maximum(counts.sum(axis=-1, keepdims=True), LEAST_DENSITY**2))


KERNEL = _kernel(KERNEL_WIDTH)
OUTLIER_KERNEL = np.sum([share * _kernel(width) for width, share in OUTLIERS], axis=0)
EXPECTED_SHARE = 1 - sum(share for _, share in OUTLIERS)


class WorkerTimes:
    """Measured times of workers, and the distribution of their next times.

    Shapes: s start-up costs, d factors (`DECAYS`), w workers, b bins, and 2 d predictions. A time is counted as that of
    the load of the first round. A task takes as long as its samples and `startup` more.
    """

    def __init__(self, workers: int) -> None:
        self.rounds = 0  # number of rounds so far
        # for each of the last rounds: seconds (NaN if only a lower bound is known), lower bounds, loads; (workers,)
        self.rows: deque[tuple[Array, Array, NDArray[Any]]] = deque(maxlen=MAX_STORED_ROUNDS)
        self.counts = np.zeros((len(STARTUP_LOADS), len(DECAYS), workers, BINS))  # (s, d, w, b)
        self.likelihoods = np.zeros((len(STARTUP_LOADS), workers, 2 * len(DECAYS)))  # logarithms
        self.posterior = STARTUP_PRIOR  # probabilities of the start-up costs
        self.load, self.middle = 1.0, 0.0  # load of the first round, and logarithm of its median time

    def add(self, seconds: Array, least: Array, loads: NDArray[Any]) -> None:
        """Add a round. All arguments: (workers,).

        `seconds`: measured times, s, NaN if only the lower bound `least`, s, is known. `loads`: number of samples.
        """
        seen = ~np.isnan(seconds)
        first = not self.rounds
        if first and not seen.any():
            return
        if first:
            self.load = float(np.mean(loads))
            self.middle = float(np.median(np.log(np.maximum(seconds[seen], LEAST_S))))
        self.rows.append((seconds, least, loads))
        self.rounds += 1
        at = self._bins(np.where(seen, seconds, least), loads)
        late = np.flatnonzero(~seen)
        above = self._above(at, late, seconds[seen])
        if not first:
            self._compare(at, late, above)
        self.counts *= DECAYS[:, None, None]
        for s, bins in enumerate(at[:, seen]):
            self.counts[s][:, seen, bins] += 1
        if first:
            self.predictions = self._predictions()
        if len(late):
            density = above * np.einsum(
                "swp,spwb->swb", self._weights()[:, late], self.predictions[:, :, late]
            )
            tail = np.exp(-np.abs(np.arange(BINS) - at[:, late, None]) * BIN_WIDTH / LATE_WIDTH)
            density = np.where(density.sum(axis=-1, keepdims=True) < LEAST_DENSITY, above * tail, density)
            self.counts[:, :, late] += LATE_COUNTS[:, None, None] * _normalised(density)[:, None]
        self.predictions = self._predictions()

    def _bins(self, seconds: Array, loads: NDArray[Any]) -> NDArray[np.int64]:
        """Return the bins of the times, (s, w)."""
        startup = STARTUP_LOADS[:, None] * self.load
        as_first = (self.load + startup) / np.maximum(loads + startup, 1)
        bins = (np.log(np.maximum(seconds * as_first, LEAST_S)) - self.middle) / BIN_WIDTH
        return np.clip(np.rint(bins) + BINS // 2, 0, BINS - 2).astype(np.int64)

    def _above(self, at: NDArray[np.int64], late: NDArray[np.int64], measured: Array) -> Array:
        """Return the probability that a late worker's time was not measured, if it is in a bin, (s, late, b).

        It is 1 above the bin of its bound. In this bin, it is the share of late workers, as all their times are
        similar. If measured times are equal, a worker with this time would have answered as well.
        """
        bins, own = np.arange(BINS), at[:, late, None]
        others = np.delete(at, late, axis=1)[:, None]
        share = len(late) / (len(late) + np.count_nonzero(others == own, axis=-1, keepdims=True))
        distinct = len(np.unique(measured)) == len(measured)
        return np.where(bins > own, 1.0, np.where(bins == own, share * distinct, 0.0))

    def _compare(self, at: NDArray[np.int64], late: NDArray[np.int64], above: Array) -> None:
        """Update the likelihoods of predictions and start-up costs by a round's times."""
        usual = np.einsum("swb,spwb->swp", KERNEL[at], self.predictions)
        outlier = np.einsum("swb,sb->sw", OUTLIER_KERNEL[at], self.predictions[:, -1, 0])
        usual[:, late] = np.einsum("swb,spwb->swp", above, self.predictions[:, :, late])
        outlier[:, late] = np.einsum("swb,sb->sw", above, self.predictions[:, -1, 0] @ OUTLIER_KERNEL)
        density = EXPECTED_SHARE * usual + outlier[:, :, None] + LEAST_DENSITY
        found = STARTUP_EXPONENT * np.log((self._weights() * density).sum(axis=-1)).sum(axis=1)
        found = self.posterior * np.exp(found - found.max())
        self.posterior = (1 - LEAST_PRIOR_SHARE) * found / found.sum() + LEAST_PRIOR_SHARE * STARTUP_PRIOR
        self.likelihoods = LIKELIHOOD_DECAY * self.likelihoods + np.log(density)

    def _weights(self) -> Array:
        """Return the weight of each prediction, (s, w, 2 d), from its likelihood for this worker and the mean one."""
        found = self.likelihoods + self.likelihoods.mean(axis=1, keepdims=True)
        return _normalised(np.exp(found - found.max(axis=-1, keepdims=True)))

    def _predictions(self) -> Array:
        """Return the predicted distributions, (s, 2 d, w, b)."""
        shared = _normalised(self.counts.sum(axis=2, keepdims=True))
        own = self.counts + np.array(SHARED_COUNTS)[:, None, None] * shared[:, -1:]
        return np.concatenate([_normalised(own), np.broadcast_to(shared, own.shape)], axis=1)

    def drawn(self, number: int, random: np.random.Generator) -> tuple[Array, Array]:
        """Draw times of `number` next rounds.

        Return the times of the first round's load, (number, workers), s, and the start-up cost in samples, (number, 1).
        """
        parts = (np.arange(number) + 0.5) / number
        which = np.searchsorted(np.cumsum(self.posterior)[:-1], parts)
        quantiles = random.permuted(np.tile(parts, (self.counts.shape[2], 1)), axis=1)
        bins = np.empty_like(quantiles)
        for s in np.unique(which):
            mine = which == s
            total = np.cumsum(np.einsum("wp,pwb->wb", self._weights()[s], self.predictions[s]), axis=-1)
            bins[:, mine] = (total[:, None] < (quantiles[:, mine] * total[:, -1:])[..., None]).sum(axis=-1)
        return np.exp((bins.T - BINS // 2) * BIN_WIDTH + self.middle), self.load * STARTUP_LOADS[which, None]

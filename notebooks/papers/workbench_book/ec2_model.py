"""Model of paper 1's EC2 machines: constants fitted to its speedups, and the contribution of each factor.

The paper's model (section III-C) has a computing time of shift a and rate mu, and t_c per message; we add a latency
per message. Speedups are ratios of times, so they determine the constants only up to one common factor. a is set to
5e-5 s a sample of 5000 features (the paper's assumption in section IV-B) and grows with the features.

With these constants alone, GC's time divided by CR's is bounded. Without computing time, this ratio is below
(N - S) / (L (n - s)), 6.5 for figure 9a. With computing time only, it is below the ratio of the two loads. The paper
has 27.2. A second model therefore lets a port slow down with the number of its senders: t_c (1 + gamma (senders - 1)),
as ports do into which many machines send at once (incast).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from workbench.analysis.planning.shapley import shapley
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.presets.codedreduce import SHIFT_S_PER_SAMPLE, Preset, presets

SAMPLES_OF = 5000.0  # number of features for which the constants are given
FITTED_ON = ("fig8", "fig9a", "fig9c", "fig11b")
TESTED_ON = ("fig2", "fig9b", "fig10", "fig11a", "fig11c", "fig12")
# Published speedups are at equal error. These schemes and CR take the same steps, so their speedups are also ratios of
# times per round, which a cluster's constants give. SGD takes other steps, so its speedup depends on the number of
# rounds as well.
SAME_STEPS = ("UMW", "GC", "RAR")
LOGS = (-18.0, 5.0)  # limits of the search, as logarithms of the constants
STARTS = (
    (1.0, 6e-3, 6e-3, 0.02),
    (10.0, 1e-2, 1e-2, 0.03),
    (0.3, 2e-3, 1e-3, 0.1),
)  # starting points of the search


@dataclass(frozen=True)
class Constants:
    """Constants of a cluster. Times are for vectors of 5000 floats, and for samples of 5000 features."""

    shift: float = SHIFT_S_PER_SAMPLE  # s/sample
    spread: float = 1.0  # 1 / (a mu): mean random part of a computing time, divided by the fixed part
    latency: float = 1e-3  # s per message
    transfer: float = 1e-2  # s per message of 5000 floats on a port with one sender
    crowding: float = 0.0  # gamma: growth of the transfer per further sender
    random: bool = True  # False: every worker takes the mean time

    def experiment(self, e: Experiment) -> Experiment:
        """Return the same experiment on a cluster with these constants."""
        samples_share = e.shape()[1] / SAMPLES_OF
        shift = self.shift * samples_share
        delays: dict[str, Any] = {"kind": "constant", "shift": shift * (1 + self.spread)}
        if self.random:
            delays = {"kind": "shifted_exponential", "shift": shift, "rate": 1 / (self.spread * shift)}
        transfer = self.transfer * (1 + self.crowding * (senders(e) - 1))
        link = {"latency": self.latency, "bandwidth": 8 * SAMPLES_OF / transfer if transfer else None}
        return e.replace(delays=delays, link=link)


def senders(e: Experiment) -> int:
    """Return the maximum number of nodes that send to one port: the children of the master, one in a ring.

    >>> from workbench.core.presets.codedreduce import presets
    >>> [senders(presets["fig9a"][scheme]) for scheme in ("UMW", "RAR", "CR")]
    [156, 1, 12]
    """
    if e.scheme == "RAR":
        return 1
    return int(e.scheme_args.get("children", e.workers))


def seconds(
    preset: Iterable[Experiment], constants: Constants, rounds: int, seed: int = 0
) -> dict[str, float]:
    """Return the mean time per round by scheme, s."""
    return {e.scheme: forecast(constants.experiment(e), rounds, seed).mean for e in preset}


def ratios(
    preset: Preset, constants: Constants, rounds: int, seed: int = 0, schemes: Sequence[str] = ()
) -> dict[str, float]:
    """Return each scheme's time per round divided by CR's. Default: schemes with a published speedup of CR."""
    chosen = schemes or tuple(preset.published)
    found = seconds([preset[name] for name in ("CR", *chosen)], constants, rounds, seed)
    return {name: found[name] / found["CR"] for name in chosen}


def speedups(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return figure and scheme of each published speedup in the named figures that is a ratio of times per round.

    >>> speedups(["fig2", "fig8"])
    (('fig2', 'UMW'), ('fig2', 'GC'), ('fig2', 'RAR'), ('fig8', 'UMW'), ('fig8', 'GC'), ('fig8', 'RAR'))
    """
    return tuple(
        (name, scheme) for name in names for scheme in presets[name].published if scheme in SAME_STEPS
    )


FITTED = speedups(FITTED_ON)  # pairs to which the constants were fitted; for these, agreement has no meaning


def column(figure: str, scheme: str) -> str:
    """Return "fitted" if the constants were fitted to this speedup, else "tested".

    >>> column("fig9a", "GC"), column("fig9a", "SGD"), column("fig9b", "GC")
    ('fitted', 'tested', 'tested')
    """
    return "fitted" if (figure, scheme) in FITTED else "tested"


def residuals(names: Sequence[str], constants: Constants, rounds: int, seed: int = 0) -> Array:
    """Return log(computed / published) for each of the `speedups` in the named figures."""
    found = {name: ratios(presets[name], constants, rounds, seed, SAME_STEPS) for name in names}
    logs = [
        math.log(found[name][scheme] / presets[name].published[scheme]) for name, scheme in speedups(names)
    ]
    return np.array(logs)


def factor(residual: Array) -> float:
    """Return the typical factor between computed and published numbers: exp of the root mean square of the logs."""
    return float(np.exp(np.sqrt(np.mean(residual**2))))


def fit(
    crowding: bool, rounds: int, evaluations: int, seed: int = 0, names: Sequence[str] = FITTED_ON
) -> Constants:
    """Fit the constants to the figures in `names`: least squares of the `residuals` of forecasts, by Nelder-Mead.

    The forecasts of all trials use the same draws. The objective is therefore smooth in the constants up to the order
    of arrivals. `evaluations`: max evaluations from each of the three starting points.
    """
    from scipy.optimize import minimize

    def off(logs: Array) -> float:
        return float(np.mean(residuals(names, _constants(logs), rounds, seed) ** 2))

    starts = [np.log(start if crowding else start[:3]) for start in STARTS]
    found = [minimize(off, s, method="Nelder-Mead", options={"maxfev": evaluations}) for s in starts]
    return _constants(min(found, key=lambda each: each.fun).x)


def _constants(logs: Array) -> Constants:
    spread, latency, transfer, *crowding = np.exp(np.clip(logs, *LOGS)).tolist()
    return Constants(SHIFT_S_PER_SAMPLE, spread, latency, transfer, *crowding)


# ---------------------------------------------------------------- decomposition of a speedup

FACTORS = ("stragglers", "latency", "transfers", "crowded ports")


def without(constants: Constants, off: Iterable[str]) -> Constants:
    """Return the same cluster without some of the `FACTORS`. Without transfers, incast is removed as well."""
    changes: Mapping[str, dict[str, Any]] = {
        "stragglers": {"random": False},
        "latency": {"latency": 0.0},
        "transfers": {"transfer": 0.0},
        "crowded ports": {"crowding": 0.0},
    }
    merged: dict[str, Any] = {}
    for name in off:
        merged |= changes[name]
    return replace(constants, **merged)


def decomposed(
    preset: Preset, constants: Constants, rounds: int, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Return factors whose product is each speedup of CR: "load", and each of `FACTORS`.

    A factor is the Shapley value of the speedup's logarithm: the mean of its contribution over all orders in which
    the factors can be switched on. "load" is the speedup with all off: the ratio of the computing times of identical
    workers.
    """
    known: dict[frozenset[str], dict[str, float]] = {}
    for size in range(len(FACTORS) + 1):
        for on in itertools.combinations(FACTORS, size):
            off = [name for name in FACTORS if name not in on]
            known[frozenset(on)] = ratios(preset, without(constants, off), rounds, seed)
    return {scheme: _taken_apart(known, scheme) for scheme in preset.published}


def _taken_apart(known: Mapping[frozenset[str], Mapping[str, float]], scheme: str) -> dict[str, float]:
    """Return a speedup's factors, from the speedups with some of `FACTORS` switched on."""
    parts = shapley(FACTORS, lambda on: math.log(known[on][scheme]))
    return {"load": known[frozenset()][scheme]} | {name: math.exp(part) for name, part in parts.items()}


def words(constants: Constants) -> dict[str, Any]:
    """Return the constants as plain data, for other entries."""
    return asdict(constants)

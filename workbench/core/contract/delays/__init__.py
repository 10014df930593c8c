"""Delay models: the time that a worker takes for its samples. Times are in seconds, loads in samples.

To add a delay model, add a file with a subclass of `DelayModel` that has a `kind`.

Draws depend on (seed, round, slot) and on the index of the worker, and not on the order of the calls. All schemes that
are compared therefore have the same stragglers.

Some delay models have few values (constant, heterogeneous, markov, fritchman, replay), so that several workers can take
exactly the same time. Their order of arrival is then drawn per (seed, round, worker), from a separate random stream
(`DelayStream.ties`). No rank is favoured, and schemes that are compared share the order. The order is drawn only if
times are equal.
"""

from workbench.core.contract.delays.base import (
    CACHED_ROUNDS,
    CounterRNG,
    DelayModel,
    Delays,
    DelayStream,
    PerSample,
    delay_models,
    law_of,
)
from workbench.core.contract.delays.changing import Changing
from workbench.core.contract.delays.combined import Groups, Mixture
from workbench.core.contract.delays.distributions import Distribution, Gamma, Lognormal, Weibull
from workbench.core.contract.delays.independent import (
    Constant,
    Exponential,
    Pareto,
    ShiftedExponential,
    TwoPart,
)
from workbench.core.contract.delays.replay import Replay, recorded, resampled, resampled_indices
from workbench.core.contract.delays.two_state import Fritchman, Heterogeneous, Markov

__all__ = [
    "CACHED_ROUNDS",
    "Changing",
    "Constant",
    "CounterRNG",
    "DelayModel",
    "DelayStream",
    "Delays",
    "Distribution",
    "Exponential",
    "Fritchman",
    "Gamma",
    "Groups",
    "Heterogeneous",
    "Lognormal",
    "Markov",
    "Mixture",
    "Pareto",
    "PerSample",
    "Replay",
    "ShiftedExponential",
    "TwoPart",
    "Weibull",
    "delay_models",
    "law_of",
    "recorded",
    "resampled",
    "resampled_indices",
]  # fmt: skip

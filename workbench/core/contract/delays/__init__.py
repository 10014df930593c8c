"""Delay models: how long a worker takes for its samples. Seconds and samples everywhere.

To add one, add a file with a subclass of `DelayModel` that has a `kind`; nothing else needs an edit.

Draws are keyed by (seed, round, slot) and by the worker's place in the drawn vector, never by who asks
first, so all schemes that are compared meet the same stragglers.

Delay models of few values (constant, heterogeneous, markov, replay) let several workers take the very same time. Who
of them comes first is drawn too, per (seed, round, worker) from a stream of its own (`DelayStream.ties`): nobody's
rank counts, and schemes that are compared on a seed share it. Where no times are equal it is never asked for.
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
from workbench.core.contract.delays.independent import (
    Constant,
    Exponential,
    Pareto,
    ShiftedExponential,
    TwoPart,
)
from workbench.core.contract.delays.replay import Replay, recorded, resampled, resampled_indices
from workbench.core.contract.delays.two_state import Heterogeneous, Markov

__all__ = [
    "CACHED_ROUNDS",
    "Changing",
    "Constant",
    "CounterRNG",
    "DelayModel",
    "DelayStream",
    "Delays",
    "Exponential",
    "Heterogeneous",
    "Markov",
    "Pareto",
    "PerSample",
    "Replay",
    "ShiftedExponential",
    "TwoPart",
    "delay_models",
    "law_of",
    "recorded",
    "resampled",
    "resampled_indices",
]  # fmt: skip

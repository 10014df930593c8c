"""Workbench: experiments with straggler-tolerant gradient aggregation.

>>> import workbench as wb
>>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> trace.rounds["loss"].is_monotonic_decreasing
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from workbench import schemes
from workbench.errors import QuorumLost, RunError, Stalled
from workbench.experiment import Experiment, Fault
from workbench.settings import SettingError

__version__ = "0.1.0"

# Loaded when first asked for, so that `import workbench` stays quick: name -> module, attribute.
_LAZY = {
    "Trace": ("workbench.trace", "Trace"),
    "compare": ("workbench.runner", "compare"),
    "figures": ("workbench.figures", None),
    "forecast": ("workbench.forecasting", "forecast"),
    "presets": ("workbench.published", "presets"),
    "problems": ("workbench.problems", None),
    "run": ("workbench.runner", "run"),
    "theory": ("workbench.theory", None),
}

__all__ = ["Experiment", "Fault", "QuorumLost", "RunError", "SettingError", "Stalled", "schemes", *sorted(_LAZY)]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    value = import_module(module) if attribute is None else getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

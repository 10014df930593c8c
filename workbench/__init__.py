"""Workbench: experiments with straggler-tolerant gradient aggregation.

Everything is loaded when first asked for, so that `import workbench` takes no time.

>>> import workbench as wb
>>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> trace.rounds["loss"].is_monotonic_decreasing
True
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {  # name -> module, attribute (None: the module itself)
    "ClusterError": ("workbench.errors", "ClusterError"),
    "ClusterProfile": ("workbench.profiles", "ClusterProfile"),
    "DataError": ("workbench.problems.data", "DataError"),
    "Experiment": ("workbench.experiment", "Experiment"),
    "Fault": ("workbench.experiment", "Fault"),
    "QuorumLost": ("workbench.errors", "QuorumLost"),
    "RunError": ("workbench.errors", "RunError"),
    "SettingError": ("workbench.settings", "SettingError"),
    "Stalled": ("workbench.errors", "Stalled"),
    "Trace": ("workbench.trace", "Trace"),
    "batch": ("workbench.batch", None),
    "attach": ("workbench.realrun", "attach"),
    "compare": ("workbench.runner", "compare"),
    "explore": ("workbench.widgets", "explore"),
    "figures": ("workbench.figures", None),
    "forecast": ("workbench.forecasting", "forecast"),
    "interactive": ("workbench.launch.interactive", "interactive"),
    "live": ("workbench.live", None),
    "plan": ("workbench.planner", "plan"),
    "presets": ("workbench.published", "presets"),
    "problems": ("workbench.problems", None),
    "profile": ("workbench.profiling", "profile"),
    "resume": ("workbench.realrun", "resume"),
    "rivals": ("workbench.published", "rivals"),
    "run": ("workbench.runner", "run"),
    "runs": ("workbench.store", "runs"),
    "schemes": ("workbench.schemes", None),
    "start": ("workbench.live", "start"),
    "start_all": ("workbench.live", "start_all"),
    "straightline": ("workbench.straightline", None),
    "theory": ("workbench.theory", None),
    "tune": ("workbench.tuning", "tune"),
    "watch": ("workbench.widgets", "watch"),
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    value = import_module(module) if attribute is None else getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})

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

__version__ = "1.0.0"

_PUBLIC = {  # name -> module, attribute (None: the module itself)
    "ClusterError": ("workbench.base.errors", "ClusterError"),
    "ClusterProfile": ("workbench.planning.profile", "ClusterProfile"),
    "DataError": ("workbench.problems.data", "DataError"),
    "Experiment": ("workbench.experiment", "Experiment"),
    "Fault": ("workbench.experiment", "Fault"),
    "QuorumLost": ("workbench.base.errors", "QuorumLost"),
    "RunError": ("workbench.base.errors", "RunError"),
    "RunsTable": ("workbench.widgets", "RunsTable"),
    "SettingError": ("workbench.base.settings", "SettingError"),
    "Stalled": ("workbench.base.errors", "Stalled"),
    "Trace": ("workbench.trace.trace", "Trace"),
    "batch": ("workbench.batch", None),
    "attach": ("workbench.running.real", "attach"),
    "check": ("workbench.checking.check", "check"),
    "compare": ("workbench.running.start", "compare"),
    "diagnose": ("workbench.recordings.doctor", "diagnose"),
    "explore": ("workbench.widgets", "explore"),
    "figures": ("workbench.figures", None),
    "forecast": ("workbench.forecasting", "forecast"),
    "interactive": ("workbench.running.ipyparallel.interactive", "interactive"),
    "live": ("workbench.running.start", None),
    "plan": ("workbench.planning.planner", "plan"),
    "presets": ("workbench.batch.published.codedreduce", "presets"),
    "problems": ("workbench.problems", None),
    "profile": ("workbench.planning.measuring", "profile"),
    "resume": ("workbench.running.real", "resume"),
    "rivals": ("workbench.batch.published.codedreduce", "rivals"),
    "run": ("workbench.running.start", "run"),
    "runs": ("workbench.trace.table", "runs"),
    "schemes": ("workbench.schemes", None),
    "start": ("workbench.running.start", "start"),
    "start_all": ("workbench.running.start", "start_all"),
    "stream": ("workbench.widgets", "stream"),
    "straightline": ("workbench.batch.straightline", None),
    "theory": ("workbench.theory", None),
    "traces": ("workbench.recordings", None),
    "tune": ("workbench.planning.search", "tune"),
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

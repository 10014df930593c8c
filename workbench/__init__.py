"""Workbench: experiments with straggler-tolerant gradient aggregation.

Each name is loaded when it is first used, so that `import workbench` is fast.

>>> import workbench as wb
>>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5))
>>> trace.rounds["loss"].is_monotonic_decreasing
True
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import Any

from workbench.core.base.version import __version__ as __version__

_PUBLIC = {  # name -> module, attribute (None: the module itself)
    "Cluster": ("workbench.mpi.clusters.base", "Cluster"),
    "ClusterError": ("workbench.core.base.errors", "ClusterError"),
    "ClusterProfile": ("workbench.analysis.planning.profile", "ClusterProfile"),
    "DataError": ("workbench.core.problems.data", "DataError"),
    "DelayModel": ("workbench.core.contract.delays", "DelayModel"),
    "Experiment": ("workbench.core.experiment", "Experiment"),
    "Fault": ("workbench.core.contract.faults", "Fault"),
    "Optimiser": ("workbench.core.contract.optimisers", "Optimiser"),
    "PerSample": ("workbench.core.contract.delays", "PerSample"),
    "Problem": ("workbench.core.problems", "Problem"),
    "ProblemArgs": ("workbench.core.problems", "ProblemArgs"),
    "QuorumLost": ("workbench.core.base.errors", "QuorumLost"),
    "RunError": ("workbench.core.base.errors", "RunError"),
    "RunsTable": ("workbench.lab.widgets", "RunsTable"),
    "Schedule": ("workbench.core.contract.optimisers", "Schedule"),
    "Scheme": ("workbench.core.contract.scheme", "Scheme"),
    "SettingError": ("workbench.core.base.settings", "SettingError"),
    "Deadlock": ("workbench.core.base.errors", "Deadlock"),
    "Trace": ("workbench.core.trace.trace", "Trace"),
    "WrongAnswer": ("workbench.core.contract.faults", "WrongAnswer"),
    "batch": ("workbench.lab.batch", None),
    "attach": ("workbench.mpi.running.engine", "attach"),
    "check": ("workbench.core.checking.check", "check"),
    "compare": ("workbench.core.running.start", "compare"),
    "diagnose": ("workbench.analysis.recordings.diagnosis", "diagnose"),
    "explore": ("workbench.lab.widgets", "explore"),
    "figures": ("workbench.lab.figures", None),
    "forecast": ("workbench.core.forecasting", "forecast"),
    "interactive": ("workbench.mpi.running.ipyparallel.interactive", "interactive"),
    "live": ("workbench.core.running.start", None),
    "plan": ("workbench.analysis.planning.planner", "plan"),
    "presets": ("workbench.core.presets.codedreduce", "presets"),
    "problems": ("workbench.core.problems", None),
    "profile": ("workbench.analysis.planning.measuring", "profile"),
    "record": ("workbench.analysis.recorder.record", "record"),
    "report": ("workbench.lab.batch.report_page", "report"),
    "resume": ("workbench.mpi.running.engine", "resume"),
    "baselines": ("workbench.core.presets.codedreduce", "baselines"),
    "run": ("workbench.core.running.start", "run"),
    "runs": ("workbench.analysis.tables.table", "runs"),
    "schemes": ("workbench.core.schemes", None),
    "start": ("workbench.core.running.start", "start"),
    "start_all": ("workbench.core.running.start", "start_all"),
    "stream": ("workbench.lab.widgets", "stream"),
    "quickstart": ("workbench.lab.batch.quickstart", None),
    "theory": ("workbench.core.theory", None),
    "traces": ("workbench.analysis.recordings", None),
    "tune": ("workbench.analysis.planning.search", "tune"),
    "watch": ("workbench.lab.widgets", "watch"),
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    try:
        value = _import_module(module) if attribute is None else getattr(_import_module(module), attribute)
    except (ImportError, AttributeError, TypeError) as error:
        from workbench.core.base.shadows import shadowed

        if sentence := shadowed(error):
            raise ImportError(sentence) from error
        if isinstance(error, ModuleNotFoundError):
            from workbench.core.base.extras import not_installed

            raise not_installed(f"wb.{name}", error) from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, "__version__"])

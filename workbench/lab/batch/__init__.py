"""Batches: many experiments, that can be stopped and resumed at any time. Each may have its own notebook.

>>> plan = Sweep(base={"rounds": 20}, grid={"scheme": ["CR", "UMW"]}, seeds=5)
>>> len(plan.items())
10

`sweep(plan, "runs/first", jobs=2)` runs them and waits. `start` runs them in a process of their own, which `attach`
finds again. `wb.runs("runs/first")` is the table of the results.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from workbench.lab.batch.executors import ExecutorSettings
from workbench.lab.batch.jobs import Job, job
from workbench.lab.batch.sampling import Sample, Span
from workbench.lab.batch.searches import Crossing, Optimum
from workbench.lab.batch.sweeps import Item, Sweep

if TYPE_CHECKING:
    from workbench.lab.batch.background import Progress, SweepRun, attach, start
    from workbench.lab.batch.run import Summary, restore, sweep

_LATER = dict.fromkeys(("Summary", "restore", "sweep"), "run") | dict.fromkeys(
    ("Progress", "SweepRun", "attach", "start"), "background"
)
__all__ = ["Crossing", "Item", "Job", "Optimum", "Progress", "Sample", "Span", "Summary", "Sweep", "SweepRun"]
__all__ += ["ExecutorSettings", "attach", "job", "restore", "start", "sweep"]


def __getattr__(name: str) -> Any:
    """Import a function at first use, because kernels need only `job`, which works without papermill."""
    if name not in _LATER:
        raise AttributeError(f"module 'workbench.lab.batch' has no attribute {name!r}")
    return getattr(_import_module(f"workbench.lab.batch.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Batches: many experiments, each in a notebook of its own, that can be stopped and gone on with at any time.

>>> plan = Sweep(base={"rounds": 20}, grid={"scheme": ["CR", "UMW"]}, seeds=5)
>>> len(plan.items())
10

`sweep(plan, "runs/first", jobs=2)` runs them; `wb.runs("runs/first")` is the table of what came out.
"""

from typing import TYPE_CHECKING, Any

from workbench.batch.jobs import Job, job
from workbench.batch.sampling import Sample, Span
from workbench.batch.sweeps import Item, Sweep

if TYPE_CHECKING:
    from workbench.batch.run import Summary, sweep

__all__ = ["Item", "Job", "Sample", "Span", "Summary", "Sweep", "job", "sweep"]


def __getattr__(name: str) -> Any:
    """`sweep` is loaded when first asked for: a kernel, which only needs `job`, can do without papermill."""
    if name not in ("Summary", "sweep"):
        raise AttributeError(f"module 'workbench.batch' has no attribute {name!r}")
    from workbench.batch import run as sweeping

    return getattr(sweeping, name)

"""Assembly of a trace from an engine's timeline and the losses of the models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.contract.adaptive import Change
from workbench.core.engine.timeline import COUNTS, Timeline
from workbench.core.experiment import Experiment
from workbench.core.trace.learning import Learnt, evaluated
from workbench.core.trace.trace import Trace, run_info


def columns_of(timeline: Timeline, learnt: Learnt, rounds: int, first: int = 0) -> dict[str, NDArray[Any]]:
    """Return the columns of a trace for rounds `first` to `rounds` - 1: times of commits, losses, metrics and costs."""
    columns: dict[str, Any] = {"time": timeline.times, "loss": learnt.loss, **learnt.metrics}
    columns |= {name: getattr(timeline, name) for name in COUNTS if name != "stale"}
    columns |= {"residual": timeline.residuals, "stale": timeline.stale}
    found = {name: np.array(column[first:rounds]) for name, column in columns.items()}
    return {"round": np.arange(min(first, rounds), rounds), **found}


def assemble(e: Experiment, timeline: Timeline, learnt: Learnt, **how: Any) -> Trace:
    """Return the trace of a simulated run, with the rounds of its timeline."""
    info = run_info(
        e, load=e.load, events_handled=timeline.handled, **changes_as_info(timeline.changes), **how
    )
    columns = columns_of(timeline, learnt, len(timeline.times))
    return Trace(e, "sim", columns, timeline.events, learnt.model, learnt.initial, info)


def changes_as_info(changes: Sequence[Change]) -> dict[str, Any]:
    """Return changes of scheme in the form of run.json, or empty if there were none."""
    return {"changes": [change._asdict() for change in changes]} if changes else {}


def diverged(trace: Trace) -> list[str]:
    """Return a warning if the loss stopped being finite, with the first such round."""
    e, loss = trace.experiment, np.asarray(trace.columns["loss"])
    due = np.array([evaluated(r, len(loss), e.evaluation_interval) for r in range(len(loss))], dtype=bool)
    bad = np.flatnonzero(~np.isfinite(loss) & due)
    what = f"take a smaller step than {e.optimiser_args}"
    return [f"{e.scheme}: the loss is not finite from round {bad[0]} on; {what}"] if len(bad) else []

"""Traces of real runs, made from the ledgers of all ranks and the losses of the models."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.types import Array
from workbench.core.contract.adaptive import Change
from workbench.core.engine.timeline import COUNTS, Timeline
from workbench.core.experiment import Experiment
from workbench.core.problems import Problem, Request
from workbench.core.problems.base import Evaluation
from workbench.core.trace import records
from workbench.core.trace.assembled import changes_as_info, columns_of
from workbench.core.trace.learning import Learnt, evaluated
from workbench.core.trace.trace import Trace, run_info
from workbench.mpi.engine.ledger import COUNTERS, MergedLedgers

MODELS_PER_PASS = 16  # number of models that are evaluated in one pass over the data
Progress = Callable[[int, int], None]
# columns of live rows, which are used for rounds whose ledgers are lost
_LIVE_COUNTS = ("messages", "bytes", "stale")


def changes_of(folder: Path) -> list[Change]:
    """Return the changes of scheme in a run folder."""
    return [Change(**{name: each[name] for name in Change._fields}) for each in records.read_changes(folder)]


def put_together(
    e: Experiment,
    folder: Path,
    ended: dict[str, Any],
    problem: Problem,
    losses: dict[int, Evaluation],
    progress: Progress,
) -> Trace:
    """Return the trace of a real run that has ended. `losses`: known losses. The others are evaluated now."""
    ledgers = MergedLedgers(records.read_ledgers(folder))
    rows = records.read_rows(folder)
    first, zero = ended["first"], ended["zero"] or 0.0
    timeline = _after(rows, ledgers.timeline(zero, ended["committers"]), first, ended.get("offset"))
    # in an all-reduce, workers may be ahead of the master, which only records
    k = min(len(timeline.times), len(rows))
    learnt = learn_again(e, problem, folder, k, losses, progress)
    columns = columns_of(timeline, learnt, k)
    for name in ("overrun", "rejected", "abandoned"):
        columns[name] = np.array([0] * min(first, k) + ledgers.count(name, k)[first:])
    stretches = records.read_stretches(folder)
    earlier = [
        (stretch, MergedLedgers(records.read_ledgers(folder, stretch.ledgers))) for stretch in stretches
    ]
    events = _with_earlier(earlier, ledgers.events(zero - ended.get("offset", 0.0)), columns)
    computed = sum(sum(ledger.count("computed", stretch.end)) for stretch, ledger in earlier)
    facts = _facts(ledgers, ended, columns, computed)
    info = run_info(e, load=e.load, **facts, **changes_as_info(changes_of(folder)))
    return Trace(e, "mpi", columns, events, learnt.model, learnt.initial, info, folder)


def _with_earlier(
    earlier: Sequence[tuple[records.Stretch, MergedLedgers]],
    events: dict[str, Any],
    columns: dict[str, NDArray[Any]],
) -> dict[str, NDArray[Any]]:
    """Return the events of all segments of a run, and put the segments' counts into the columns."""
    parts = []
    for stretch, ledgers in earlier:
        found = ledgers.events(stretch.zero)
        counts = found["round"] < stretch.end  # rounds that were repeated later have events of their own
        parts.append({name: column[counts] for name, column in found.items()})
        for name in COUNTERS:
            if name in columns:
                rounds = slice(stretch.first, stretch.end)
                columns[name][rounds] = ledgers.count(name, stretch.end)[rounds]
    return {name: np.concatenate([piece[name] for piece in [*parts, events]]) for name in events}


def _facts(
    ledgers: MergedLedgers, ended: dict[str, Any], columns: dict[str, NDArray[Any]], computed: int
) -> dict[str, Any]:
    """Return the facts of a real run that its folder stores besides the tables.

    `computed`: number of computations in earlier segments.
    """
    done = max(computed + sum(ledgers.count("computed", len(columns["round"]))), 1)
    return {
        "measured": True,
        **{name: ended[name] for name in ("emulate", "state", "clean", "dead", "setup", "first")},
        **{name: ended[name] for name in ("hosts", "clock_error", "places") if name in ended},
        "overrun_share": float(columns["overrun"].sum()) / done,
        "busy": float(np.median(ledgers.count("busy", len(columns["round"])) or [0])) / 1e6,
        "refused": ledgers.refusals(),
        "events_handled": sum(int(b["handled"]) for b in ledgers.ledgers),
    }


def _after(rows: Array, timeline: Timeline, first: int, offset: float | None) -> Timeline:
    """Return the timeline of a resumed run.

    Rounds before `first` come from the live rows, the rest from the ledgers, `offset` s later.
    """
    if not first:
        return timeline
    column = {name: rows[:first, i] for i, name in enumerate(records.LIVE_COLUMNS)}
    offset = float(column["time"][-1]) if offset is None else offset
    times = column["time"].tolist() + [t + offset for t in timeline.times]
    whole = Timeline(times, column["residual"].tolist() + timeline.residuals)
    for name in COUNTS:
        before = column[name].astype(int).tolist() if name in _LIVE_COUNTS else [0] * first
        setattr(whole, name, before + getattr(timeline, name))
    return whole


def learn_again(
    e: Experiment,
    problem: Problem,
    folder: Path,
    rounds: int,
    losses: dict[int, Evaluation],
    progress: Progress,
) -> Learnt:
    """Return losses and metrics at the models of a run. Several models share one pass over the data."""
    before = problem.start()
    learnt = Learnt(before, problem.evaluate([Request(before, gradient=False, test=True)])[0])
    for k in range(0, rounds, MODELS_PER_PASS):
        models = records.read_models(folder, problem.size, k, min(MODELS_PER_PASS, rounds - k))
        due = [evaluated(k + i, rounds, e.evaluation_interval) for i in range(len(models))]
        missing = [i for i, wanted in enumerate(due) if wanted and k + i not in losses]
        with np.errstate(over="ignore", invalid="ignore"):
            found = problem.evaluate([Request(models[i], gradient=False, test=True) for i in missing])
            losses.update({k + i: evaluation for i, evaluation in zip(missing, found, strict=True)})
            for i, model in enumerate(models):
                learnt.moved(before, model, problem.truth)
                learnt.add(losses[k + i] if due[i] else None)
                before = model
        progress(min(k + MODELS_PER_PASS, rounds), rounds)
    return learnt

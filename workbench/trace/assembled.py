"""From a real run's folder to its trace: what the ranks wrote down, and the losses of the models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from workbench.base.types import Array
from workbench.engines.real.ledger import Books
from workbench.engines.timeline import COUNTS, Timeline
from workbench.experiment import Experiment
from workbench.problems import Problem, Request
from workbench.problems.base import Evaluation
from workbench.trace import records
from workbench.trace.learning import Learnt
from workbench.trace.trace import Trace, run_info

CHUNK = 16  # models that are evaluated in one pass over the data
Progress = Callable[[int, int], None]
_LIVE_COUNTS = ("messages", "bytes", "stale")  # what rows say of rounds whose books are lost


def put_together(
    e: Experiment,
    folder: Path,
    ended: dict[str, Any],
    problem: Problem,
    losses: dict[int, Evaluation],
    progress: Progress,
) -> Trace:
    """Trace of a run that has ended. `losses` holds those that are known; the others are evaluated now."""
    books = Books(records.read_books(folder))
    rows = records.read_rows(folder)
    line = books.timeline(ended["zero"] or 0.0, ended["committers"])
    line = _after(rows, line, ended["first"])
    k = min(len(line.times), len(rows))  # a ring's workers may be ahead of the master, who only looks on
    line = line.until(k)
    learnt = learn_again(problem, folder, k, losses, progress)
    columns: dict[str, Any] = {
        "round": np.arange(k),
        "time": np.array(line.times),
        "loss": np.array(learnt.loss),
        **{name: np.array(values) for name, values in learnt.metrics.items()},
        **{name: np.array(getattr(line, name)) for name in COUNTS},
        "residual": np.array(line.residuals),
        **{
            name: np.array(_padded(books, name, ended["first"], k))
            for name in ("overrun", "rejected", "abandoned")
        },
    }
    info = run_info(e, load=e.load, **_facts(books, ended, columns))
    initial = {"loss": learnt.initial_loss, **learnt.initial_metrics}
    return Trace(e, "mpi", columns, books.events(ended["zero"] or 0.0), learnt.model, initial, info)


def _facts(books: Books, ended: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    """What a run folder keeps of a real run besides the tables."""
    done = max(sum(books.count("computed", len(columns["round"]))), 1)
    return {
        "measured": True,
        **{name: ended[name] for name in ("emulate", "state", "clean", "dead", "setup", "first")},
        **{name: ended[name] for name in ("hosts", "clock_error") if name in ended},
        "overrun_share": float(columns["overrun"].sum()) / done,
        "refused": books.refusals(),
        "events_handled": sum(int(b["handled"]) for b in books.books),
    }


def _padded(books: Books, name: str, first: int, rounds: int) -> list[int]:
    return [0] * min(first, rounds) + books.count(name, rounds)[first:]


def _after(rows: Array, line: Timeline, first: int) -> Timeline:
    """A run that was resumed: its first rounds as the rows have them, then the books of the rest."""
    if not first:
        return line
    column = {name: rows[:first, i] for i, name in enumerate(records.LIVE)}
    offset = float(column["time"][-1])
    whole = Timeline(
        times=column["time"].tolist() + [t + offset for t in line.times],
        residuals=column["residual"].tolist() + line.residuals,
    )
    for name in COUNTS:
        before = column[name].astype(int).tolist() if name in _LIVE_COUNTS else [0] * first
        setattr(whole, name, before + getattr(line, name))
    return whole


def learn_again(
    problem: Problem, folder: Path, rounds: int, losses: dict[int, Evaluation], progress: Progress
) -> Learnt:
    """Losses and metrics at the models that a run went through, in passes over the data that several share."""
    start = problem.start()
    learnt = Learnt(start)
    first = problem.evaluate([Request(start, gradient=False)])[0]
    learnt.initial_loss, learnt.initial_metrics = first.loss, first.metrics
    before = start
    for k in range(0, rounds, CHUNK):
        models = records.read_models(folder, problem.size, k, min(CHUNK, rounds - k))
        missing = [i for i in range(len(models)) if k + i not in losses]
        with np.errstate(over="ignore", invalid="ignore"):
            found = problem.evaluate([Request(models[i], gradient=False) for i in missing])
            losses.update({k + i: evaluation for i, evaluation in zip(missing, found, strict=True)})
            for i, model in enumerate(models):
                learnt.moved(before, model, problem.truth)
                learnt.add(losses[k + i])
                before = model
        progress(min(k + CHUNK, rounds), rounds)
    return learnt

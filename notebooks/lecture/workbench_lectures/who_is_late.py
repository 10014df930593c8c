"""Lecture 8: who is late, and why? Steps with equal times, their hidden differences, and the cost of late workers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.analysis.recordings import Recording
from workbench.analysis.recordings.diagnosis import diagnose
from workbench.analysis.recordings.verdict import Diagnosis
from workbench.core.base.settings import setting
from workbench.core.experiment import Experiment
from workbench.lab.figures.gallery.culprits import culprits
from workbench.lab.figures.gallery.lateness import lateness
from workbench.lab.figures.style import BLUE, GREY, Theme, new_figure
from workbench_lectures.drawing import HEIGHT
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script

STEPS = 60


class WhoIsLate(Knobs):
    """Job whose workers include late ones."""

    labels: ClassVar = {"late": "late workers", "factor": "how slow", "often": "how often", "view": "look at"}
    choice_labels: ClassVar = {
        "view": {"steps": "steps, as workers see them", "parts": "computing and waiting"}
    }

    workers: int = setting(8, "who sum their gradients after every step", ge=4, le=12)
    late: int = setting(2, "workers that are late", ge=0, le=3)
    factor: float = setting(1.6, "times as long as the others, where they are late", ge=1.05, le=3.0)
    often: float = setting(0.5, "share of the steps in which each of them is late", ge=0.05, le=1.0)
    view: Literal["steps", "parts"] = setting("steps", "what is measured")


@lru_cache(maxsize=64)
def recording(workers: int, late: int, factor: float, often: float) -> Recording:
    """Simulate a job: times of all workers vary a little, and `late` workers (2, 4, 6, ...) are late in some steps."""
    rng = np.random.default_rng(0)
    times = 1 + 0.05 * rng.exponential(size=(STEPS, workers))
    slow = np.isin(np.arange(workers), 1 + np.arange(late) * 2 % (workers - 1))
    times *= np.where(slow & (rng.random((STEPS, workers)) < often), factor, 1.0)
    step, worker = np.indices(times.shape)
    rows = {"worker": worker.ravel() + 1, "step": step.ravel(), "seconds": times.ravel()}
    return Recording.of_rows(pd.DataFrame(rows), f"{workers} workers")


def job(knobs: WhoIsLate) -> Recording:
    """Return the job for the current sliders."""
    return recording(knobs.workers, knobs.late, knobs.factor, knobs.often)


@lru_cache(maxsize=64)
def answer(workers: int, late: int, factor: float, often: float) -> Diagnosis:
    """Return the result of the diagnosis."""
    found = diagnose(recording(workers, late, factor, often))
    assert isinstance(found, Diagnosis)  # not averages
    return found


# ---------------------------------------------------------------- figures


def seen(knobs: WhoIsLate, theme: Theme = "light") -> go.Figure:
    """Draw the mean seconds per step of each worker: in total, or by phase."""
    table = job(knobs).table()
    computing, whole = table.mean().to_numpy(), float(table.max(axis=1).mean())
    text = (
        "an all-reduce ends for all at once"
        if knobs.view == "steps"
        else "who waits least is who is waited for"
    )
    figure = new_figure(theme, "A step, as every worker has it", text, height=HEIGHT)
    who = [f"worker {worker}" for worker in table.columns]
    if knobs.view == "steps":
        figure.add_bar(x=who, y=np.full(len(who), whole), name="a step", marker_color=GREY)
    else:
        figure.add_bar(x=who, y=computing, name="computing", marker_color=BLUE)
        figure.add_bar(x=who, y=whole - computing, name="waiting for others", marker_color=GREY)
    figure.update_layout(barmode="stack", showlegend=True)
    figure.update_yaxes(title_text="mean time of a step, in units", rangemode="tozero")
    return figure


def entries(knobs: WhoIsLate) -> Sequence[Experiment]:
    """Return two experiments with the same delays: UMW waits for all workers, and GC tolerates the late ones."""
    delay_model = {
        "kind": "heterogeneous",
        "slow": knobs.late / knobs.workers,
        "slow_straggles": knobs.often,
        "active_straggles": 0.0,
        "factor": knobs.factor,
    }
    base = Experiment(scheme="UMW", workers=knobs.workers, rounds=40, delays=delay_model)
    return [base, base.replace(scheme="GC", scheme_args={"stragglers": max(1, knobs.late)})]


# ---------------------------------------------------------------- exercises


def alone(knobs: WhoIsLate) -> float:
    """Return the share of the time that one permanently late worker costs."""
    return 1 - 1 / knobs.factor


def first(knobs: WhoIsLate) -> float:
    """Return the cost (Shapley value) of the slower of two late workers.

    A worker that is not late takes 1, the slower one `factor`, and the other one (1 + factor) / 2.
    """
    over = knobs.factor - 1
    return over / 2 + over / 4


def leave(knobs: WhoIsLate) -> str:
    """Return whether leaving out a permanently late worker is faster, if the others share its work."""
    return "out" if knobs.factor > knobs.workers / (knobs.workers - 1) else "in"


EXERCISES: tuple[Exercise[WhoIsLate], ...] = (
    Exercise(
        title="1. One is always late",
        text=lambda k: (
            f"{k.workers} workers take one unit a step, but one of them takes {k.factor:g}, always. A step ends with"
            " the slowest. What share of the time would be saved if that one were like the others?"
        ),
        answer=alone,
        hint=lambda _: "How long is a step now, and how long would it be? The share is of what it is now.",
        slips=((lambda k: k.factor - 1, "That is the share of what a step would be, not of what it is."),),
        why=lambda k: f"<p>1 − 1/{k.factor:g} = {alone(k):.4g}, however many the others are.</p>",
    ),
    Exercise(
        title="2. Two are late: who costs what?",
        text=lambda k: (
            f"Most workers take one unit, one takes {(1 + k.factor) / 2:.5g}, another {k.factor:g}. Fixing the quicker"
            " of these two alone gains nothing. What is the slower one’s cost a step in units, as a Shapley value: the"
            " mean of its gain if it is fixed first, and if it is fixed second?"
        ),
        answer=first,
        hint=lambda _: (
            "Fixed first, a step still lasts as long as the other. Fixed second, all that is left goes."
        ),
        slips=(
            (lambda k: k.factor - 1, "That is what both together cost."),
            (
                lambda k: (k.factor - 1) / 2,
                "That is the gain if it is fixed first. What is it if it comes second?",
            ),
        ),
        why=lambda k: (
            f"<p>First: {k.factor:g} − {(1 + k.factor) / 2:.5g} = {(k.factor - 1) / 2:.5g}. Second: {k.factor:g} − 1 ="
            f" {k.factor - 1:.5g}. The mean is {first(k):.5g}; the other one has the rest of {k.factor - 1:.5g}.</p>"
        ),
    ),
    Exercise(
        title="3. Leave it out?",
        text=lambda k: (
            f"One of {k.workers} workers always takes {k.factor:g} units, the others one. Left out, the others share"
            " its work. What is quicker?"
        ),
        choices=lambda k: {"in": f"all {k.workers} go on", "out": f"the {k.workers - 1} others alone"},
        answer=leave,
        hint=lambda _: "Without it, everybody has a little more to do. Which of the two makes a step longer?",
        why=lambda k: (
            f"<p>With it a step takes {k.factor:g} units; without it {k.workers}/{k.workers - 1} ="
            f" {k.workers / (k.workers - 1):.4g}.</p>"
        ),
    ),
)

JOB = ("workers", "late", "factor", "often")
lecture: Script[WhoIsLate] = Script(
    "8-who-is-late",
    WhoIsLate,
    {
        "seen": LectureFigure((*JOB, "view"), seen),
        "map": LectureFigure(JOB, lambda knobs, theme: lateness(job(knobs), theme)),
        "costs": LectureFigure(
            JOB, lambda k, theme: culprits(answer(k.workers, k.late, k.factor, k.often), theme)
        ),
    },
    entries,
    ("late", "factor", "often"),
    EXERCISES,
    places={  # each position is a job that is diagnosed
        "workers": (4, 8, 12),
        "factor": (1.05, 1.2, 1.6, 3.0),
        "often": (0.05, 0.5, 1.0),
    },
    about="All workers report the same step time: how to find the one that makes it long.",
)

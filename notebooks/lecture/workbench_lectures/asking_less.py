"""Lecture 6: asking less. CADA uses old gradients while they cannot have changed much. G-CADA asks groups."""

from __future__ import annotations

from functools import lru_cache
from math import isclose
from typing import Any, ClassVar, Literal

import numpy as np
import plotly.graph_objects as go

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER
from workbench.core.experiment import Experiment
from workbench.core.running.start import run
from workbench.core.trace.trace import Trace
from workbench.lab.figures import scheme_style
from workbench.lab.figures.style import Theme, new_figure, palette
from workbench_lectures.drawing import HEIGHT
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script

MEAN = 1e-3  # eta, s
SHARD, BATCH = 60, 20  # samples of a worker's shard, and of a mini-batch
ROUNDS = 80  # rounds of the run in the figures
RACE = 250  # rounds of the run to watch
SMOOTHNESS = 0.5  # smoothness L of the worker in exercise 3
PUBLISHED = (12292, 9219)  # communication and computation that paper 3 prints for G-CADA
SCHEMES = ("D-Adam", "CADA", "G-CADA")


class AskingLess(Knobs):
    """Workers, groups, and the two parameters of the rule."""

    labels: ClassVar = {
        "workers": "workers M",
        "groups": "groups G",
        "c": "threshold c",
        "max_age": "age limit D",
    }
    logs: ClassVar = frozenset({"c"})

    workers: int = setting(12, "workers", ge=2, le=24)
    groups: int = setting(4, "groups of workers with the same shard; must divide M", ge=1, le=24)
    c: float = setting(
        5.0, "how much the model may have moved before a gradient counts as old", ge=0.1, le=100
    )
    max_age: int = setting(10, "rounds after which a gradient is old in any case", ge=1, le=30)
    scheme: Literal["CADA", "G-CADA"] = setting("CADA", "whose rounds are shown")

    def fit(self) -> AskingLess:
        """Make the number of groups a divisor of the workers."""
        fits = [g for g in range(1, self.workers + 1) if self.workers % g == 0]
        return self.replace(groups=min(fits, key=lambda g: abs(g - self.groups)))

    def experiment(self, scheme: str, rounds: int) -> Experiment:
        """Return one of the schemes."""
        rule = {"c": self.c, "max_age": self.max_age}
        args: dict[str, dict[str, Any]] = {
            "D-Adam": {},
            "CADA": rule,
            "G-CADA": {**rule, "groups": self.groups},
        }
        return Experiment(
            scheme=scheme,
            scheme_args={**args[scheme], "worker_batch": BATCH},
            workers=self.workers,
            rounds=rounds,
            problem="least_squares",
            problem_args={"samples": SHARD * self.workers, "features": 10},
            optimiser="amsgrad",
            optimiser_args={"rate": 0.01},
            delays={"kind": "exponential", "mean": MEAN},
        )


@lru_cache(maxsize=256)  # room for the runs of all slider positions of a page without a server
def traced(workers: int, groups: int, c: float, max_age: int, scheme: str) -> Trace:
    """Return a short run, for the figures."""
    knobs = AskingLess(workers=workers, groups=groups, c=c, max_age=max_age)
    return run(knobs.experiment(scheme, ROUNDS))


def trace(knobs: AskingLess, scheme: str) -> Trace:
    """Return the run for the current sliders. Sliders that do not affect the scheme have their defaults."""
    groups = knobs.groups if scheme == "G-CADA" else 1
    c, age = (knobs.c, knobs.max_age) if scheme != "D-Adam" else (1.0, 1)
    return traced(knobs.workers, groups, c, age, scheme)


# ---------------------------------------------------------------- figures


def asked_of(found: Trace) -> Array:
    """Return 1 where a worker was asked in a round, since the model was sent to it, and else 0: (workers, rounds)."""
    events = found.events[(found.events["rank"] == MASTER) & (found.events["bytes"] > 0)]
    table = np.zeros((found.experiment.workers, len(found.rounds)))
    table[events["to"].to_numpy() - 1, events["round"].to_numpy()] = 1.0
    return table


def asked(knobs: AskingLess, theme: Theme) -> go.Figure:
    """Draw which workers are asked in which round."""
    found = asked_of(trace(knobs, knobs.scheme))
    share = f"{100 * found.mean():.0f} % of all possible requests · 100 % would be D-Adam"
    figure = new_figure(theme, f"{knobs.scheme}: who is asked for a new gradient?", share, HEIGHT - 40)
    color = scheme_style(knobs.scheme).color
    figure.add_heatmap(
        z=found,
        x=np.arange(1, found.shape[1] + 1),
        y=np.arange(1, len(found) + 1),
        colorscale=[[0.0, palette(theme).grid], [1.0, color]],
        zmin=0,
        zmax=1,
        showscale=False,
        xgap=1,
        ygap=2,
        hovertemplate="worker %{y}, round %{x}: %{z}<extra></extra>",
    )
    figure.update_xaxes(title_text="round", showgrid=False)
    step = 1 if len(found) <= 12 else 2
    return figure.update_yaxes(
        title_text="worker", range=[len(found) + 0.5, 0.5], dtick=step, tick0=1, showgrid=False
    )


def costs(knobs: AskingLess) -> dict[str, Array]:
    """Return time, communication and computation of a mean round, each divided by D-Adam's, (3,), by scheme."""
    found = {}
    for name in SCHEMES:
        rows = trace(knobs, name).rounds
        messages = float((rows["messages"] + rows["downloads"]).sum())
        found[name] = np.array([float(rows["time"].iloc[-1]), messages, float(rows["started"].sum())])
    return {name: values / found["D-Adam"] for name, values in found.items()}


def cost(knobs: AskingLess, theme: Theme) -> go.Figure:
    """Draw the cost of a round."""
    size = knobs.workers // knobs.groups
    about = f"over D-Adam’s, mean of {ROUNDS} rounds · G-CADA: {knobs.groups} groups of {size}"
    figure = new_figure(theme, "What a round costs", about, HEIGHT - 40)
    for name, values in costs(knobs).items():
        style = scheme_style(name)
        figure.add_bar(
            x=["time", "communication", "computation"],
            y=values,
            name=name,
            marker={"color": style.color, "line": {"width": 0}},
            text=[f"{v:.2g}" for v in values],
            textposition="outside",
            cliponaxis=False,
            hovertemplate=f"<b>{name}</b><br>%{{x}}: %{{y:.3g}} of D-Adam’s<extra></extra>",
        )
    figure.update_yaxes(title_text="share of D-Adam’s", rangemode="tozero")
    return figure.update_layout(barmode="group", bargap=0.35)


# ---------------------------------------------------------------- the run to watch


def entries(knobs: AskingLess) -> list[Experiment]:
    """Return schemes that ask all workers, fewer workers, and groups."""
    return [knobs.experiment(name, RACE) for name in SCHEMES]


# ---------------------------------------------------------------- exercises


def implied() -> int:
    """Return the group size that the published costs imply."""
    wanted = PUBLISHED[0] / PUBLISHED[1]
    return next(size for size in range(1, 13) if isclose(theory.communication_ratio(size), wanted))


def gap(knobs: AskingLess) -> float:
    """Return the least number of rounds between two requests of a worker whose smoothness is `SMOOTHNESS`."""
    return round(1 / theory.cada_selected([SMOOTHNESS], knobs.c, knobs.max_age), 9)


EXERCISES: tuple[Exercise[AskingLess], ...] = (
    Exercise(
        title="1. Asking all",
        text=lambda k: (
            f"D-Adam asks all <i>M</i> = {k.workers} workers; each answers after an exponential time of mean"
            f" <i>η</i> = {1e3 * MEAN:g} ms. How long is a round on average?"
        ),
        unit="ms",
        answer=lambda k: 1e3 * theory.dadam_time(k.workers, MEAN),
        hint=lambda _: "It ends with the slowest. Lecture 1 has its mean.",
        slips=((lambda _: 1e3 * MEAN, "That is one worker’s mean; the round waits for the slowest."),),
        why=lambda k: (
            f"<p><i>η H<sub>M</sub></i> = {1e3 * MEAN:g}·<i>H</i><sub>{k.workers}</sub> ="
            f" {1e3 * theory.dadam_time(k.workers, MEAN):.4g} ms. Groups whose fastest member is enough take"
            f" (<i>η</i>/<i>M<sub>G</sub></i>)·<i>H<sub>G</sub></i> ="
            f" {1e3 * theory.gcada_time(k.groups, k.workers // k.groups, MEAN):.4g} ms with {k.groups} groups, if all"
            " of them are asked.</p>"
        ),
    ),
    Exercise(
        title="2. Read a paper critically",
        text=lambda _: (
            f"The paper reports for G-CADA a communication of {PUBLISHED[0]} and a computation of {PUBLISHED[1]}"
            " mini-batches. A selected group of <i>M<sub>G</sub></i> workers costs <i>M<sub>G</sub></i> downloads, one"
            " upload and <i>M<sub>G</sub></i> mini-batches. How large were its groups?"
        ),
        whole=True,
        answer=lambda _: float(implied()),
        hint=lambda _: "Divide one number by the other; how many groups were selected does not matter then.",
        slips=((lambda _: 4.0, "That is what the paper states. Does it fit its numbers?"),),
        why=lambda _: (
            f"<p>{PUBLISHED[0]}/{PUBLISHED[1]} = {PUBLISHED[0] / PUBLISHED[1]:.5g} ="
            f" (<i>M<sub>G</sub></i> + 1)/<i>M<sub>G</sub></i> holds for <i>M<sub>G</sub></i> = {implied()}. The text"
            " says 4: its numbers and its text do not belong together.</p>"
        ),
    ),
    Exercise(
        title="3. How seldom?",
        text=lambda k: (
            f"A worker’s loss has the smoothness constant <i>L</i> = {SMOOTHNESS:g}; the rule’s numbers are"
            f" <i>c</i> = {k.c:.3g} and <i>D</i> = {k.max_age}. It is asked <b>at most</b> once in how many rounds?"
        ),
        whole=True,
        answer=gap,
        hint=lambda _: (
            "Over <i>τ</i> steps the model moves, squared, at most <i>τ</i> times the sum of the squared steps"
            " (Cauchy-Schwarz). So the rule cannot hold while <i>L</i>²<i>τ</i> ≤ <i>c</i>. And no gradient gets older"
            " than <i>D</i>."
        ),
        slips=(
            (
                lambda k: float(np.floor(k.c / SMOOTHNESS**2)),
                "So long it cannot be asked; it is asked one round later at the soonest.",
            ),
            (
                lambda k: float(np.floor(k.c / SMOOTHNESS**2)) + 1,
                "The age limit D comes before that.",
            ),
        ),
        why=lambda k: (
            f"<p><i>L</i>²<i>τ</i> ≤ <i>c</i> up to <i>τ</i> = {np.floor(k.c / SMOOTHNESS**2):g}; the next age is"
            f" {np.floor(k.c / SMOOTHNESS**2) + 1:g}, the limit <i>D</i> = {k.max_age}: the smaller of both is"
            f" {gap(k):g}. Flat losses (small <i>L</i>) are asked seldom: their gradients change little.</p>"
        ),
    ),
)

ALL = ("workers", "groups", "c", "max_age")
lecture: Script[AskingLess] = Script(
    "6-asking-less",
    AskingLess,
    {"asked": LectureFigure((*ALL, "scheme"), asked), "cost": LectureFigure(ALL, cost)},
    entries,
    ALL,
    EXERCISES,
    places={
        "workers": (6, 12),  # each position is a run
        "c": (0.1, 1, 5, 20, 100),
        "max_age": (1, 5, 10, 30),
    },
    about="A gradient that changes little need not be computed and sent again.",
)

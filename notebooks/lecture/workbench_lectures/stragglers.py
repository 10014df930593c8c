"""Lecture 1: stragglers and the tail. The slowest of N workers sets the pace."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import plotly.graph_objects as go

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.running.start import run
from workbench.core.theory.order_statistics import order_survival
from workbench.lab.figures import gantt, scheme_style
from workbench.lab.figures.style import Style, Theme, new_figure, palette
from workbench.lab.widgets.plots.plot import low
from workbench_lectures.drawing import HEIGHT, curve, here, log_axis, points
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script
from workbench_lectures.runs import DIGITS

SAMPLES = 1200  # samples d of the figures
MIN_S_PER_SAMPLE = 5e-5  # a, s/sample
ROUNDS = 20  # rounds of the run from which a round is shown
GRID = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128])  # numbers of workers
DROPPING_SCHEME = "SGD"  # the scheme that does not wait for the latest
WAIT = "UMW"


class Stragglers(Knobs):
    """Number of workers, number of ignored workers, and their delays."""

    labels: ClassVar = {"workers": "workers N", "stragglers": "stragglers s", "tail": "tail 1/(aμ)"}
    logs: ClassVar = frozenset({"tail"})
    choice_labels: ClassVar = {
        "distribution": {"exponential": "exponential: light tail", "pareto": "Pareto: heavy tail"}
    }

    workers: int = setting(24, "workers, each with 1/N of the samples", ge=2, le=60)
    stragglers: int = setting(2, "the latest workers, whom the master does not wait for", ge=0, le=30)
    tail: float = setting(1.0, "mean of the random part of a time over its least part", ge=0.1, le=3.0)
    distribution: Literal["exponential", "pareto"] = setting("exponential", "distribution of the random part")
    round: int = setting(0, "round of the run below", ge=0, le=ROUNDS - 1)

    def fit(self) -> Stragglers:
        """Make sure that at least one worker answers."""
        return self.replace(stragglers=min(self.stragglers, self.workers - 1))

    @property
    def delays(self) -> dict[str, object]:
        """Delay model. Both kinds have the same mean."""
        if self.distribution == "pareto":
            return {"kind": "pareto", "shift": MIN_S_PER_SAMPLE, "shape": 1 + 1 / self.tail}
        return {
            "kind": "shifted_exponential",
            "shift": MIN_S_PER_SAMPLE,
            "rate": 1 / (self.tail * MIN_S_PER_SAMPLE),
        }

    def late(self, t: Array, workers: int) -> Array:
        """Return the probability that a worker with 1/`workers` of the samples takes longer than t, shape of t."""
        least = MIN_S_PER_SAMPLE * SAMPLES / workers
        if self.distribution == "pareto":
            return np.asarray((np.maximum(t, least) / least) ** -(1 + 1 / self.tail))
        return np.asarray(np.exp(-np.maximum(t - least, 0.0) / (self.tail * least)))

    def mean(self, k: int, workers: int) -> float:
        """Return the expected time until the k-th of a number of workers has answered, s."""
        least = MIN_S_PER_SAMPLE * SAMPLES / workers
        if self.distribution == "exponential":
            return theory.exponential_order_mean(k, workers, self.tail * least, least)
        # U^(-1/shape) is Pareto; these are means of beta distributions
        left = np.arange(workers - k + 1, workers + 1)
        return least * float(np.prod(left / (left - self.tail / (1 + self.tail))))


# ---------------------------------------------------------------- figures


def tail(knobs: Stragglers, theme: Theme) -> go.Figure:
    """Draw the probability that one worker, all workers, or enough workers are not done at a time."""
    n, s = knobs.workers, knobs.stragglers
    figure = new_figure(theme, "Who is still computing?", "marks: means", HEIGHT)
    least = MIN_S_PER_SAMPLE * SAMPLES / n
    t = least * np.geomspace(1, 60, 400)
    one = Style(palette(theme).text, "dot", "circle-open")
    rows = [
        ("one given worker", one, 1, 1, least * (1 + knobs.tail)),
        (f"the slowest of all {n}", scheme_style(WAIT), n, n, knobs.mean(n, n)),
        (f"the slowest of the first {n - s}", scheme_style(DROPPING_SCHEME), n - s, n, knobs.mean(n - s, n)),
    ]
    for text, style, k, of, mean in rows:
        name = f"{text}: mean {1e3 * mean:.3g} ms"
        figure.add_trace(curve(1e3 * t, order_survival(knobs.late(t, n), k, of), name, style))
        height = float(order_survival(knobs.late(np.array([mean]), n), k, of)[0])
        figure.add_trace(points([1e3 * mean], [height], name, style))
    figure.update_xaxes(
        title_text="time t since the round’s start (ms)", range=[0, 1e3 * least * (4 + 9 * knobs.tail)]
    )
    return figure.update_yaxes(title_text="P(not done by t)", **log_axis(1e-3, 1.0))


def growth(knobs: Stragglers, theme: Theme) -> go.Figure:
    """Draw the mean round time against the number of workers."""
    n, s = knobs.workers, knobs.stragglers
    figure = new_figure(
        theme, "Mean round time as workers are added", f"each has 1/N of {SAMPLES} samples", HEIGHT
    )
    ideal = Style(palette(theme).text, "dot", "circle")
    enough = GRID[s < GRID]
    waiting = np.array([knobs.mean(m, m) for m in GRID.tolist()])
    leaving = np.array([knobs.mean(m - s, m) for m in enough.tolist()])
    alone = MIN_S_PER_SAMPLE * SAMPLES * (1 + knobs.tail)
    figure.add_traces(
        [
            curve(GRID, 1e3 * waiting, "UMW: wait for all", scheme_style(WAIT), "%{y:.3g} ms"),
            curve(
                enough,
                1e3 * leaving,
                f"SGD: all but the latest {s}",
                scheme_style(DROPPING_SCHEME),
                "%{y:.3g} ms",
            ),
            curve(GRID, 1e3 * alone / GRID, "if all took the mean time", ideal, "%{y:.3g} ms"),
        ]
    )
    figure.update_xaxes(title_text="workers N", **log_axis(1, 128))
    figure.update_yaxes(title_text="mean round time (ms)", type="log", dtick="D2", tickformat="~g")
    here(figure, n, f"N = {n}", theme)
    return figure


def one_round(knobs: Stragglers, theme: Theme) -> go.Figure:
    """Draw one round of the run, with its late workers."""
    e = Experiment(
        scheme=DROPPING_SCHEME,
        scheme_args={"stragglers": knobs.stragglers},
        workers=knobs.workers,
        rounds=knobs.round + 1,
        problem="unit",
        problem_args={"samples": SAMPLES},
        delays=knobs.delays,
    )
    return low(gantt(run(e), knobs.round, theme=theme), 560)


# ---------------------------------------------------------------- the run to watch


def entries(knobs: Stragglers) -> list[Experiment]:
    """Return schemes that wait for all, ignore the latest, or use a code, on the same stragglers."""
    s = {"scheme_args": {"stragglers": knobs.stragglers}}
    common = {"workers": knobs.workers, "rounds": 200, "delays": knobs.delays, **DIGITS}
    return [
        Experiment(scheme=WAIT, **common),
        Experiment(scheme="GC", **s, **common),
        Experiment(scheme=DROPPING_SCHEME, **s, **{**common, "optimiser": "inverse_time"}),
    ]


# ---------------------------------------------------------------- exercises


def _round_ms(knobs: Stragglers, s: int) -> float:
    rate = 1 / (knobs.tail * MIN_S_PER_SAMPLE)
    return 1e3 * theory.sgd_time(knobs.workers, s, SAMPLES, MIN_S_PER_SAMPLE, rate)


def _half(knobs: Stragglers) -> int:
    """Return the least number of ignored stragglers that at least halves the mean random part of a round's time."""
    n = knobs.workers
    full = theory.exponential_order_mean(n, n)
    return next(s for s in range(n) if theory.exponential_order_mean(n - s, n) <= full / 2)


def _least_ms(knobs: Stragglers) -> float:
    return 1e3 * MIN_S_PER_SAMPLE * SAMPLES / knobs.workers


EXERCISES: tuple[Exercise[Stragglers], ...] = (
    Exercise(
        title="1. The slowest of N",
        text=lambda k: (
            f"The random parts of <i>N</i> = {k.workers} workers’ times are exponential, all with the same mean."
            " How many times that mean does one have to wait, on average, for the <b>slowest</b> of them?"
        ),
        answer=lambda k: theory.harmonic(k.workers),
        hint=lambda k: (
            f"The first of {k.workers} comes after 1/{k.workers} of the mean, then {k.workers - 1} are left,"
            " and exponential times have no memory. Add up the waits."
        ),
        slips=(
            (lambda k: float(k.workers), "They compute at the same time, not one after the other."),
            (
                lambda k: float(np.log(k.workers)),
                "log N is only its growth for large N. Add up the waits exactly.",
            ),
        ),
        why=lambda k: (
            f"<p>While <i>j</i> workers are left, the next one is done after 1/<i>j</i> of the mean. Together:"
            f" 1/{k.workers} + … + 1/2 + 1 = <i>H</i><sub>{k.workers}</sub> ="
            f" {theory.harmonic(k.workers):.4g}. It grows like log <i>N</i>: more workers, longer tail.</p>"
        ),
    ),
    Exercise(
        title="2. Without the latest",
        text=lambda k: (
            f"Take exponential random parts. Each of <i>N</i> = {k.workers} workers needs {_least_ms(k):.4g} ms at"
            f" least, plus a random part of mean {k.tail * _least_ms(k):.4g} ms. The master goes on as soon as all"
            f" but <i>s</i> = {k.stragglers} have answered. How long is a round on average?"
        ),
        unit="ms",
        answer=lambda k: _round_ms(k, k.stragglers),
        hint=lambda k: (
            "Least part, plus mean of the random part times <i>H</i><sub>N</sub> − <i>H</i><sub>s</sub>."
        ),
        slips=(
            (lambda k: _round_ms(k, 0), "That is the time until all have answered."),
            (
                lambda k: _round_ms(k, k.stragglers) - _least_ms(k),
                "You left out the part that nobody can avoid.",
            ),
        ),
        why=lambda k: (
            f"<p>The waits 1/{k.workers}, 1/{k.workers - 1}, … end before the last <i>s</i> = {k.stragglers} terms:"
            f" <i>E</i>[<i>T</i>] = {_least_ms(k):.4g} + {k.tail * _least_ms(k):.4g} ·"
            f" (<i>H</i><sub>{k.workers}</sub> − <i>H</i><sub>{k.stragglers}</sub>)"
            f" = {_round_ms(k, k.stragglers):.4g} ms; waiting for all takes {_round_ms(k, 0):.4g} ms.</p>"
        ),
    ),
    Exercise(
        title="3. Where the tail sits",
        text=lambda k: (
            f"How many of the <i>N</i> = {k.workers} workers must the master leave out, at least, so that the mean"
            " wait for exponential random parts is <b>at most half</b> of that for all?"
        ),
        whole=True,
        answer=_half,
        hint=lambda k: (
            "Leaving out <i>s</i> saves <i>H</i><sub>s</sub> of <i>H</i><sub>N</sub>. The last worker alone saves 1."
        ),
        slips=(
            (
                lambda k: float(k.workers // 2),
                "Half of the workers is too many: look where the waits are long.",
            ),
        ),
        why=lambda k: (
            f"<p>We need <i>H</i><sub>s</sub> ≥ <i>H</i><sub>{k.workers}</sub>/2 ="
            f" {theory.harmonic(k.workers) / 2:.4g}. <i>H</i><sub>{_half(k)}</sub> ="
            f" {theory.harmonic(_half(k)):.4g} is the first to reach it: <i>s</i> = {_half(k)} of {k.workers}. A few"
            " stragglers cost as much as all the others together.</p>"
        ),
    ),
)

lecture: Script[Stragglers] = Script(
    "1-stragglers",
    Stragglers,
    {
        "tail": LectureFigure(("workers", "stragglers", "tail", "distribution"), tail),
        "growth": LectureFigure(("workers", "stragglers", "tail", "distribution"), growth),
        "round": LectureFigure(("workers", "stragglers", "tail", "distribution", "round"), one_round),
    },
    entries,
    ("workers", "stragglers", "tail", "distribution"),
    EXERCISES,
    about="The slowest of many workers sets the pace of a round, and it sits in the tail.",
)

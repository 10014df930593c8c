"""Lecture 4: communication versus computation. Ye and Abbe's codes trade load for shorter messages."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np
import plotly.graph_objects as go

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.lab.figures.style import BLUE, GREY, ORANGE, PALE, Theme, fade, new_figure, palette
from workbench_lectures.drawing import HEIGHT
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script
from workbench_lectures.runs import DIGITS, DIGITS_SAMPLES

FREE = 1e6  # rate of messages that take no time, 1/s


class Communication(Knobs):
    """Workers, times to compute a part and to send a gradient, and a code."""

    labels: ClassVar = {
        "workers": "workers n",
        "load": "load d",
        "reduction": "reduction m",
        "compute": "compute t₁",
        "compute_tail": "at random 1/λ₁",
        "send": "send t₂",
        "send_tail": "at random 1/λ₂",
    }

    workers: int = setting(8, "workers, and parts of the data", ge=3, le=10)
    load: int = setting(4, "parts that every worker computes", ge=1, le=10)
    reduction: int = setting(3, "how many times shorter than a gradient a message is", ge=1, le=10)
    compute: float = setting(1.6, "least time to compute the gradient of one part (t₁)", "s", ge=0, le=10)
    compute_tail: float = setting(1.25, "mean of its random part (1/λ₁)", "s", ge=0.05, le=10)
    send: float = setting(6.0, "least time to send a whole gradient (t₂)", "s", ge=0, le=30)
    send_tail: float = setting(10.0, "mean of its random part (1/λ₂)", "s", ge=0.05, le=30)

    def fit(self) -> Communication:
        """Limit the parts per worker, and ensure d >= s + m."""
        load = min(self.load, self.workers)
        return self.replace(load=load, reduction=min(self.reduction, load))

    @property
    def stragglers(self) -> int:
        """Number of tolerated stragglers: s = d - m."""
        return self.load - self.reduction

    @property
    def rates(self) -> dict[str, float]:
        """Parameters of the model in `core.theory`."""
        return {
            "lambda1": 1 / self.compute_tail,
            "lambda2": 1 / self.send_tail,
            "t1": self.compute,
            "t2": self.send,
        }

    @property
    def table(self) -> Array:
        """Expected round times, s, (reductions, loads). Row m - 1 is for m, and column d - 1 for d."""
        return _table(self.workers, *self.rates.values())

    def time(self, d: int, m: int) -> float:
        """Return the expected round time of one code, s."""
        return float(self.table[m - 1, d - 1])

    @property
    def best(self) -> tuple[int, int]:
        """Load and reduction of the code with the shortest mean round."""
        row, column = np.unravel_index(np.nanargmin(self.table), self.table.shape)
        return int(column) + 1, int(row) + 1

    @property
    def best_long(self) -> int:
        """Best load d of codes with full-length messages, m = 1."""
        return int(np.argmin(self.table[0])) + 1


@lru_cache(maxsize=64)
def _table(n: int, lambda1: float, lambda2: float, t1: float, t2: float) -> Array:
    return theory.cegc_table(n, lambda1, lambda2, t1, t2)


# ---------------------------------------------------------------- figures


def table(knobs: Communication, theme: Theme) -> go.Figure:
    """Draw the expected round time of every code."""
    n, (d, m) = knobs.workers, knobs.best
    figure = new_figure(
        theme,
        "Mean round time (s) of every code",
        f"solid frame: the best, d = {d}, m = {m} · dotted frame: the sliders’",
        HEIGHT,
    )
    axis = list(range(1, n + 1))
    figure.add_heatmap(
        z=knobs.table,
        x=axis,
        y=axis,
        colorscale=[[0.0, fade(BLUE, PALE)], [0.5, fade(GREY, PALE / 2)], [1.0, fade(ORANGE, PALE)]],
        xgap=2,
        ygap=2,
        text=[["" if seconds != seconds else f"{seconds:.1f}" for seconds in row] for row in knobs.table],
        texttemplate="%{text}",
        textfont={"size": 14, "color": palette(theme).text},
        hoverongaps=False,
        hovertemplate="load d = %{x}, reduction m = %{y}<br>%{z:.2f} s<extra></extra>",
        colorbar={"title": {"text": "s"}, "thickness": 16, "outlinewidth": 0},
    )
    frame = {"width": 3, "color": palette(theme).text}
    for x, y, dash in ((d, m, "solid"), (knobs.load, knobs.reduction, "dot")):
        figure.add_shape(
            type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5, line={**frame, "dash": dash}
        )
    figure.update_xaxes(title_text="load d (parts a worker)", dtick=1, showgrid=False)
    figure.update_yaxes(title_text="reduction m", dtick=1, showgrid=False, range=[n + 0.5, 0.5])
    return figure.update_layout(showlegend=False)


def codes(knobs: Communication) -> dict[str, tuple[int, int]]:
    """Return the codes that are compared, by label."""
    (d, m), long = knobs.best, knobs.best_long
    return {
        "uncoded (d = 1, m = 1)": (1, 1),
        f"best with whole messages (d = {long}, m = 1)": (long, 1),
        f"the sliders’ (d = {knobs.load}, m = {knobs.reduction})": (knobs.load, knobs.reduction),
        f"best of all (d = {d}, m = {m})": (d, m),
    }


def split(knobs: Communication, theme: Theme) -> go.Figure:
    """Draw the parts of a worker's mean time, and the time of a round that waits for n - s workers."""
    found = codes(knobs)
    figure = new_figure(
        theme,
        "Where a round’s time goes",
        "bars: a worker’s mean · diamond: the round’s mean",
        HEIGHT - 60,
    )
    names = list(found)
    computing = [d * (knobs.compute + knobs.compute_tail) for d, _ in found.values()]
    sending = [(knobs.send + knobs.send_tail) / m for _, m in found.values()]
    for text, values, color in (
        ("computes d parts", computing, BLUE),
        ("sends p/m numbers", sending, ORANGE),
    ):
        figure.add_bar(
            y=names,
            x=values,
            name=text,
            orientation="h",
            width=0.55,
            marker={"color": fade(color, PALE), "line": {"width": 2, "color": color}},
            hovertemplate=f"{text}<br>%{{x:.3g}} s<extra></extra>",
        )
    rounds = [knobs.time(d, m) for d, m in found.values()]
    marker = {"symbol": "diamond", "size": 14, "color": palette(theme).text}
    figure.add_scatter(
        y=names,
        x=rounds,
        mode="markers+text",
        name="the round, which waits for n − s workers",
        marker=marker,
        text=[f"{value:.3g} s" for value in rounds],
        textposition="middle right",
        hovertemplate="the round<br>%{x:.4g} s<extra></extra>",
    )
    figure.update_layout(
        barmode="stack",
        legend={"orientation": "h", "y": -0.25, "traceorder": "normal"},
        xaxis_range=[0, 1.12 * max(rounds)],
    )
    figure.update_xaxes(title_text="time (s)")
    return figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")


# ---------------------------------------------------------------- the run to watch


def entries(knobs: Communication) -> list[Experiment]:
    """Return the compared codes. Each computes the full gradient."""
    part = DIGITS_SAMPLES / knobs.workers  # samples
    delays = {
        "kind": "two_part",
        "t1": knobs.compute / part,
        "lambda1": part / knobs.compute_tail,
        "t2": knobs.send,
        "lambda2": 1 / knobs.send_tail,
    }
    common = {"workers": knobs.workers, "rounds": 60, "delays": delays, **DIGITS}
    chosen = dict.fromkeys(codes(knobs).values())
    return [
        Experiment(scheme="CEGC", scheme_args={"load": d, "stragglers": d - m, "reduction": m}, **common)
        for d, m in chosen
    ]


# ---------------------------------------------------------------- exercises


def longest(knobs: Communication) -> int:
    """Return the largest reduction that tolerates one straggler at the current load, or 0 if there is none."""
    n, d = knobs.workers, knobs.load
    return max((m for m in range(1, d + 1) if theory.cegc_achievable(n, d, 1, m)), default=0)


def saved(knobs: Communication) -> float:
    """Return the share of the uncoded mean round time that the best code saves."""
    return 1 - knobs.time(*knobs.best) / knobs.time(1, 1)


def free(knobs: Communication) -> int:
    """Return the best reduction if messages took no time."""
    rates = {**knobs.rates, "lambda2": FREE, "t2": 0.0}
    return theory.cegc_best(knobs.workers, **rates)[1]


EXERCISES: tuple[Exercise[Communication], ...] = (
    Exercise(
        title="1. What is possible",
        text=lambda k: (
            f"Each of <i>n</i> = {k.workers} workers computes <i>d</i> = {k.load} of {k.workers} parts, and <b>one</b>"
            " straggler is to be tolerated. How many times shorter than a gradient can messages be at most (0 if it"
            " cannot be done at all)?"
        ),
        whole=True,
        answer=lambda k: float(longest(k)),
        hint=lambda _: "The theorem has one line: a code exists exactly if <i>d</i> ≥ <i>s</i> + <i>m</i>.",
        slips=(
            (
                lambda k: float(k.load),
                "Then no straggler could be tolerated: the load is used up by <i>m</i>.",
            ),
        ),
        why=lambda k: (
            f"<p><i>d</i> = {k.load} ≥ <i>s</i> + <i>m</i> with <i>s</i> = 1 leaves <i>m</i> ≤ {k.load - 1}. Load can"
            " be spent on stragglers or on shorter messages, and every unit only once.</p>"
        ),
    ),
    Exercise(
        title="2. What it brings",
        text=lambda _: (
            "By how many percent is the mean round of the best code shorter than the uncoded one’s"
            " (<i>d</i> = <i>m</i> = 1)? The first figure has the numbers."
        ),
        unit="%",
        tolerance=0.02,
        answer=lambda k: 100 * saved(k),
        hint=lambda _: (
            "Divide the smallest number of the table by the one in its upper left corner; what is missing to 1?"
        ),
        slips=(
            (
                lambda k: 100 * (1 - saved(k)),
                "That is what is left of the time. The question is what is saved.",
            ),
            (
                lambda k: 100 * (k.time(1, 1) / k.time(*k.best) - 1),
                "That compares with the best; compare with the uncoded one.",
            ),
        ),
        why=lambda k: (
            f"<p>1 − {k.time(*k.best):.4g} / {k.time(1, 1):.4g} = {100 * saved(k):.3g} %, with <i>d</i> = {k.best[0]}"
            f" and <i>m</i> = {k.best[1]}, so <i>s</i> = {k.best[0] - k.best[1]}.</p>"
        ),
    ),
    Exercise(
        title="3. If sending were free",
        text=lambda k: (
            f"Let messages take no time at all, with computing as it is ({k.compute:.3g} s a part at least, and"
            f" {k.compute_tail:.3g} s at random). Which reduction <i>m</i> has the best code then?"
        ),
        whole=True,
        answer=lambda k: float(free(k)),
        hint=lambda _: (
            "A larger <i>m</i> costs either load or tolerance of stragglers. What does it bring when messages are free?"
        ),
        slips=((lambda k: float(k.best[1]), "That is the best one at the present cost of messages."),),
        why=lambda k: (
            f"<p><i>m</i> = {free(k)}: whole messages. Shorter ones bring nothing then, and the same load buys more"
            " stragglers. That is gradient coding, the case <i>m</i> = 1. Set both sending sliders low and see the"
            " solid frame of the first figure move up.</p>"
        ),
    ),
)

ALL = ("workers", "load", "reduction", "compute", "compute_tail", "send", "send_tail")
lecture: Script[Communication] = Script(
    "4-communication",
    Communication,
    {"table": LectureFigure(ALL, table), "split": LectureFigure(ALL, split)},
    entries,
    ALL,
    EXERCISES,
    about="Data that several workers hold buys tolerance, shorter messages, or some of both.",
)

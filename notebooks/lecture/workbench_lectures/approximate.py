"""Lecture 5: not waiting. Approximate gradient codes, and why to shuffle parts between workers."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.contract.delays import DelayStream, Heterogeneous
from workbench.core.experiment import Experiment
from workbench.lab.figures import scheme_style
from workbench.lab.figures.style import GREY, Style, Theme, fade, new_figure
from workbench_lectures.drawing import HEIGHT, curve, here, points
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script

TIME = 1e-3  # s that a worker takes for one part without straggling
FACTOR = 10.0  # factor by which a straggler takes longer
EACH = 6  # samples of a part in the run; the model has 1.5 times as many parameters as there are samples
ITERATIONS = 200


class Approximate(Knobs):
    """Workers of two kinds, and codes with s workers per part."""

    labels: ClassVar = {
        "workers": "workers n",
        "copies": "copies s",
        "slow": "slow p̂",
        "slow_straggles": "slow ones’ pₛₛ",
        "active_straggles": "others’ pₐₛ",
    }
    choice_labels: ClassVar = {"code": {"FRC": "FRC: fractional repetition", "CRC": "CRC: cyclic repetition"}}

    workers: int = setting(8, "workers, and parts of the data", ge=4, le=14)
    copies: int = setting(2, "workers that hold each part; must divide n", ge=1, le=7)
    slow: float = setting(0.3, "probability p̂ that a worker is slow, for the whole run", ge=0, le=1)
    slow_straggles: float = setting(
        0.8, "probability p_ss that a slow worker straggles in a round", ge=0, le=1
    )
    active_straggles: float = setting(0.01, "probability p_as that another worker does", ge=0, le=1)
    draw: int = setting(3, "number of the draw of who is slow", ge=0, le=30)
    code: Literal["FRC", "CRC"] = setting("FRC", "how the parts are spread over the workers")

    def fit(self) -> Approximate:
        """Make s divide the number of workers, as FRC needs."""
        fits = [s for s in range(1, self.workers // 2 + 1) if self.workers % s == 0]
        return self.replace(copies=min(fits, key=lambda s: abs(s - self.copies)))

    @property
    def chances(self) -> tuple[float, float, float]:
        """Probabilities p_slow, p_ss and p_as of paper 4."""
        return self.slow, self.slow_straggles, self.active_straggles

    @property
    def delays(self) -> Heterogeneous:
        """Delay model of the run."""
        return Heterogeneous(
            shift=TIME / EACH,
            slow=self.slow,
            slow_straggles=self.slow_straggles,
            active_straggles=self.active_straggles,
            factor=FACTOR,
        )

    @property
    def slow_ones(self) -> NDArray[np.bool_]:
        """Whether each worker is slow in the run, (n,), as the delay model draws it."""
        return DelayStream(self.delays, self.draw, self.workers).draw(0)[1] > 0

    def experiment(self, shuffle: str, **more: Any) -> Experiment:
        """Return an experiment in which an approximate scheme waits for twice the time of a worker that is not late."""
        args = {"replication": self.copies, "shuffle": shuffle, "deadline": 2 * self.copies * TIME}
        return self.run(self.code, scheme_args=args, **more)

    def run(self, scheme: str, **more: Any) -> Experiment:
        """Return an experiment with any scheme on these workers."""
        common: dict[str, Any] = {
            "workers": self.workers,
            "rounds": ITERATIONS,
            "seed": self.draw,
            "delays": self.delays,
            "problem": "least_squares",
            "problem_args": {"samples": EACH * self.workers, "features": EACH * self.workers * 3 // 2},
        }
        return Experiment(scheme=scheme, **{**common, **more})


# ---------------------------------------------------------------- figures


def error(knobs: Approximate, theme: Theme) -> go.Figure:
    """Draw the expected decoding error against the number of workers per part."""
    n, q = knobs.workers, theory.straggler_probability(*knobs.chances)
    copies = list(range(1, n // 2 + 1))
    divisors = [s for s in copies if n % s == 0]
    fields = f"squared distance from the full gradient’s weights, in parts; q = {q:.3g}"
    figure = new_figure(theme, "Expected decoding error", fields, HEIGHT)
    frc = [theory.frc_error(n, s, *knobs.chances) for s in divisors]
    crc = [theory.crc_error(n, s, *knobs.chances) for s in copies]
    hover = "s = %{x}: %{y:.4g} parts"
    bound = Style(scheme_style("FRC").color, "dot", "circle")
    figure.add_traces(
        [
            curve(np.array(copies), np.array(crc), "CRC, plain sums", scheme_style("CRC"), hover),
            curve(np.array(copies), n * q ** np.array(copies), "n qˢ: no code is better", bound, hover),
            points(copies, crc, "CRC, plain sums", scheme_style("CRC"), hover),
            points(divisors, frc, "FRC, where s divides n", scheme_style("FRC"), hover).update(
                showlegend=True
            ),
        ]
    )
    figure.update_xaxes(title_text="workers per part s", dtick=1, range=[0.8, copies[-1] + 0.2])
    figure.update_yaxes(title_text="decoding error (parts)", rangemode="tozero")
    here(figure, knobs.copies, f"s = {knobs.copies}", theme)
    return figure


def holders(knobs: Approximate) -> NDArray[np.bool_]:
    """Return which worker stores which part: (workers, parts)."""
    plan = knobs.experiment("none").plan
    held = np.zeros((plan.workers, plan.parts), dtype=bool)
    for worker in range(plan.workers):
        held[worker, plan.indices[plan.indptr[worker + 1] : plan.indptr[worker + 2]]] = True
    return held


def missed(knobs: Approximate) -> tuple[Array, float]:
    """Return the probability that a part is missed in a round: (parts,) without shuffling, and one number with it."""
    slow, held = knobs.slow_ones, holders(knobs)
    p_ss, p_as = knobs.slow_straggles, knobs.active_straggles
    fixed = [theory.missed_unshuffled(knobs.copies, int(slow[column].sum()), p_ss, p_as) for column in held.T]
    shuffled = theory.missed_given_slow(knobs.workers, knobs.copies, int(slow.sum()), p_ss, p_as)
    return np.array(fixed), shuffled


def parts(knobs: Approximate, theme: Theme) -> go.Figure:
    """Draw how often each part is missed, for the slow workers of this draw."""
    fixed, shuffled = missed(knobs)
    slow = np.flatnonzero(knobs.slow_ones) + 1
    who = f"slow: workers {', '.join(map(str, slow))}" if len(slow) else "nobody is slow in this draw"
    figure = new_figure(theme, "Who bears the error?", f"{who} · {len(fixed)} parts", HEIGHT)
    style = scheme_style(knobs.code)
    names = [f"part {i + 1}" for i in range(len(fixed))]
    figure.add_bar(
        x=names,
        y=100 * fixed,
        name=f"{knobs.code}, workers keep their places",
        marker={"color": fade(style.color, 0.75), "line": {"width": 2, "color": style.color}},
        hovertemplate="%{x}: missed in %{y:.3g} % of rounds<extra></extra>",
    )
    even = Style(GREY, "solid", "circle")
    figure.add_trace(
        curve(
            np.array(names),
            np.full(len(names), 100 * shuffled),
            "shuffled: all parts alike",
            even,
            "%{y:.3g} %",
        )
    )
    figure.update_yaxes(title_text="rounds that miss the part (%)", range=[0, 105])
    return figure.update_layout(bargap=0.4)


# ---------------------------------------------------------------- the run to watch


def entries(knobs: Approximate) -> list[Experiment]:
    """Return UMW, which waits for all workers, and an approximate scheme without and with shuffling."""
    return [knobs.run("UMW"), knobs.experiment("none"), knobs.experiment("random")]


# ---------------------------------------------------------------- exercises


def _q(knobs: Approximate) -> float:
    return theory.straggler_probability(*knobs.chances)


def _frc(knobs: Approximate) -> float:
    return theory.frc_error(knobs.workers, knobs.copies, *knobs.chances)


def _used(knobs: Approximate) -> float:
    never = theory.missed_unshuffled(knobs.copies, knobs.copies, knobs.slow_straggles, knobs.active_straggles)
    return theory.expected_accesses(ITERATIONS, never)


EXERCISES: tuple[Exercise[Approximate], ...] = (
    Exercise(
        title="1. How likely is a straggler?",
        text=lambda k: (
            f"A worker is slow with probability {k.slow:.3g}. A slow one straggles with probability"
            f" {k.slow_straggles:.3g}, another one with {k.active_straggles:.3g}. With which probability <i>q</i> does"
            " a worker straggle of which nothing is known?"
        ),
        answer=_q,
        hint=lambda _: (
            "Two ways lead there: being slow and straggling, or not being slow and straggling. Add them."
        ),
        slips=(
            (lambda k: k.slow * k.slow_straggles, "Workers that are not slow straggle too, if seldom."),
            (
                lambda k: k.slow_straggles + k.active_straggles,
                "Weight each by the probability of its kind of worker.",
            ),
        ),
        why=lambda k: (
            f"<p><i>q</i> = {k.slow:.3g}·{k.slow_straggles:.3g} + {1 - k.slow:.3g}·{k.active_straggles:.3g} ="
            f" {_q(k):.4g}.</p>"
        ),
    ),
    Exercise(
        title="2. The error of FRC",
        text=lambda k: (
            f"Groups of <i>s</i> = {k.copies} workers hold the same {k.copies} parts. How many of the"
            f" <i>n</i> = {k.workers} parts are missing on average, because their whole group straggles? (That is FRC’s"
            " expected decoding error.)"
        ),
        answer=_frc,
        hint=lambda _: (
            "A part is missing only if <i>all</i> of its workers straggle, independently. Then add over the parts."
        ),
        slips=(
            (
                lambda k: k.workers * _q(k),
                "That is the value for s = 1, nobody repeated. (A paper prints it by mistake.)",
            ),
            (lambda k: _q(k) ** k.copies, "That is the probability for one part."),
        ),
        why=lambda k: (
            f"<p><i>n q<sup>s</sup></i> = {k.workers}·{_q(k):.4g}<sup>{k.copies}</sup> = {_frc(k):.4g}. No code with"
            " <i>s</i> workers per part can do better, since any of them loses a part when all its workers straggle."
            " The mean is the same with and without shuffling.</p>"
        ),
    ),
    Exercise(
        title="3. Bad luck",
        text=lambda k: (
            f"Workers keep their places, and all {k.copies} that hold a certain part are slow. In how many of"
            f" {ITERATIONS} rounds is that part <b>used</b>, on average?"
        ),
        answer=_used,
        tolerance=0.02,
        hint=lambda _: (
            "It is used unless all of its workers straggle at once, each with the slow ones’ probability."
        ),
        slips=(
            (lambda k: ITERATIONS - _used(k), "That is the number of rounds in which it is missed."),
            (
                lambda k: ITERATIONS * (1 - _q(k) ** k.copies),
                "That is with shuffling, where its workers are not always slow ones.",
            ),
        ),
        why=lambda k: (
            f"<p>It is missed with probability {k.slow_straggles:.3g}<sup>{k.copies}</sup> ="
            f" {k.slow_straggles**k.copies:.4g}, so it is used in {ITERATIONS}·(1 − {k.slow_straggles**k.copies:.4g}) ="
            f" {_used(k):.4g} rounds. With shuffling it would be {ITERATIONS * (1 - _q(k) ** k.copies):.4g} on average"
            " over who is slow. A part that is hardly ever used is hardly learnt: the estimate is biased.</p>"
        ),
    ),
)

ALL = ("workers", "copies", "slow", "slow_straggles", "active_straggles")
lecture: Script[Approximate] = Script(
    "5-not-waiting",
    Approximate,
    {"error": LectureFigure(ALL, error), "parts": LectureFigure((*ALL, "draw", "code"), parts)},
    entries,
    (*ALL, "draw", "code"),
    EXERCISES,
    about="After a fixed time: how near the gradient is with the answers that have come.",
)

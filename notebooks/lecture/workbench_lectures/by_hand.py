"""Lecture 2: gradient coding by hand, on 3 workers of which any one may be late."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import plotly.graph_objects as go

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array, chop
from workbench.core.codes import GradientCode
from workbench.core.codes.cyclic import textbook
from workbench.core.experiment import Experiment
from workbench.lab.figures import code as code_figure
from workbench.lab.figures import scheme_style
from workbench.lab.figures.style import BLUE, GREEN, ORANGE, PALE, Theme, fade, new_figure, palette
from workbench_lectures.drawing import HEIGHT, curve, here, log_axis
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script
from workbench_lectures.runs import DIGITS

WORKERS, STRAGGLERS = 3, 1
SAMPLES, MIN_S_PER_SAMPLE = 1200, 5e-5  # samples d; minimal time a, s per sample
PAPER = ((0.5, 1.0, 0.0), (0.0, 1.0, -1.0), (0.5, 0.0, 1.0))  # the example of paper 1, section II-C
COLORS = (BLUE, ORANGE, GREEN)  # colours of the workers
TAILS = np.geomspace(0.1, 100, 60)
LATE = {
    "nobody": "nobody",
    "1": "worker 1",
    "2": "worker 2",
    "3": "worker 3",
    "2 and 3": "workers 2 and 3",
}


class ByHand(Knobs):
    """Three gradients of one coordinate each, a code, and the late worker."""

    labels: ClassVar = {
        **{f"g{i}": f"gradient g{chr(0x2080 + i)}" for i in (1, 2, 3)},
        "tail": "tail 1/(aμ)",
    }
    logs: ClassVar = frozenset({"tail"})
    choice_labels: ClassVar = {"late": LATE}

    g1: float = setting(1.0, "gradient of part 1", ge=-3, le=3)
    g2: float = setting(2.0, "gradient of part 2", ge=-3, le=3)
    g3: float = setting(-0.5, "gradient of part 3", ge=-3, le=3)
    late: Literal["nobody", "1", "2", "3", "2 and 3"] = setting("1", "whose message does not come")
    draw: int = setting(0, "0: the paper’s matrix; else the number of a random draw", ge=0, le=9)
    tail: float = setting(1.0, "mean of the random part of a time over its least part", ge=0.1, le=100)

    @property
    def code(self) -> GradientCode:
        """Code of the draw."""
        return code_of(self.draw)

    @property
    def gradients(self) -> Array:
        """One number per part, (3,)."""
        return np.array([self.g1, self.g2, self.g3])

    @property
    def messages(self) -> Array:
        """Messages of the workers, (3,).

        The products are added from the left, as on a page without a server, and not by BLAS.
        """
        products = self.code.matrix * self.gradients
        return chop(products.sum(axis=1), np.abs(products).sum(axis=1))

    @property
    def answered(self) -> tuple[int, ...]:
        """Indices, from 0, of the rows whose messages arrive."""
        return tuple(i for i in range(WORKERS) if str(i + 1) not in self.late)


@lru_cache(maxsize=16)
def code_of(draw: int) -> GradientCode:
    """Return the paper's matrix, or a random one by Tandon's algorithm 2."""
    matrix = np.array(PAPER) if draw == 0 else textbook(WORKERS, STRAGGLERS, draw)
    return GradientCode(matrix, STRAGGLERS)


def weights_of(code: GradientCode, answered: tuple[int, ...]) -> tuple[Array, float]:
    """Return the decode weights of answers, and the residual, both without rounding errors."""
    weights, residual = code.decode(answered)
    return chop(weights, np.abs(weights).max()), float(chop(residual, WORKERS))


# ---------------------------------------------------------------- figures


def experiment(knobs: ByHand, scheme: str, **more: object) -> Experiment:
    """Return one of the schemes on three workers."""
    args: dict[str, dict[str, object]] = {
        "UMW": {},
        "SGD": {"stragglers": STRAGGLERS},
        "GC": {"stragglers": STRAGGLERS, "matrix": tuple(map(tuple, knobs.code.matrix.tolist()))},
    }
    delays = {
        "kind": "shifted_exponential",
        "shift": MIN_S_PER_SAMPLE,
        "rate": 1 / (knobs.tail * MIN_S_PER_SAMPLE),
    }
    return Experiment(
        scheme=scheme, scheme_args=args[scheme], workers=WORKERS, delays=delays, **{**DIGITS, **more}
    )


def matrix(knobs: ByHand, theme: Theme) -> go.Figure:
    """Draw the allocation with its coefficients."""
    figure = code_figure(experiment(knobs, "GC"), theme)
    figure.update_traces(x=[1, 2, 3])  # numbered from 1, as in the text
    text = "the CodedReduce paper’s example" if knobs.draw == 0 else f"random, draw {knobs.draw}"
    return figure.update_layout(title_text="The code B", title_subtitle_text=text)


def decoding(knobs: ByHand, theme: Theme) -> go.Figure:
    """Draw the messages that arrive, their weights, and the resulting weight of each part."""
    code, g = knobs.code, knobs.gradients
    whole = float(chop(g.sum(), np.abs(g).sum()))
    weights, residual = weights_of(code, knobs.answered)
    messages = knobs.messages
    terms = weights * messages[list(knobs.answered)]
    total = float(chop(terms.sum(), np.abs(terms).sum()))
    pairs = zip(weights, knobs.answered, strict=True)
    sum_of = " + ".join(f"({_round(a)})·({_round(messages[i])})" for a, i in pairs)
    good = "the full gradient" if not residual else f"the full gradient would be {_round(whole)}"
    figure = new_figure(
        theme, "What the master makes of the answers", f"{sum_of} = {_round(total)}: {good}", HEIGHT
    )
    for a, i in zip(weights, knobs.answered, strict=True):
        name = f"worker {i + 1}: weight {_round(a)} × message {_round(messages[i])}"
        figure.add_bar(
            x=["part 1", "part 2", "part 3"],
            y=a * code.matrix[i],
            name=name,
            marker={"color": fade(COLORS[i], PALE), "line": {"width": 2, "color": COLORS[i]}},
            textfont={"color": palette(theme).text},
            text=[_round(v) if v else "" for v in a * code.matrix[i]],
            hovertemplate=f"worker {i + 1}<br>%{{y:.3g}} times the gradient of %{{x}}<extra></extra>",
        )
    figure.add_hline(y=1, line={"color": palette(theme).text, "width": 2, "dash": "dot"})
    figure.update_yaxes(
        title_text="how often a part is counted", zeroline=True, zerolinecolor=palette(theme).muted
    )
    figure.update_layout(barmode="relative", bargap=0.45, legend_traceorder="normal", showlegend=True)
    return figure


def _round(value: float) -> str:
    return f"{value + 0.0:.3g}".replace("-", "−")


def times(tail: float) -> tuple[float, float]:
    """Return the mean round time of UMW and of GC, s."""
    rate = 1 / (tail * MIN_S_PER_SAMPLE)
    return (
        theory.umw_time(WORKERS, SAMPLES, MIN_S_PER_SAMPLE, rate),
        theory.gc_time(WORKERS, STRAGGLERS, SAMPLES, MIN_S_PER_SAMPLE, rate),
    )


def price(knobs: ByHand, theme: Theme) -> go.Figure:
    """Draw for which tails twice the work is worth it."""
    figure = new_figure(
        theme, "Does twice the work pay?", "mean round time of three workers, in units of the least", HEIGHT
    )
    unit = SAMPLES * MIN_S_PER_SAMPLE / WORKERS
    both = np.array([times(float(tail)) for tail in TAILS]) / unit
    figure.add_trace(curve(TAILS, both[:, 0], "UMW: waits for all three", scheme_style("UMW")))
    figure.add_trace(curve(TAILS, both[:, 1], "GC: twice the load, waits for two", scheme_style("GC")))
    figure.update_xaxes(
        title_text="tail: mean random part over least part, 1/(aμ)", **log_axis(TAILS[0], TAILS[-1])
    )
    figure.update_yaxes(title_text="mean round time ÷ (a d/3)", type="log", dtick="D2", tickformat="~g")
    umw, gc = times(knobs.tail)
    here(figure, knobs.tail, f"GC: {gc / umw:.3g} × UMW", theme)
    return figure


# ---------------------------------------------------------------- the run to watch


def entries(knobs: ByHand) -> list[Experiment]:
    """Return schemes on three workers: waiting for all, coding, and ignoring workers."""
    sgd = {"optimiser": "inverse_time"}
    return [
        experiment(knobs, "UMW", rounds=200),
        experiment(knobs, "GC", rounds=200),
        experiment(knobs, "SGD", rounds=200, **sgd),
    ]


# ---------------------------------------------------------------- exercises


def _late(knobs: ByHand) -> int:
    """Return the late worker of the exercise, from 0: the first late one in the figure, or else worker 1."""
    return next((i for i in range(WORKERS) if i not in knobs.answered), 0)


def _first(knobs: ByHand) -> int:
    """Return the first of the other two workers."""
    return next(i for i in range(WORKERS) if i != _late(knobs))


def _weights(knobs: ByHand) -> Array:
    others = tuple(i for i in range(WORKERS) if i != _late(knobs))
    return weights_of(knobs.code, others)[0]


def break_even() -> float:
    """Return the tail above which the mean round of GC is shorter. Both means are linear in the tail."""
    (umw0, gc0), (umw1, gc1) = times(1.0), times(2.0)
    at_one, slope = gc0 - umw0, (gc1 - umw1) - (gc0 - umw0)
    return 1.0 - at_one / slope


def _row(values: Array) -> str:
    return ", ".join(_round(v) for v in values)


EXERCISES: tuple[Exercise[ByHand], ...] = (
    Exercise(
        title="1. A message",
        text=lambda k: (
            f"The gradients of the parts are {_row(k.gradients)}. What number does <b>worker 3</b> send?"
            f" (Its row of <i>B</i> is {_row(k.code.matrix[2])}.)"
        ),
        answer=lambda k: float(k.messages[2]),
        absolute=0.02,
        hint=lambda _: "Multiply each gradient by the coefficient of its part, then add up. Mind the signs.",
        slips=((lambda k: float(k.gradients.sum()), "That is the sum of all; worker 3 holds two parts."),),
        why=lambda k: (
            "<p>"
            + " + ".join(
                f"({_round(b)})·({_round(g)})"
                for b, g in zip(k.code.matrix[2], k.gradients, strict=True)
                if b
            )
            + f" = {_round(float(k.messages[2]))}.</p>"
        ),
    ),
    Exercise(
        title="2. A decode weight",
        text=lambda k: (
            f"Worker {_late(k) + 1} is late. With which weight does the message of <b>worker {_first(k) + 1}</b>"
            " have to be multiplied so that the two others’ messages add up to the full gradient?"
        ),
        answer=lambda k: float(_weights(k)[0]),
        hint=lambda k: (
            "Both weights together must count every part exactly once. Look at the part that only"
            f" worker {_first(k) + 1} of the two holds."
        ),
        slips=(
            (lambda k: float(_weights(k)[1]), "That is the other one’s weight."),
            (
                lambda _: 1.0,
                "Then the part that both hold, or its coefficient, comes out wrong: check column by column.",
            ),
        ),
        why=lambda k: (
            f"<p>Of the two, only worker {_first(k) + 1} holds part {_only(k) + 1}, with the coefficient"
            f" {_round(k.code.matrix[_first(k), _only(k)])}; its weight must make that 1: 1 /"
            f" ({_round(k.code.matrix[_first(k), _only(k)])}) = {_round(_weights(k)[0])}. The other’s weight is"
            f" {_round(_weights(k)[1])}, and the part that both hold then comes out right by itself: that is what the"
            " code was made for.</p>"
        ),
    ),
    Exercise(
        title="3. When it pays",
        text=lambda _: (
            "Three workers. UMW: each goes through <i>d</i>/3 samples, and all are waited for. GC: each goes through"
            " 2<i>d</i>/3, and two are waited for. From which tail 1/(<i>aμ</i>) on is GC’s mean round the shorter"
            " one?"
        ),
        answer=lambda _: break_even(),
        hint=lambda _: (
            "Write both means with the formula of lecture 1, in units of <i>a d</i>/3: 1 + tail·<i>H</i><sub>3</sub>,"
            " and twice 1 + tail·(<i>H</i><sub>3</sub> − <i>H</i><sub>1</sub>). Set them equal."
        ),
        slips=((lambda _: 1.0, "With tail 1 the doubled least part still costs more than the wait saves."),),
        why=lambda _: (
            f"<p>1 + (11/6)·tail = 2·(1 + (5/6)·tail) holds for tail = {break_even():.4g}. Three workers need a long"
            " tail for coding to pay. With more workers the last one is later, and the price, (<i>S</i>+1)/<i>N</i> of"
            " the data instead of 1/<i>N</i>, buys more.</p>"
        ),
    ),
)


def _only(knobs: ByHand) -> int:
    """Return the part that only the first of the other two workers stores."""
    first, last = (i for i in range(WORKERS) if i != _late(knobs))
    held = knobs.code.matrix[[first, last]] != 0
    return int(np.flatnonzero(held[0] & ~held[1])[0])


lecture: Script[ByHand] = Script(
    "2-by-hand",
    ByHand,
    {
        "code": LectureFigure(("draw",), matrix),
        "decoding": LectureFigure(("g1", "g2", "g3", "late", "draw"), decoding),
        "price": LectureFigure(("tail",), price),
    },
    entries,
    ("tail",),
    EXERCISES,
    ("round", "loss"),
    about="Three workers, one of them late: how a code still gives the whole gradient.",
)

"""Lecture 3: why a tree? A receiver takes one message at a time, and the master of a star receives all messages."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import plotly.graph_objects as go

from workbench.core import theory
from workbench.core.base.settings import setting
from workbench.core.base.types import Array
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.presets.codedreduce import baselines
from workbench.core.running.start import run
from workbench.lab.figures import gantt, scheme_style
from workbench.lab.figures import tree as tree_figure
from workbench.lab.figures.style import Theme, new_figure
from workbench.lab.widgets.plots.plot import low
from workbench_lectures.drawing import HEIGHT, curve, here, log_axis
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script
from workbench_lectures.runs import DIGITS

FLOATS = 650  # parameters p of the bundled digits: ten classes, 64 pixels and a constant
DRAWN = 12  # rounds of a forecast
MESSAGES = np.geomspace(1e-4, 0.1, 7)  # s per message
SHOWN = ("UMW", "GC", "RAR", "CR")


class Bandwidth(Knobs):
    """Regular tree, and the time of messages."""

    labels: ClassVar = {
        "children": "children n",
        "layers": "layers L",
        "stragglers": "stragglers s",
        "message": "message time",
    }
    logs: ClassVar = frozenset({"message"})

    children: int = setting(4, "children of every parent", ge=2, le=6)
    layers: int = setting(3, "layers of workers below the master", ge=1, le=3)
    stragglers: int = setting(1, "late children that every parent tolerates", ge=0, le=5)
    message: float = setting(
        6.0, "time t_c that one message occupies its receiver’s port", "ms", ge=0.1, le=100
    )
    latency: float = setting(1.0, "time that any message is on its way, however short", "ms", ge=0, le=10)
    scheme: Literal["CR", "GC", "UMW"] = setting("GC", "whose round is shown")

    def fit(self) -> Bandwidth:
        """Make sure that at least one child of a parent answers."""
        return self.replace(stragglers=min(self.stragglers, self.children - 1))

    @property
    def workers(self) -> int:
        """N, number of workers."""
        return theory.cr_workers(self.children, self.layers)

    def experiments(self, rounds: int, **more: object) -> dict[str, Experiment]:
        """Return all five schemes, by name."""
        link = {"latency": 1e-3 * self.latency, "bandwidth": 8 * FLOATS / (1e-3 * self.message)}
        args = (self.children, self.layers, self.stragglers)
        return {e.scheme: e for e in baselines(*args, rounds=rounds, link=link, **{**DIGITS, **more})}


# ---------------------------------------------------------------- figures


@lru_cache(maxsize=64)
def means(children: int, layers: int, stragglers: int, latency: float) -> dict[str, Array]:
    """Return the mean round time of each scheme at each of `MESSAGES`, s."""
    found: dict[str, list[float]] = {name: [] for name in SHOWN}
    for message in MESSAGES.tolist():
        knobs = Bandwidth(
            children=children, layers=layers, stragglers=stragglers, message=1e3 * message, latency=latency
        )
        experiments = knobs.experiments(DRAWN)
        for name in SHOWN:
            found[name].append(forecast(experiments[name]).mean)
    return {name: np.array(values) for name, values in found.items()}


def times(knobs: Bandwidth, theme: Theme) -> go.Figure:
    """Draw the mean round time against the time of a message."""
    text = f"{knobs.workers} workers, any {knobs.stragglers} of {knobs.children} late (UMW, RAR: nobody may be late)"
    figure = new_figure(theme, "Time of a round", text, HEIGHT)
    found = means(knobs.children, knobs.layers, knobs.stragglers, knobs.latency)
    for name in SHOWN:
        figure.add_trace(curve(1e3 * MESSAGES, 1e3 * found[name], name, scheme_style(name), "%{y:.4g} ms"))
    figure.update_xaxes(
        title_text="time of one message at its receiver, t_c (ms)",
        **log_axis(1e3 * MESSAGES[0], 1e3 * MESSAGES[-1]),
    )
    figure.update_yaxes(title_text="mean round time (ms)", type="log", dtick=1, tickformat="~g")
    here(figure, knobs.message, f"t_c = {knobs.message:.3g} ms", theme)
    return figure


def tree(knobs: Bandwidth, theme: Theme) -> go.Figure:
    """Draw the tree with its allocation."""
    return low(tree_figure(knobs.experiments(1)["CR"], theme), 560)


def one_round(knobs: Bandwidth, theme: Theme) -> go.Figure:
    """Draw one round, row by row."""
    e = knobs.experiments(1, problem="unit", problem_args={"samples": 1797})[knobs.scheme]
    link = {**e.link.model_dump(), "bandwidth": 8 * e.shape()[1] / (1e-3 * knobs.message)}
    # Only arrival times are shown, so a code that loses digits is acceptable.
    args = {**e.scheme_args, "least_digits": 0} if knobs.scheme == "GC" else e.scheme_args
    e = e.replace(link=link, scheme_args=args)
    return low(gantt(run(e), 0, theme=theme), 600)


# ---------------------------------------------------------------- the run to watch


def entries(knobs: Bandwidth) -> list[Experiment]:
    """Return the tree and its baselines, on the same stragglers."""
    return list(knobs.experiments(150).values())


# ---------------------------------------------------------------- exercises


def _load(knobs: Bandwidth) -> float:
    return theory.cr_load(knobs.children, knobs.layers, knobs.stragglers)


def fastest(knobs: Bandwidth) -> str:
    """Return the scheme with the shortest mean round at the current sliders."""
    experiments = knobs.experiments(DRAWN)
    return min(SHOWN, key=lambda name: forecast(experiments[name]).mean)


def _powers(knobs: Bandwidth) -> str:
    q = f"{knobs.children}/{knobs.stragglers + 1}"
    return " + ".join(f"({q})<sup>{layer}</sup>" for layer in range(1, knobs.layers + 1))


EXERCISES: tuple[Exercise[Bandwidth], ...] = (
    Exercise(
        title="1. Load of the tree",
        text=lambda k: (
            f"A tree of {k.layers} layers, {k.children} children per parent, of which any {k.stragglers} may be late."
            " What share of the data set does each worker compute on in CodedReduce?"
        ),
        answer=_load,
        hint=lambda _: (
            "<i>r</i> = 1/(<i>q</i> + <i>q</i>² + … + <i>q</i><sup>L</sup>) with <i>q</i> = <i>n</i>/(<i>s</i>+1):"
            " each layer more multiplies how many share the work."
        ),
        slips=(
            (
                lambda k: (k.stragglers + 1) / k.workers,
                "That is (s+1)/N: s late among <i>all</i> workers, not under every parent.",
            ),
            (lambda k: 1 / k.workers, "That is the share without any redundancy."),
        ),
        why=lambda k: (
            f"<p><i>q</i> = {k.children}/{k.stragglers + 1}, so <i>r</i> = 1/({_powers(k)}) = {_load(k):.4g}. Gradient"
            f" coding on a star that tolerates the same share of its {k.workers} workers has a load of about"
            f" {(round(k.stragglers / k.children * k.workers) + 1) / k.workers:.3g}.</p>"
        ),
    ),
    Exercise(
        title="2. Ports at work",
        text=lambda k: (
            "Every parent, the master included, receives one message at a time. How many messages can be received"
            f" <b>at the same time</b> in this tree of {k.workers} workers?"
        ),
        whole=True,
        answer=lambda k: float(theory.cr_parallelisation(k.children, k.layers)),
        hint=lambda _: (
            "Count the receivers: the master and every worker that has children; leaves receive nothing."
        ),
        slips=(
            (lambda k: float(k.workers), "The leaves receive no messages."),
            (lambda _: 1.0, "That would be the star: is the master the only one who receives?"),
            (
                lambda k: float(theory.cr_parallelisation(k.children, k.layers) - 1),
                "Do not forget the master.",
            ),
        ),
        why=lambda k: (
            "<p>The parents: "
            + " + ".join(str(k.children**layer) for layer in range(k.layers))
            + f" = {theory.cr_parallelisation(k.children, k.layers)} = <i>N</i>/<i>n</i>. On a star it is 1, on a ring"
            f" all {k.workers}: this number, the communication parallelisation gain, is how many times as many ports"
            " receive as on a star.</p>"
        ),
    ),
    Exercise(
        title="3. Choose",
        text=lambda k: (
            f"{k.workers} workers, a message occupies a port for {k.message:.3g} ms and is on its way for"
            f" {k.latency:.3g} ms more. Whose mean round is the <b>shortest</b>? (Think first, then look.)"
        ),
        choices=lambda _: {
            "UMW": "UMW: star, uncoded",
            "GC": "GC: star, coded",
            "RAR": "RAR: ring",
            "CR": "CR: tree, coded",
        },
        answer=fastest,
        hint=lambda _: (
            "What passes one after the other: <i>N</i> messages on a star, <i>L</i>(<i>n</i>−<i>s</i>) in a tree,"
            " 2(<i>N</i>−1) small ones of <i>t</i><sub>c</sub>/<i>N</i> in a ring, each with the latency. And who has"
            " to wait for the slowest worker?"
        ),
        why=lambda k: (
            "<p>Mean times of a round: "
            + ", ".join(
                f"{name} {1e3 * forecast(e).mean:.4g} ms"
                for name, e in k.experiments(DRAWN).items()
                if name in SHOWN
            )
            + f". So it is {fastest(k)}. Without latency a ring’s rounds are the shortest where stragglers are mild; a"
            " few milliseconds of latency, paid 2(<i>N</i>−1) times, turn that around.</p>"
        ),
    ),
)

lecture: Script[Bandwidth] = Script(
    "3-why-a-tree",
    Bandwidth,
    {
        "round": LectureFigure(
            ("children", "layers", "stragglers", "message", "latency", "scheme"), one_round
        ),
        "tree": LectureFigure(("children", "layers", "stragglers"), tree),
        "times": LectureFigure(("children", "layers", "stragglers", "message", "latency"), times),
    },
    entries,
    ("children", "layers", "stragglers", "message", "latency"),
    EXERCISES,
    about="A tree shares the work of receiving, where the port of a star's master is the bottleneck.",
)

"""Lecture 7: coding or not? Codes, fewer answers, local steps, asynchrony: same stragglers, same loss."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from workbench.core import schemes, theory
from workbench.core.base.settings import setting
from workbench.core.base.text import parse
from workbench.core.contract.scheme import marked
from workbench.core.experiment import Experiment
from workbench.lab.figures.labels import ratio_text
from workbench.lab.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    PURPLE,
    VERMILLION,
    Theme,
    fade,
    new_figure,
    palette,
)
from workbench_lectures.comparison_table import OWN, band, best_pair, ranked, read
from workbench_lectures.contest_settings import (
    COSTS,
    FAMILIES,
    LEVELS,
    MINI,
    PROBLEMS,
    TIMED,
    WORKERS,
    experiment,
    synthetic,
)
from workbench_lectures.drawing import HEIGHT
from workbench_lectures.exercises import Exercise
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script

COLOURS = dict(zip(FAMILIES, (GREY, BLUE, GREEN, ORANGE, VERMILLION, PINK, PURPLE), strict=True))
ACROSS = {
    "bursts": "factor by which a worker in a burst takes longer",
    "tail": "mean of what is added at random to a share",
}
SEVERITIES = sorted({int(level) for levels in LEVELS.values() for level in levels})  # all values of the axis
RACE = 1.2  # length of the watched run, as a multiple of the mean rounds to the target


MEASURED = {name: "test loss" if name == "least squares" else "test accuracy" for name in PROBLEMS}


class CodingOrNot(Knobs):
    """Cell of the map: problem, delay model, and severity of the stragglers."""

    labels: ClassVar = {
        "problem": "problem",
        "delay_model": "stragglers",
        "severity": "severity",
        "view": "map shows",
    }
    choice_labels: ClassVar = {
        "delay_model": {
            "bursts": "bursts: slow for a while",
            "tail": "tail: random, new each time",
        },
        "view": {"fastest": "who is first", "coding": "best code against the rest"},
    }

    problem: Literal["logistic", "softmax", "least squares", "network"] = setting(
        "logistic", "what is learnt"
    )
    delay_model: Literal["bursts", "tail"] = setting("tail", "how workers are held up")
    severity: int = setting(
        SEVERITIES[0],
        "bursts: factor on the time of a share; tail: mean time that is added to a share, in shares",
        ge=SEVERITIES[0],
        le=SEVERITIES[-1],
    )
    view: Literal["fastest", "coding"] = setting("fastest", "who is first, or what coding is worth")

    def fit(self) -> CodingOrNot:
        """Move the severity to the nearest one that the map has."""
        return self.replace(
            severity=int(min(LEVELS[self.delay_model], key=lambda each: abs(each - self.severity)))
        )

    @property
    def column(self) -> str:
        """Column of the map."""
        return str(self.severity)

    @property
    def level(self) -> int:
        """Number of the column among those of its kind, from 1."""
        return columns(self.delay_model).index(self.column) + 1

    @property
    def message(self) -> float:
        """Time of one message, divided by the time of an uncoded share."""
        return COSTS[0]


def columns(delay_model: str) -> list[str]:
    """Return the columns of the map, from the left."""
    return [f"{level:g}" for level in LEVELS[delay_model]]


@lru_cache(maxsize=1)
def table() -> pd.DataFrame:
    """Return the results of the comparison, for schemes that exist."""
    found = read()
    return found[found["scheme"].isin(schemes.names())]


@lru_cache(maxsize=128)
def cell(problem: str, delay_model: str, column: str, cost: float) -> pd.DataFrame:
    """Return the schemes of one cell that reach the loss, the fastest first."""
    return ranked(_tried(problem, delay_model, column, cost))


def absent(problem: str, delay_model: str, column: str, cost: float) -> list[str]:
    """Return the schemes of one cell that, under some seed, do not reach the loss in time."""
    found = _tried(problem, delay_model, column, cost)
    return [str(row["scheme"]) for _, row in found.iterrows() if not np.isfinite(row["seconds"]).all()]


def _tried(problem: str, delay_model: str, column: str, cost: float) -> pd.DataFrame:
    found = table()
    place = (
        (found["problem"] == problem) & (found["delay_model"] == delay_model) & (found["column"] == column)
    )
    return found[place & (found["cost"] == cost)]


# ---------------------------------------------------------------- figures


def called(row: pd.Series[Any]) -> str:
    """Return the name of a scheme in the map, marked if it follows only the abstract of its paper."""
    name = str(row["scheme"])
    return "tree" if (row["family"], name) == ("wait for all", "CR") else marked(name, name)


def label(row: pd.Series[Any]) -> str:
    """Return the text of a bar: the scheme, schemes with the same times, its settings, and its share of the data."""
    same = f" = {row['same']}" if row["same"] else ""
    data = "" if float(row["share"]) == 1.0 else f" on {float(row['share']):g} of the data"
    return f"{called(row)}{same} <i>{row['settings']}</i>{data}"


def fastest(found: pd.DataFrame) -> tuple[str, str]:
    """Return the family of the fastest scheme, and the text of its cell: name, ties, gain over waiting."""
    first = found.iloc[0]
    waits = float(found.loc[found["scheme"] == "UMW", "mean"].iloc[0])
    ties = [called(row) for _, row in found[found["tie"]].iloc[1:].iterrows()]
    more = f" +{len(ties) - 1}" if len(ties) > 1 else ""
    tied = f"≈ {ties[0]}{more}" if ties else ""
    return str(first["family"]), f"<b>{called(first)}</b><br>{ratio_text(waits / first['mean'])}<br>{tied}"


def worth(found: pd.DataFrame) -> tuple[float, str]:
    """Return log2 of a ratio of times, or 0 for a tie, and a text.

    The ratio is the time of the best scheme without a code divided by that of the best code. Above 0, the code is
    quicker. Only schemes with plain gradient steps count.
    """
    coded, other = best_pair(found)
    low, ratio, high = band(other["seconds"] / coded["seconds"])
    text = f"<b>{ratio_text(ratio)}</b><br>{called(coded)} :<br>{called(other)}"
    return (0.0, f"{text}<br>a tie") if low <= 1 <= high else (float(np.log2(ratio)), text)


Cells = list[list[pd.DataFrame]]
Drawn = tuple[list[list[float]], list[list[str]], dict[str, Any]]  # values, texts, style of the heat map


def _fastest_map(cells: Cells) -> Drawn:
    """Return values with one colour per family."""
    shown = [[fastest(found) for found in row] for row in cells]
    names = list(FAMILIES)
    ends = [
        ((k + end) / len(names), fade(COLOURS[names[k]], 0.4)) for k in range(len(names)) for end in (0, 1)
    ]
    look = {"colorscale": ends, "zmin": -0.5, "zmax": len(names) - 0.5}
    return (
        [[float(names.index(name)) for name, _ in row] for row in shown],
        _texts(shown),
        look,
    )


def _worths(cells: Cells) -> Drawn:
    """Return values with blue if a code is fastest, and vermillion if not."""
    shown = [[worth(found) for found in row] for row in cells]
    scale = [[0.0, fade(VERMILLION, 0.6)], [0.5, fade(GREY, 0.15)], [1.0, fade(BLUE, 0.6)]]
    return (
        [[value for value, _ in row] for row in shown],
        _texts(shown),
        {"colorscale": scale, "zmin": -1, "zmax": 1},
    )


def _texts(message: Sequence[Sequence[tuple[Any, str]]]) -> list[list[str]]:
    return [[text for _, text in row] for row in message]


def chart(knobs: CodingOrNot, theme: Theme) -> go.Figure:
    """Draw the fastest scheme of each cell, or the gain of coding."""
    across = [(delay_model, column) for delay_model in LEVELS for column in columns(delay_model)]
    down = list(PROBLEMS)
    cells = [[cell(problem, *place, knobs.message) for place in across] for problem in down]
    if knobs.view == "fastest":
        about = (
            f"{WORKERS} workers · time of waiting for all (UMW) over that of the quickest · ≈ {TIMED} seeds do not"
            " separate them"
        )
        figure = new_figure(theme, "Who is first at the loss?", about, HEIGHT)
        z, text, look = _fastest_map(cells)
        for name, colour in COLOURS.items():
            marker = {"color": colour, "size": 14, "symbol": "square"}
            figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)
    else:
        about = (
            f"{WORKERS} workers, plain gradient steps · time without a code over time of the best code: above 1×,"
            " blue, the code is quicker"
        )
        figure = new_figure(theme, "What is coding worth?", about, HEIGHT)
        z, text, look = _worths(cells)
    ink = palette(theme).text
    figure.add_heatmap(
        z=z, text=text, texttemplate="%{text}", textfont={"color": ink, "size": 14},
        showscale=False, xgap=3, ygap=3, hoverinfo="skip", **look,
    )  # fmt: skip
    x, y = across.index((knobs.delay_model, knobs.column)), down.index(knobs.problem)
    figure.add_shape(
        type="rect", x0=x - 0.48, x1=x + 0.48, y0=y - 0.48, y1=y + 0.48, line={"color": ink, "width": 3}
    )  # fmt: skip
    ticks = {"tickmode": "array", "showgrid": False, "zeroline": False}
    names = [f"{delay_model} {column}" for delay_model, column in across]
    title = f"{'; '.join(f'{each}: {ACROSS[each]}' for each in LEVELS)}<br>a message takes {knobs.message:g} shares"
    figure.update_xaxes(title_text=title, tickvals=list(range(len(across))), ticktext=names, **ticks)
    return figure.update_yaxes(tickvals=list(range(len(down))), ticktext=down, **ticks)


def bars(knobs: CodingOrNot, theme: Theme) -> go.Figure:
    """Draw the times of all schemes in one cell."""
    found = cell(knobs.problem, knobs.delay_model, knobs.column, knobs.message).iloc[::-1]
    about = (
        f"{knobs.problem}, {knobs.delay_model}, {knobs.column} · a message takes {knobs.message:g}"
        " · 1 = an uncoded share · 95 %"
    )
    figure = new_figure(theme, "Time to the loss", about, HEIGHT + 60)
    labels = [label(row) for _, row in found.iterrows()]
    for name, colour in COLOURS.items():
        mine = (found["family"] == name).to_numpy()
        if not mine.any():
            continue
        own = found[mine]
        spread = {
            "type": "data",
            "array": own["high"] - own["mean"],
            "arrayminus": own["mean"] - own["low"],
            "color": palette(theme).muted,
        }
        figure.add_bar(
            x=own["mean"], y=[label for label, here in zip(labels, mine, strict=True) if here], name=name,
            orientation="h", marker={"color": colour, "line": {"width": 0}}, error_x=spread,
            customdata=own[["step", "test"]],
            hovertemplate="%{y}: %{x:.3g}, step %{customdata[0]:.3g}, "
            + f"{MEASURED[knobs.problem]} %{{customdata[1]:.3g}}<extra></extra>",
        )  # fmt: skip
    missed = ", ".join(absent(knobs.problem, knobs.delay_model, knobs.column, knobs.message))
    title = "time (undelayed shares)" + (
        f"<br>missed or too slow under some seed: {missed}" if missed else ""
    )
    figure.update_xaxes(title_text=title, rangemode="tozero")
    return figure.update_yaxes(categoryorder="array", categoryarray=labels, tickfont={"size": 12})


# ---------------------------------------------------------------- the run to watch


def entries(knobs: CodingOrNot) -> list[Experiment]:
    """Return the best scheme of every family in the cell."""
    best = cell(knobs.problem, knobs.delay_model, knobs.column, knobs.message).drop_duplicates("family")
    return [_entry(knobs, row) for _, row in best.iterrows()]


def _entry(knobs: CodingOrNot, row: pd.Series[Any]) -> Experiment:
    args = {name: parse(value) for name, value in (text.split("=") for text in row["settings"].split())}
    share = 1.0 if row["scheme"] in MINI else float(row["share"])
    base = experiment(
        synthetic(knobs.delay_model, float(knobs.column), knobs.problem), knobs.message, knobs.problem, share
    )
    rounds = int(np.ceil(RACE * row["rounds"]))
    optimiser = schemes.get(row["scheme"]).optimiser if row["family"] == OWN else base.optimiser
    usual = schemes.get(row["scheme"]).optimiser_args if row["family"] == OWN else {}
    numbers = {**usual, "rate" if optimiser == "amsgrad" else "step": float(row["step"])}
    own = {"optimiser": optimiser, "optimiser_args": numbers}
    return base.replace(scheme=row["scheme"], scheme_args=args, rounds=rounds, **own)


# ---------------------------------------------------------------- exercises


def slow(knobs: CodingOrNot) -> float:
    """Return the factor by which the slow worker of exercise 1 takes longer."""
    return 2.0 * knobs.level + 1


def gain(knobs: CodingOrNot) -> float:
    """Return the answers of asynchronous workers divided by those of workers that wait for each other."""
    pace = [1.0] * (WORKERS - 1) + [slow(knobs)]
    return theory.async_rate(pace) / (WORKERS / max(pace))


def buffer(knobs: CodingOrNot) -> int:
    """Return the buffer size K of exercise 2."""
    return knobs.level + 1


def even(knobs: CodingOrNot) -> float:
    """Return the factor above which a code for s stragglers is faster than waiting for the s stragglers."""
    s, n, message = knobs.level, WORKERS, knobs.message
    return s + 1 + (n - 2 * s) * message


EXERCISES: tuple[Exercise[CodingOrNot], ...] = (
    Exercise(
        title="1. Waiting for nobody",
        text=lambda k: (
            f"{WORKERS} workers take one unit per answer, but one of them takes {slow(k):g} units, always. Messages are"
            " free. How many times as many answers a unit does asynchronous SGD take in as a master that waits for all?"
        ),
        answer=gain,
        hint=lambda _: "Asynchronous workers answer at their own pace: add up their answers a unit.",
        slips=((slow, "That would be so if the slow one, too, answered as often as the others."),),
        why=lambda k: (
            f"<p>({WORKERS - 1} + 1/{slow(k):g}) answers a unit, against {WORKERS} in {slow(k):g} units: {gain(k):.4g}"
            " times as many. Their gradients are old, though, and the slow worker's data count for less.</p>"
        ),
    ),
    Exercise(
        title="2. How old?",
        text=lambda k: (
            f"FedBuff makes a commit of every <i>K</i> = {buffer(k)} answers of {WORKERS} workers. How many commits"
            " old is the model that an answer was computed at, on average?"
        ),
        answer=lambda k: theory.async_staleness(WORKERS, buffer(k)),
        hint=lambda _: (
            "At a commit, how many workers have an answer under way, which then is one commit older?"
        ),
        slips=(
            (lambda _: float(WORKERS - 1), "So it is where every answer is a commit of its own."),
            (lambda k: WORKERS / buffer(k), "The worker that has just answered gets the new model."),
        ),
        why=lambda k: (
            f"<p>Every commit makes the answers of the other {WORKERS - 1} workers one commit older, and {buffer(k)}"
            f" answers go into each: ({WORKERS} − 1)/{buffer(k)} = {theory.async_staleness(WORKERS, buffer(k)):.4g},"
            " whatever the delays and the link are.</p>"
        ),
    ),
    Exercise(
        title="3. When is a code worth its load?",
        text=lambda k: (
            f"In every round <i>s</i> = {k.level} of {WORKERS} workers take <i>f</i> units instead of 1. A code for"
            f" <i>s</i> stragglers gives everybody <i>s</i> + 1 shares, and needs the first {WORKERS} − <i>s</i>"
            f" answers. One message at a time passes the master’s port, in {k.message:g} units. From which <i>f</i> on"
            " is the code quicker than waiting for all?"
        ),
        answer=even,
        hint=lambda _: (
            "When is the last answer through, if you wait for all? The slow ones come together. And when is the last of"
            " those that the code needs?"
        ),
        slips=((lambda k: float(k.level), "Everybody’s load is one share more than that."),),
        why=lambda k: (
            f"<p>Waiting: <i>f</i> + {k.level}·{k.message:g}. The code: {k.level + 1} +"
            f" {WORKERS - k.level}·{k.message:g}. They are even at <i>f</i> = {even(k):.4g}. Taking just the first"
            f" {WORKERS} − <i>s</i> answers would take {1 + (WORKERS - k.level) * k.message:.4g}: the code must save"
            " rounds to be worth its load.</p>"
        ),
    ),
)

lecture: Script[CodingOrNot] = Script(
    "7-coding-or-not",
    CodingOrNot,
    {
        "map": LectureFigure(("problem", "delay_model", "severity", "view"), chart),
        "bars": LectureFigure(("problem", "delay_model", "severity"), bars),
    },
    entries,
    ("problem", "delay_model", "severity"),
    EXERCISES,
    about="Codes, fewer answers, local steps or no waiting: who trains the model first.",
)

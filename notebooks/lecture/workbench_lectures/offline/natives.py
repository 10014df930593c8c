"""Functions with hand-written JavaScript, and the data that it needs: random draws, codes, plans, styles."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from workbench.core.contract.delays import CounterRNG
from workbench.core.experiment import Experiment
from workbench.core.schemes import names
from workbench.core.theory._quadrature import NODES, WEIGHTS
from workbench.core.theory._residuals import mean_errors
from workbench.lab.figures.page import PALETTES
from workbench.lab.figures.style import (
    CLEAR,
    COMPUTING,
    RECEIVING,
    SENDING,
    TOO_LATE,
    TRAVELLING,
    scheme_style,
)
from workbench_lectures import bandwidth, by_hand
from workbench_lectures.runs import DIGITS, DIGITS_SAMPLES

FOLDER = Path(__file__).parent / "js"
LIBRARY = ("python", "theory", "rounds")
# numbers of rounds and workers with stored draws, enough for every chart of a lecture
ROUNDS, WORKERS = 20, 258
# colours of a Gantt chart
GANTT = {"computing": COMPUTING, "sending": SENDING, "travelling": TRAVELLING, "receiving": RECEIVING}
GANTT |= {"late": TOO_LATE, "clear": CLEAR}


def source(name: str) -> str:
    """Return a script of the package.

    >>> "class Nd" in source("python")
    True
    """
    return (FOLDER / f"{name}.js").read_text(encoding="utf-8")


@cache
def natives() -> frozenset[str]:
    """Return the functions of the package that have hand-written JavaScript.

    >>> "workbench.core.forecasting.forecast" in natives()
    True
    """
    text = "".join(map(source, LIBRARY[1:]))
    short = {"T": "workbench.core.theory.", "F": "workbench.lab.figures.style."}
    found = set(re.findall(r'^N\["([\w.]+)"\]', text, re.M))
    found |= {short[a] + b for a, b in re.findall(r"^N\[`\$\{(\w)\}([\w.]+)`\]", text, re.M)}
    return frozenset(
        found | {f"{short['T']}_checks.{name}" for name in ("whole", "real", "positive", "probability")}
    )


@cache
def known() -> frozenset[str]:
    """Return the functions of Python, NumPy, math and plotly that `python.js` defines."""
    text, found = source("python"), set()
    for name, module in {"py": "builtins", "np": "numpy", "math": "math"}.items():
        inside = text[text.index(f"const {name} = {{") :]
        inside = inside[: inside.index("\n};")]
        found |= {
            f"{module}.{each}" for each in re.findall(r"(\w+): (?:native|spread|elementwise)\(", inside)
        }
    found |= {f"builtins.{each}" for each in ("min", "max", "bool", "set")}
    return frozenset(found | {f"plotly.graph_objects.{each}" for each in ("Scatter", "Bar", "Heatmap")})


def data(of: set[str]) -> dict[str, Any]:
    """Return the data for the hand-written functions."""
    found: dict[str, Any] = {
        "styles": {name: scheme_style(name)._asdict() for name in names()},
        "palettes": {theme: vars(colors) for theme, colors in PALETTES.items()},
        "gantt": GANTT,
        "quadrature": {"nodes": NODES.tolist(), "weights": WEIGHTS.tolist()},
    }
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "workbench_lectures.by_hand.code_of": codes,
        "workbench_lectures.approximate.Approximate.slow_ones": uniforms,
        "workbench.core.theory._residuals.mean_errors": residuals,
        "workbench.core.experiment.Experiment": draws,
        "workbench.core.presets.codedreduce.baselines": lambda: {**draws(), **trees()},
    }
    for name in of & set(parts):
        found |= parts[name]()
    return found


def draws() -> dict[str, Any]:
    """Return standard exponentials of seed 0. A worker's value in a round does not depend on the number of workers."""
    keyed = CounterRNG(0)
    return {"draws": [keyed.rng(r).standard_exponential(WORKERS).tolist() for r in range(ROUNDS)]}


def uniforms() -> dict[str, Any]:
    """Return the uniforms that determine which workers are slow in a run, by seed."""
    return {"uniforms": [CounterRNG(seed).rng(-1).random(14).tolist() for seed in range(31)]}


def residuals() -> dict[str, Any]:
    """Return the mean decoding errors of the cyclic code, by workers, load and answers."""
    return {
        "residuals": {
            n: {s: mean_errors(n, s, "ones").tolist() for s in range(1, n // 2 + 1)} for n in range(4, 15)
        }
    }


def codes() -> dict[str, Any]:
    """Return the code matrices for three workers, and the decode weights for each set of answers."""
    found = []
    for draw in range(10):
        code = by_hand.code_of(draw)
        sets = [rows for k in (1, 2, 3) for rows in combinations(range(by_hand.WORKERS), k)]
        decoded = {"".join(map(str, rows)): code.decode(rows) for rows in sets}
        plain = {key: [weights.tolist(), float(residual)] for key, (weights, residual) in decoded.items()}
        found.append({"matrix": code.matrix.tolist(), "decoded": plain})
    return {"codes": found}


def trees() -> dict[str, Any]:
    """Return the number of samples of each worker and the model size, for every tree of the sliders.

    `digits` has the number of samples and the model size of the digits.
    """
    fields = bandwidth.Bandwidth.entries()
    top = {line.name: int(line.high or 0) for line in fields if line.kind == "whole"}
    found = {}
    for n in range(2, top["children"] + 1):
        for layers in range(1, top["layers"] + 1):
            for s in range(n):
                knobs = bandwidth.Bandwidth(children=n, layers=layers, stragglers=s)
                e = knobs.experiments(1, problem="unit", problem_args={"samples": DIGITS_SAMPLES})["CR"]
                found[f"{n},{layers},{s}"] = {"loads": e.plan.loads[1:].tolist(), "floats": e.shape()[1]}
    samples, floats = Experiment(**DIGITS).shape()
    return {"trees": found, "digits": {"samples": samples, "floats": floats}}

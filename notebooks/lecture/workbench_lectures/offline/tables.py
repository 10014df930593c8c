"""Figures for all positions of their sliders, and a recorded run, which JavaScript cannot compute."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from workbench.core.running.start import start_all
from workbench.core.trace.metrics import RISING_METRICS
from workbench.lab.figures.labels import metric_words
from workbench.lab.figures.speedups import AXES, speedups
from workbench.lab.widgets.explorer.tables import speeds
from workbench.lab.widgets.plots.liveplot import _cumulative, curves_of, look
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import LectureFigure, Script
from workbench_lectures.race import a_target

DIGITS = 6  # significant digits, more than a screen shows
MIN_SLIDER_PLACES = 5  # positions of a slider of real numbers, if the lecture states none


def packed(value: Any) -> str:
    """Return JSON, compressed and encoded as text, which a page can read from a file without a server."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def places(script: Script[Any], names: Sequence[str]) -> Mapping[str, Sequence[Any]]:
    """Return the positions of sliders in a figure that is made in advance.

    >>> from workbench_lectures import scripts
    >>> places(scripts()["2-by-hand"], ["draw"])
    {'draw': range(0, 10)}
    """
    found: dict[str, Sequence[Any]] = {}
    first = script.knobs()
    for line in script.knobs.entries():
        if line.name not in names:
            continue
        if line.name in script.places:
            found[line.name] = script.places[line.name]
        elif line.kind == "choice":
            found[line.name] = line.choices
        elif line.kind == "whole":
            found[line.name] = range(int(line.low or 0), int(line.high or 0) + 1)
        else:
            spread = np.geomspace if line.log else np.linspace
            spaced = [float(f"{x:.3g}") for x in spread(line.low or 0.0, line.high or 0.0, MIN_SLIDER_PLACES)]
            found[line.name] = sorted({*spaced, getattr(first, line.name)})  # and the initial position
    return found


def key(knobs: Knobs, names: Sequence[str]) -> str:
    """Return the key of a table's row, as JavaScript writes it."""
    values = (getattr(knobs, name) for name in names)
    return ",".join(str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values)


def table(script: Script[Any], lecture_figure: LectureFigure[Any]) -> dict[str, Any]:
    """Return all figures of a part, in the light theme, as differences from the first one."""
    found = places(script, lecture_figure.names)
    base: dict[str, Any] = {}
    values: dict[str, int] = {}
    figures: dict[str, dict[str, int]] = {}
    for chosen in product(*found.values()):
        knobs = script.knobs(**dict(zip(found, chosen, strict=True))).fit()
        row = key(knobs, lecture_figure.names)
        if row in figures:
            continue
        figure = lecture_figure.draw(knobs, "light")
        now = {
            "data": [_plain(trace.to_plotly_json()) for trace in figure.data],
            "layout": _plain(figure.layout.to_plotly_json()),
        }
        now["layout"].pop("template")
        base = base or now
        changes = dict(_changes(base, now, ""))
        texts = {
            path: json.dumps(new, separators=(",", ":")) for path, new in changes.items() if new is not GONE
        }
        for text in texts.values():
            values.setdefault(text, len(values))
        figures[row] = {path: values[texts[path]] if path in texts else -1 for path in changes}
    return {"base": base, "values": [json.loads(text) for text in values], "figures": figures}


GONE = object()


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in {**old, **new}:
            yield from _changes(old.get(name, GONE), new.get(name, GONE), f"{path}/{name}".removeprefix("/"))
    elif (
        isinstance(old, list)
        and isinstance(new, list)
        and len(old) == len(new)
        and any(isinstance(x, dict) for x in old)
    ):
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _changes(one, other, f"{path}/{i}")
    elif old is GONE or new is GONE or old != new:
        yield path, new


def _plain(value: Any) -> Any:
    """Return JSON types with few digits. NaN becomes null, and unset values are omitted."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        short = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
        return int(short) if short is not None and short.is_integer() and abs(short) < 1e15 else short
    return value.item() if isinstance(value, np.generic) else value


def race(script: Script[Any]) -> dict[str, Any]:
    """Return the watched run, recorded at the initial sliders: curves, rows, and labels of the axes."""
    runs = start_all(script.entries(script.knobs().fit()))
    traces = [run.result() for run in runs]
    columns = [_shown(run.rows()) for run in runs]
    metrics = {name: metric_words(name) for of in columns for name in of if name not in AXES}
    x, y = script.axes
    target = a_target(traces) if y == "loss" else None
    speedup_table = speeds(speedups(traces, target, y), target) if target is not None else ""
    return {
        "curves": curves_of(runs), "columns": columns, "metrics": metrics, "titles": dict(AXES), "x": x, "y": y,
        "styles": {"light": look("light"), "dark": look("dark")}, "target": target, "table": speedup_table,
        "rising": list(RISING_METRICS),
    }  # fmt: skip


def _shown(rows: Any) -> dict[str, list[float]]:
    columns = _cumulative(rows, {"bytes": 0.0, "samples": 0.0})
    return {name: _plain(column) for name, column in columns.items()}

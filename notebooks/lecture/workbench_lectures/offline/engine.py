"""Computations of a lecture without a server: JavaScript for its figures and exercises, and tables for the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plotly.io import templates

from workbench_lectures.lecture import Script
from workbench_lectures.offline.natives import LIBRARY, data, known, natives, source
from workbench_lectures.offline.translate import Translator, Untranslatable


@dataclass
class Engine:
    """JavaScript of a lecture, and the reasons for figures that need tables instead."""

    code: str
    missing: Mapping[str, str] = field(default_factory=dict)  # figure, or "exercises" -> reason


def engine(script: Script[Any]) -> Engine:
    """Translate a lecture's figures and exercises.

    >>> from workbench_lectures import scripts
    >>> engine(scripts()["1-stragglers"]).missing
    {}
    """
    translator = Translator(natives(), known())
    module = sys.modules[script.knobs.__module__]
    named = {id(value): name for name, value in vars(module).items()}
    missing: dict[str, str] = {}

    def translated(of: str, value: Any) -> str:
        before = len(translator.lines), dict(translator._ids)
        try:
            return translator.of(module, named[id(value)])
        except (Untranslatable, KeyError) as error:
            del translator.lines[before[0] :]
            translator._ids = before[1]
            missing[of] = str(error)
            return "null"

    knobs = translated("sliders", script.knobs)
    figures = dict.fromkeys(script.figures, "null")
    for name, part in script.figures.items():
        if set(part.names) & set(script.places):
            missing[name] = "made beforehand, as the lecture says"
        else:
            figures[name] = translated(name, part.draw)
    exercises = translated("exercises", script.exercises)
    known_data = {
        **data(translator.used),
        "templates": {t: templates[f"workbench_{t}"].to_plotly_json() for t in ("light", "dark")},
    }
    parts = ", ".join(f"{json.dumps(name)}: {made}" for name, made in figures.items())
    code = "\n".join(
        [
            f"const DATA = {json.dumps(known_data, ensure_ascii=False, separators=(',', ':'))};",
            *map(source, LIBRARY),
            *translator.lines,
            f"const LECTURE = {{ knobs: {knobs}, figures: {{ {parts} }}, exercises: {exercises} }};",
        ]
    )
    return Engine(code, missing)

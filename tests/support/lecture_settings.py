"""All lectures, and strategies for the settings of their sliders."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from workbench_lectures import scripts
from workbench_lectures.knobs import Knobs
from workbench_lectures.lecture import Script

from workbench.lab.widgets.forms.fields import Field

SCRIPTS = scripts()
# a draw computes whole figures or forecasts
FEW_EXAMPLES = settings(max_examples=max(4, settings().max_examples // 12))


def values(line: Field) -> st.SearchStrategy[Any]:
    """Return the values of a slider or a menu."""
    if line.kind == "choice":
        return st.sampled_from(line.choices)
    assert line.low is not None
    assert line.high is not None
    if line.kind == "whole":
        return st.integers(int(line.low), int(line.high))
    return st.floats(line.low, line.high).map(lambda x: float(f"{x:.3g}")).filter(lambda x: line.low <= x)


def settings_of(script: Script[Any]) -> st.SearchStrategy[Knobs]:
    """Return settings of sliders anywhere in their ranges."""
    lines = script.knobs.entries()
    return st.fixed_dictionaries({line.name: values(line) for line in lines}).map(
        lambda chosen: script.knobs(**chosen).fit()
    )


def at_end(script: Script[Any], high: bool) -> Knobs:
    """Return the setting with all sliders at their high or low end, and with the last or the first choices."""
    chosen: dict[str, Any] = {}
    for line in script.knobs.entries():
        if line.kind == "choice":
            chosen[line.name] = line.choices[-1 if high else 0]
        else:
            end = line.high if high else line.low
            assert end is not None
            chosen[line.name] = int(end) if line.kind == "whole" else end
    return script.knobs(**chosen).fit()

"""Experiments of papers 2 to 5, as presets on available data. The explorer offers them beside those of paper 1."""

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.core.experiment import Experiment
from workbench.core.presets.codedreduce import Presets


def _cases(common: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], **_: Any) -> tuple[Experiment, ...]:
    return tuple(Experiment(**{**common, **case}) for case in cases)


others = Presets("others.yaml", _cases)
"""Presets of papers 2 to 5 by name.

>>> [e.scheme_args["reduction"] for e in others["table3"]]
[1, 1, 3]
"""

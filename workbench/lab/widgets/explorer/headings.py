"""Headings of the table of runs: readable names with their units."""

from __future__ import annotations

from functools import cache

from workbench.core.base.text import upper
from workbench.lab.figures.labels import METRICS, RESULTS, short, with_unit

_HEADINGS = {
    "run": "Run",
    "when": "Date",
    "rounds": "Rounds planned",
    "rounds_done": "Rounds",
    "time": "Time, s",
    "round_time": "Time per round, s",
    "loss": "Training loss",
    "rounds_to": "Rounds to the target",
    "straggler_fraction": "Share that may be late",
    "load": "Load of a worker, share of the data",
    "batch": "Batch, samples",
}


@cache
def heading(name: str, target: str = "") -> str:
    """Return the heading of a column. `target`: metric and value of the columns time_to and rounds_to.

    >>> heading("time"), heading("problem_args.samples"), heading("link.latency"), heading("time_to", "loss 0.3")
    ('Time, s', 'Samples of the problem', 'Latency of the links, s', 'To loss 0.3, s')
    """
    if target and name in ("time_to", "rounds_to"):
        return f"To {target}, {'s' if name == 'time_to' else 'rounds'}"
    if name in _HEADINGS:
        return _HEADINGS[name]
    if name in RESULTS:
        return upper(RESULTS[name][0])
    if name in METRICS:
        return upper(short(name))
    return upper(with_unit(name, "{}, {}"))

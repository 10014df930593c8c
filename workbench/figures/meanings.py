"""Settings and results in words: what a column of the table of runs is called in a title and beside an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench import problems, schemes
from workbench.base.settings import Settings
from workbench.core import optimisers
from workbench.core.delays import delay_models
from workbench.core.links import Link
from workbench.experiment import Experiment

NAMES = {
    "loss": "training loss",
    "relative_error": "relative change ‖θₜ − θₜ₋₁‖² / ‖θₜ₋₁‖²",
    "model_error": "model error ‖θₜ − θ*‖² / ‖θ*‖²",
    "residual": "decoding error ‖b − 1‖²",
    "auc": "AUC",
    "messages": "gradient messages received in a round",
    "bytes": "gradient bytes received in a round (B)",
    "downloads": "models sent in a round",
    "samples": "samples gone through in a round, by all workers",
    "started": "samples of work begun in a round, cut off or not",
    "stale": "answers that came too late in a round",
}
RESULTS = {  # in a title, and beside an axis
    "time": ("time of the whole run", "time of the whole run (s)"),
    "round_time": ("time per round", "mean time per round (s)"),
    "time_to": ("time to the target", "time to the target (s)"),
    "rounds_to": ("rounds to the target", "rounds to the target"),
    "loss": ("training loss at the end", "training loss after the last round"),
    "messages": ("messages", "gradient messages received in the whole run"),
    "bytes": ("bytes", "gradient bytes received in the whole run (B)"),
    "downloads": ("downloads", "models sent in the whole run"),
    "samples": ("samples", "samples gone through in the whole run, by all workers"),
    "started": ("samples begun", "samples of work begun in the whole run, cut off or not"),
    "stale": ("late answers", "answers that came too late in the whole run"),
    "residual": ("decoding error", "mean decoding error ‖b − 1‖² of a round"),
}
_WHOSE = {
    "delays": "of the delays",
    "link": "of the links",
    "problem_args": "of the problem",
    "optimiser_args": "of the optimiser",
}


def result(name: str) -> tuple[str, str]:
    """A result in a title, and beside an axis.

    >>> result("round_time")
    ('time per round', 'mean time per round (s)')
    """
    return RESULTS.get(name, (short(name), metric_words(name)))


def metric_words(metric: str) -> str:
    """A metric beside an axis."""
    return NAMES.get(metric, metric.replace("_", " "))


def short(metric: str) -> str:
    """Name a metric without its formula."""
    return metric_words(metric).split(" ‖")[0]


def upper(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]


def setting(name: str) -> str:
    """A setting in a title.

    >>> setting("scheme_args.stragglers"), setting("delays.rate"), setting("workers")
    ('stragglers', 'rate of the delays', 'workers')
    """
    group, _, last = name.rpartition(".")
    text = last.replace("_", " ")
    return f"{text} {_WHOSE[group]}" if group in _WHOSE and text != group else text


def axis(name: str, used: Sequence[str] = ()) -> str:
    """A setting beside an axis, from the descriptions of the fields themselves.

    One name may be two things: GC's stragglers are workers of all, CodedReduce's are children of every parent. Then the
    text says what it is for which of the schemes that are `used`.

    >>> axis("link.latency")
    'latency of the links: time that a message spends on the wire before its transfer (s)'
    >>> axis("scheme_args.stragglers", ["CR"])
    'stragglers: children per parent that may be late or dead (s)'
    >>> print(axis("scheme_args.stragglers", ["GC", "CR"]).replace("<br>", chr(10)))
    stragglers, not the same for all:
    GC: workers that may be late or dead (S)
    CR: children per parent that may be late or dead (s)
    """
    group, _, last = name.rpartition(".")
    found: dict[str, list[str]] = {}
    units: set[str] = set()
    for owner, cls in _owners(group, used).items():
        field = cls.model_fields.get(last)
        if field is not None:
            words = str(field.description)
            unit = str((field.json_schema_extra or {}).get("unit", ""))  # type: ignore[union-attr]
            units.add(unit)
            found.setdefault(f"{words} ({unit})" if unit and unit not in words.split() else words, []).append(
                owner
            )
    if len(found) == 1:
        return f"{setting(name)}: {next(iter(found))}"
    if found and group == "scheme_args" and used:
        each = [f"{', '.join(owners)}: {text}" for text, owners in found.items()]
        return "<br>".join([f"{setting(name)}, not the same for all:", *each])
    unit = units.pop() if len(units) == 1 else ""
    return f"{setting(name)} ({unit})" if unit else setting(name)


def _owners(group: str, used: Sequence[str]) -> dict[str, type[Settings]]:
    """Who may have settings of a group: name -> class."""
    if group == "scheme_args":
        return {name: schemes.get(name) for name in (used or schemes.names())}
    owners: dict[str, dict[str, Any]] = {
        "": {"": Experiment},
        "delays": delay_models(),
        "link": {"": Link},
        "problem_args": {name: problems.get(name) for name in problems.names()},
        "optimiser_args": dict(optimisers.Optimiser.catalogue),
    }
    return owners.get(group, {})

"""Labels of settings and results in titles and on axes."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.analysis.planning.profile import unit_of
from workbench.analysis.planning.quantities import number_text
from workbench.core import problems, schemes
from workbench.core.base.settings import Settings
from workbench.core.base.text import read_yaml
from workbench.core.contract import optimisers
from workbench.core.contract.delays import delay_models
from workbench.core.contract.links import Link
from workbench.core.engine.timeline import COUNTS
from workbench.core.experiment import Experiment

_LABELS = read_yaml(Path(__file__).with_name("labels.yaml"), "metrics: {}")
METRICS: dict[str, str] = _LABELS["metrics"]
RESULTS: dict[str, list[str]] = _LABELS["results"]
# columns of rounds that are times or counts, and not metrics
_COSTS = frozenset({*COUNTS, "round", "time", "overrun", "rejected", "abandoned"})
NAMED = frozenset({"optimiser", "problem", "kind", "schedule"})  # settings whose values are names of classes
_WHOSE: dict[str, str] = _LABELS["settings"]


def plotted(columns: Iterable[str]) -> list[str]:
    """Return the columns of rounds that can be on a vertical axis: metrics of the model or of the commit.

    >>> plotted(["round", "time", "loss", "test_accuracy", "bytes"])
    ['loss', 'test_accuracy']
    """
    return [name for name in columns if name not in _COSTS]


def result(name: str) -> tuple[str, str]:
    """Return the label of a result in a title, and on an axis.

    >>> result("round_time")
    ('time per round', 'mean time per round (s)')
    """
    title, beside = RESULTS.get(name, (short(name), metric_words(name)))
    return title, beside


def metric_words(metric: str) -> str:
    """Return the label of a metric on an axis."""
    return METRICS.get(metric, metric.replace("_", " "))


def short(metric: str) -> str:
    """Return the name of a metric without its formula."""
    return metric_words(metric).split(" ‖")[0]


def ratio_text(ratio: float, digits: int = 2) -> str:
    """Return a ratio with its sign, rounded to significant digits, without an exponent.

    >>> ratio_text(218.4), ratio_text(0.123), ratio_text(1.0449, 3), ratio_text(2.34e7)
    ('220×', '0.12×', '1.04×', '23,000,000×')
    """
    return f"{float(f'{ratio:.{digits}g}'):,.15g}×"


def value_text(name: str, value: Any) -> str:
    """Return the value of a setting as text. Names of classes have no underscores.

    >>> value_text("optimiser", "inverse_time"), value_text("delays.shift", 1e5), value_text("note", "my_run")
    ('inverse time', '1e5', 'my_run')
    """
    if isinstance(value, float):
        return number_text(value, 6)
    return str(value).replace("_", " ") if name.rpartition(".")[2] in NAMED else str(value)


def setting(name: str) -> str:
    """Return the label of a setting in a title.

    >>> setting("scheme_args.stragglers"), setting("delays.rate"), setting("workers")
    ('stragglers', 'rate of the delays', 'workers')
    """
    group, _, last = name.rpartition(".")
    text = last.replace("_", " ")
    return f"{text} {_WHOSE[group]}" if group in _WHOSE and text != group else text


def with_unit(name: str, form: str = "{} ({})") -> str:
    """Return the label of a setting with its unit, unless the unit is a word of the label.

    >>> with_unit("link.latency"), with_unit("problem_args.samples"), with_unit("workers")
    ('latency of the links (s)', 'samples of the problem', 'workers')
    """
    return _in_unit(setting(name), unit(name), form)


def _in_unit(text: str, unit: str, form: str = "{} ({})") -> str:
    return form.format(text, unit) if unit and unit not in text.split() else text


def axis(name: str, used: Sequence[str] = ()) -> str:
    """Return the label of a setting on an axis, from the descriptions of the fields.

    One name may have two meanings: the number of stragglers is among all workers in GC, but per parent in CodedReduce.
    The label then lists the meaning for each scheme in `used`.

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
    for owner, cls in _owners(group, used).items():
        if (field := cls.model_fields.get(last)) is not None:
            found_text = _in_unit((field.description or "kind").split(";")[0], unit_of(field))
            found.setdefault(found_text, []).append(owner)
    if len(found) == 1:
        return f"{setting(name)}: {next(iter(found))}"
    if found and group == "scheme_args" and used:
        each = [f"{', '.join(owners)}: {text}" for text, owners in found.items()]
        return "<br>".join([f"{setting(name)}, not the same for all:", *each])
    return with_unit(name)


def _owners(group: str, used: Sequence[str]) -> Mapping[str, type[Settings]]:
    """Return the classes that may have settings of a group: name -> class."""
    if group == "scheme_args":
        return {name: schemes.get(name) for name in (used or schemes.names())}
    owners: dict[str, Mapping[str, Any]] = {
        "": {"": Experiment},
        "delays": delay_models(),
        "link": {"": Link},
        "problem_args": problems.ProblemArgs.catalogue,
        "optimiser_args": optimisers.Optimiser.catalogue,
        "optimiser_args.schedule": optimisers.Schedule.catalogue,
    }
    return owners.get(group, {})


def unit(name: str) -> str:
    """Return the unit of a setting. It is empty if there is none, or if classes of its group have different units.

    >>> unit("link.latency"), unit("delays.rate"), unit("workers")
    ('s', 'samples/s', '')
    """
    group, _, last = name.rpartition(".")
    fields = (cls.model_fields.get(last) for cls in _owners(group, ()).values())
    units = {unit_of(field) for field in fields if field is not None}
    return units.pop() if len(units) == 1 else ""

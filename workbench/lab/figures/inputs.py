"""Inputs of figures: checked, labelled, and with one style each."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from workbench.analysis.planning.quantities import number_text
from workbench.analysis.tables.rows import settings_of
from workbench.core.base.grouping import grouped
from workbench.core.base.settings import SettingError, short
from workbench.core.contract.plan import Plan
from workbench.core.contract.scheme import marked
from workbench.core.experiment import Experiment
from workbench.core.trace.trace import Trace
from workbench.lab.figures.labels import value_text
from workbench.lab.figures.style import Style, styles

_MAX_FACTS = 3  # max number of settings in a legend entry


class Labelled(Protocol):
    """Interface of objects with a label: a trace, or a run under way."""

    @property
    def label(self) -> str:
        """Label given by the user."""

    @property
    def experiment(self) -> Experiment:
        """Settings of the run."""

    @property
    def engine(self) -> str:
        """Engine of the run."""


class Series(NamedTuple):
    """Trace with its name and style in a figure."""

    label: str
    style: Style
    trace: Trace

    @property
    def marked(self) -> str:
        """Label, with a mark if the scheme follows only the abstract of its paper."""
        return marked(self.label, self.trace.experiment.scheme)


def named(traces: Sequence[Trace]) -> list[Series]:
    """Return the traces with distinct labels and a style for each.

    A label is the scheme, and the settings that differ if a scheme occurs several times.
    """
    traces = [traces] if isinstance(traces, Trace) else traces
    check_traces(traces)
    looks = styles(trace.experiment.scheme for trace in traces)
    return [Series(*each) for each in zip(labels(traces), looks, traces, strict=True)]


def check_traces(traces: Sequence[Trace]) -> None:
    """Raise `SettingError` unless these are a nonempty list of traces."""
    if not isinstance(traces, Collection) or getattr(traces, "ndim", 1) == 0:
        why = "is not a list of traces; give what wb.run and wb.compare return"
        raise SettingError(f"traces = {short(traces)}: {why}")
    if not len(traces):
        why = "is empty; give at least one Trace, as wb.run and wb.compare return them"
        raise SettingError(f"traces = []: {why}")
    for i, trace in enumerate(traces):
        if not isinstance(trace, Trace):
            raise SettingError(
                f"traces[{i}] = {type(trace).__name__}: is not a Trace; give what wb.run returns"
            )
        if not len(trace.columns["time"]):
            why = f"the run of {trace.label} finished no round; draw one with rounds"
            raise SettingError(f"traces[{i}]: {why}")


def labels(traces: Sequence[Labelled]) -> list[str]:
    """Return distinct labels: each trace's own label and, where labels are equal, the settings that differ."""
    groups = grouped((trace.label, i) for i, trace in enumerate(traces))
    found = [trace.label for trace in traces]
    for label, members in groups.items():
        if len(members) > 1:
            for i, text in zip(members, _distinguished([traces[i] for i in members]), strict=True):
                found[i] = f"{label} {text}"
    return found


def _distinguished(traces: Sequence[Labelled]) -> list[str]:
    facts = [_facts(trace) for trace in traces]
    keys = {key: None for fact in facts for key in fact}
    differing = [key for key in keys if len({repr(fact.get(key)) for fact in facts}) > 1]
    texts = [", ".join(f"{k}={value_text(k, f[k])}" for k in differing[:_MAX_FACTS] if k in f) for f in facts]
    if len(set(texts)) == len(texts):
        return texts
    return [f"{text} #{i}".strip() for i, text in enumerate(texts, 1)]


def _facts(trace: Labelled) -> dict[str, Any]:
    """Return every setting of a run by its name. The scheme's own settings are first, without `scheme_args.`."""
    found = settings_of(trace.experiment)
    own = {name: found.pop(name) for name in list(found) if name.startswith("scheme_args.")}
    bare = {name.removeprefix("scheme_args."): value for name, value in own.items()}
    return {**bare, "engine": trace.engine, **found}


def shared(traces: Sequence[Trace]) -> str:
    """Return the settings that all runs share, as text: problem, workers, rounds."""
    e = [trace.experiment for trace in traces]
    facts = [
        {x.problem for x in e},
        {plural(x.workers, "worker") for x in e},
        {plural(len(t.columns["time"]), "round") for t in traces},
    ]
    return " · ".join(fact.pop().replace("_", " ") for fact in facts if len(fact) == 1)


def plural(number: int, noun: str) -> str:
    """Return a count with its noun in singular or plural.

    >>> plural(1, "round"), plural(2, "round")
    ('1 round', '2 rounds')
    """
    return f"{number} {noun}{'s' * (number != 1)}"


def signed(number: float, digits: int = 3) -> str:
    """Format a number with a minus sign that has the width of a plus."""
    return number_text(number, digits).replace("-", "−")


def plan_of(source: Plan | Experiment) -> tuple[Plan, str]:
    """Return the plan of an experiment, or the given plan, with a name for it."""
    if isinstance(source, Plan):
        return source, ""
    if isinstance(source, Experiment):
        args = ", ".join(f"{key} {value}" for key, value in source.scheme_args.items())
        return source.plan, f"{source.scheme} ({args})" if args else source.scheme
    why = "cannot be drawn; give a Plan or an Experiment (such as trace.experiment)"
    raise SettingError(f"plan = {type(source).__name__}: {why}")


def runs(numbers: Sequence[int], most: int = 8) -> str:
    """Write whole numbers compactly.

    >>> runs([0, 1, 2, 5, 7, 8])
    '0–2, 5, 7–8'
    """
    pieces: list[list[int]] = []
    for number in numbers:
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    text = [str(a) if a == b else f"{a}–{b}" for a, b in pieces[:most]]
    return ", ".join(text) + (", …" if len(pieces) > most else "") if text else "none"

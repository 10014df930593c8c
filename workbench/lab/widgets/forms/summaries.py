"""Short texts about the values of groups of settings, shown above the figure on narrow pages."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.analysis.planning.quantities import number_text, quantity, quantity_of
from workbench.lab.widgets.forms.fields import Field, read, show
from workbench.lab.widgets.forms.form import ChoiceForm, Form

# max value and number of digits that are written with a unit; longer ones are refused, and shown as typed
MAX_VALUE, MAX_DIGITS = sys.float_info.max, 12


def of_shape(values: Mapping[str, Any]) -> str:
    """Return the size of the cluster, its tree, and the number of tolerated stragglers.

    >>> of_shape({"children": 4, "layers": 3, "stragglers": 1, "workers": 84})
    '84 workers, tree (4,3), 1 of 4 late'
    """
    workers, children, layers, late = (values[n] for n in ("workers", "children", "layers", "stragglers"))
    tree = "star" if layers == 1 else f"tree ({_text(children)},{_text(layers)})"
    return f"{_text(workers)} workers, {tree}, {_text(late)} of {_text(children)} late"


def of_schemes(names: Sequence[str]) -> str:
    """Return the number of schemes, or the name of the only one.

    >>> of_schemes(["CR"]), of_schemes(["GC", "CR"]), of_schemes([])
    ('CR', '2 schemes', 'no scheme')
    """
    return names[0] if len(names) == 1 else f"{len(names)} schemes" if names else "no scheme"


def of_choice(form: ChoiceForm) -> str:
    """Return the chosen class and one of its changed values, preferably a number without a unit.

    >>> from workbench.core.contract.delays import delay_models
    >>> of_choice(ChoiceForm("", "kind", delay_models(), "pareto"))
    'pareto'
    """
    numbers = [e for e in form.entries if e.kind in ("whole", "number")]
    changed = [e for e in numbers if form.values[e.name] not in ("", e.default)]
    first = sorted(changed, key=lambda e: bool(e.unit))[:1]
    return ", ".join([_words(form.chosen), *(f"{e.label} {_shown(e, form)}" for e in first)])


def of_link(form: Form) -> str:
    """Return latency and bandwidth.

    >>> from workbench.core.contract.links import Link
    >>> from workbench.lab.widgets.forms.fields import fields_of
    >>> of_link(Form("", fields_of(Link), {"latency": "1e-3", "bandwidth": "1e6"}))
    '1 ms, 1 MB/s'
    >>> of_link(Form("", fields_of(Link), {"latency": "0", "bandwidth": ""}))
    '0 s, no limit'
    """
    shown = {e.name: _shown(e, form) for e in form.entries}
    bandwidth = shown["bandwidth"] if form.values["bandwidth"] else "no limit"
    return f"{shown['latency']}, {bandwidth}"


def of_problem(form: ChoiceForm) -> str:
    """Return the problem, and the name of the data if there is one."""
    data = form.values.get("data", "")
    return ", ".join(filter(None, [data.rpartition("/")[2], _words(form.chosen)]))


def of_run(form: Form) -> str:
    """Return the number of rounds, in millions if it is large, the size of batches, and whether there are faults."""
    rounds, batch = form.values.get("rounds", ""), form.values.get("batch", "")
    faults = form.values.get("faults", "") not in ("", "[]", "()")
    count = _text(rounds or None)
    if rounds.isdecimal() and len(rounds) <= MAX_DIGITS:
        count = f"{int(rounds):,}" if int(rounds) < 10**6 else quantity(int(rounds), "rounds")
    parts = [f"{count} {'round' if rounds == '1' else 'rounds'}"]
    return ", ".join([*parts, *[f"batch {batch}"] * bool(batch), *["faults"] * faults])


def _shown(field: Field, form: Form) -> str:
    value = read(field, form.values[field.name])
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_VALUE:
        return _text(value)
    if field.unit == "s":
        return quantity_of(value) if value else "0 s"
    if field.unit.startswith("bytes"):
        return quantity(value, "bytes") + field.unit.removeprefix("bytes")
    return f"{number_text(value, 4)} {field.unit}".strip()


def _text(value: Any) -> str:
    return "?" if value is None else str(value)[:12]


def _words(name: str) -> str:
    return name.replace("_", " ")


def own_text(own: Mapping[str, Any]) -> str:
    """Return the values of a scheme that differ from the common ones.

    >>> own_text({"optimiser": "inverse_time", "optimiser_args": {"c1": 0.5}, "rounds": 40})
    'optimiser: inverse time, c1 0.5; rounds: 40'
    """
    parts = []
    for name, value in own.items():
        if not name.endswith("_args") or name.removesuffix("_args") not in own:
            args = own.get(f"{name}_args") or {}
            texts = [str(value).replace("_", " "), *(f"{key} {show(each)}" for key, each in args.items())]
            parts.append(f"{name.replace('_', ' ')}: {', '.join(texts)}")
    return "; ".join(parts)

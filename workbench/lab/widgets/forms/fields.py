"""Conversion of settings' metadata to form fields, and of typed texts to values.

A form is made from the fields of a scheme, delay model, problem or optimiser. This module has no code for any of them.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakKeyDictionary

from pydantic_core import to_jsonable_python

from workbench.analysis.planning.quantities import number_text
from workbench.core.base.plugins import KindFamily
from workbench.core.base.settings import SettingError, Settings
from workbench.core.base.text import YAMLError, dump, parse

Kind = Literal["whole", "number", "text", "choice", "flag", "list"]

# Ranges of sliders for unbounded numbers, by unit. Typed values may be outside.
SPANS = {
    "s": (1e-6, 10.0),
    "s/sample": (1e-7, 1e-1),
    "samples/s": (1e1, 1e7),
    "1/s": (1e-3, 1e3),
    "bytes/s": (1e4, 1e10),
    "floats/s": (1e5, 1e12),
}
# number of decades of a slider on each side of the default, if the unit has no range, or the default is outside of it
_SLIDER_DECADES = 3.0


@dataclass(frozen=True)
class Field:
    """Row of a form. `low` and `high`: ends of the slider (None: no slider). `empty`: whether it may be left empty."""

    name: str
    label: str
    help: str = ""
    unit: str = ""
    kind: Kind = "text"
    default: str = ""
    empty: bool = False
    choices: tuple[str, ...] = ()  # options; for text, suggestions
    labels: tuple[str, ...] = ()  # labels of the options, if they differ from the options
    low: float | None = None
    high: float | None = None
    log: bool = False
    minor: bool = False  # whether the field is shown only on demand


def fields_of(cls: type[Settings]) -> list[Field]:
    """Return the rows of a form for a class of settings, in order.

    Nested settings have their own forms, and are left out.

    >>> from workbench.core.contract.links import Link
    >>> [(f.name, f.kind, f.unit) for f in fields_of(Link)]
    [('latency', 'number', 's'), ('bandwidth', 'number', 'bytes/s'), ('downloads', 'flag', ''), ('groups', 'list', '')]
    """
    if (rows := _ROWS.get(cls)) is None:  # kept, because a slider waits for them
        others = {"const", "$ref", "oneOf", "discriminator"}
        specs = [spec for spec in cls.fields() if not others & set(spec)]
        rows = [_field(spec) for spec in specs if spec.get("type") != "object" or _numbers_by_name(spec)]
        _ROWS[cls] = rows
    return list(rows)


_ROWS = WeakKeyDictionary[type[Settings], list[Field]]()  # class -> its rows


def _numbers_by_name(spec: Mapping[str, Any]) -> bool:
    """Return whether a field is a dict of numbers. Users type it as {name: number}."""
    values = spec.get("additionalProperties")
    return isinstance(values, Mapping) and values.get("type") == "number"


@dataclass(frozen=True)
class Nested:
    """Field with settings that have a kind, such as a schedule: its default, and the chosen class."""

    name: str  # dotted name, such as schedule
    default: KindFamily
    chosen: type[KindFamily]


def nested_of(
    cls: type[Settings], texts: Mapping[str, str], prefix: str = "", default: Settings | None = None
) -> list[Nested]:
    """Return the nested settings of a class that have a kind. `texts`: texts in the form, with the chosen kinds."""
    found = []
    for name, field in cls.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, KindFamily):
            own = getattr(default, name, field.default)
            try:
                chosen = own.catalogue.get_class(texts.get(f"{prefix}{name}.kind", own.kind))
            except SettingError:
                chosen = type(own)
            found.append(Nested(f"{prefix}{name}", own, chosen))
    return found


def lines_of(
    cls: type[Settings], texts: Mapping[str, str], prefix: str = "", default: Settings | None = None
) -> list[Field]:
    """Return the rows of a form. Rows of nested settings follow the row of their kind, and have dotted names.

    >>> from workbench.core.contract.optimisers import Nesterov
    >>> [line.name for line in lines_of(Nesterov, {"schedule.kind": "exponential"})][2:]
    ['schedule.kind', 'schedule.warmup', 'schedule.warmup_start', 'schedule.decay']
    """
    lines, label = fields_of(cls), _words(f"{prefix}{{}}")
    if prefix:
        lines = [replace(line, name=prefix + line.name, label=label.format(line.label)) for line in lines]
    if default is not None:
        lines = [
            replace(line, default=show(getattr(default, line.name.removeprefix(prefix)))) for line in lines
        ]
    for part in nested_of(cls, texts, prefix, default):
        words = {kind: kind for kind in part.default.catalogue}
        about = (part.chosen.__doc__ or part.chosen.__name__).strip().splitlines()[0]
        head = menu(f"{part.name}.kind", _words(part.name), words, about)
        own = part.default if type(part.default) is part.chosen else None
        lines += [
            replace(head, default=part.default.kind),
            *lines_of(part.chosen, texts, f"{part.name}.", own),
        ]
    return lines


def _words(name: str) -> str:
    return name.replace(".", " ").replace("_", " ")


def settings_from(
    cls: type[Settings], texts: Mapping[str, str], prefix: str = "", default: Settings | None = None
) -> dict[str, Any]:
    """Return the settings of a form that differ from the defaults, with the kinds of nested ones.

    >>> from workbench.core.contract.optimisers import Nesterov
    >>> settings_from(Nesterov, {"step": "0.1", "schedule.kind": "cosine", "schedule.warmup": "5"})
    {'step': 0.1, 'schedule': {'kind': 'cosine', 'warmup': 5}}
    """
    own = {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    found = values_of(fields_of(cls), own)
    for part in nested_of(cls, texts, prefix, default):
        inner = f"{part.name}."
        given = part.default if type(part.default) is part.chosen else None
        lines = lines_of(part.chosen, texts, inner, given)
        if given is None or any(texts.get(line.name, line.default) != line.default for line in lines):
            # An omitted field has the default of its class. Values of the nested default are therefore written out.
            whole = {**{line.name: line.default for line in lines}, **texts}
            fields = settings_from(part.chosen, whole, inner, given)
            found[part.name.removeprefix(prefix)] = {"kind": part.chosen.kind, **fields}
    return found


def texts_of(cls: type[Settings], values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the texts of a form for some settings. Nested ones have dotted names.

    >>> from workbench.core.contract.optimisers import Nesterov
    >>> texts_of(Nesterov, {"schedule": {"kind": "exponential", "decay": 0.9}})["schedule.decay"]
    '0.9'
    """
    parts = {part.name.removeprefix(prefix): part for part in nested_of(cls, {}, prefix)}
    texts = {prefix + name: show(value) for name, value in values.items() if name not in parts}
    for name, part in parts.items():
        if isinstance(value := values.get(name), Mapping):
            kind = {f"{part.name}.kind": str(value.get("kind", part.default.kind))}
            (chosen,) = (each.chosen for each in nested_of(cls, kind, prefix) if each.name == part.name)
            inner = f"{part.name}."
            known = {line.name: line.default for line in lines_of(chosen, {}, inner)}
            texts |= known | {f"{inner}kind": chosen.kind} | texts_of(chosen, value, inner)
    return texts


def _field(spec: Mapping[str, Any]) -> Field:
    options = [o for o in spec.get("anyOf", [spec]) if o.get("type") != "null"]
    kind = _kind(options)
    name, matrix = str(spec["name"]), options[0].get("items", {}).get("type") == "array"
    return Field(
        name=name,
        label=name.replace("_", " "),
        help=str(spec.get("description", "")),
        unit=str(spec.get("unit", "")),
        kind=kind,
        default=show(spec.get("default")),
        empty=len(options) < len(spec.get("anyOf", options)),
        choices=tuple(str(choice) for choice in options[0].get("enum", ())),
        minor="seed" in name or matrix,
        **(_span(spec, options[0]) if kind in ("whole", "number") else {}),
    )


def _kind(options: Sequence[Mapping[str, Any]]) -> Kind:
    if len(options) > 1 or options[0].get("type") in ("array", "object"):
        return "list"
    if "enum" in options[0]:
        return "choice"
    kinds: dict[str, Kind] = {"integer": "whole", "number": "number", "boolean": "flag"}
    return kinds.get(options[0].get("type", ""), "text")


def _span(spec: Mapping[str, Any], option: Mapping[str, Any]) -> dict[str, Any]:
    """Return ends and scale of a slider, or an empty dict if a slider is not useful: seeds, sizes of data sets."""
    least = option.get("minimum", option.get("exclusiveMinimum"))
    most = option.get("maximum", option.get("exclusiveMaximum"))
    default = spec.get("default")
    if least is None or least == most or "seed" in str(spec["name"]):
        return {}
    if most is not None:
        return {"low": least, "high": most}
    if option["type"] == "integer":
        if not isinstance(default, int) or spec.get("unit") == "samples":
            return {}
        return {"low": least, "high": max(12.0, 4.0 * default)}
    # the slider spans the unit's range, or several decades around the default; its left end is 0 if that is valid
    low, high = SPANS.get(spec.get("unit", ""), (0.0, 0.0))
    if default and not low <= default <= high:
        low, high = default * 10**-_SLIDER_DECADES, default * 10**_SLIDER_DECADES
    low = 0.0 if "minimum" in option and least == 0 else max(low, least)
    return {"low": low, "high": high, "log": True} if high else {}


def show(value: Any) -> str:
    """Return the text of a field for a value. `read` is the inverse.

    >>> show(5e-05), show(1e6), show(250.0), show(True), show((6, 8, 10)), show(None)
    ('5e-5', '1e6', '250', 'yes', '[6, 8, 10]', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, dict)):
        return dump(to_jsonable_python(value), default_flow_style=True, width=10**6).strip()
    return number_text(value) if isinstance(value, float) else str(value)


def read(field: Field, text: str) -> Any:
    """Return the value of a typed text. Invalid text is returned as text, so that the setting raises the error.

    >>> read(Field("rounds", "rounds", kind="whole"), "100"), read(Field("step", "step", kind="number"), "1e-3")
    (100, 0.001)
    """
    text = text.strip()
    if not text:
        return None
    if field.kind == "flag":
        return {"yes": True, "no": False}.get(text, text)
    if field.kind in ("whole", "number"):
        return number(text)
    return _listed(text) if field.kind == "list" else text


def number(text: str) -> int | float | str:
    """Return a whole number, or else a float, or else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _listed(text: str) -> Any:
    """Return a list from YAML. Brackets may be omitted."""
    bare = "," in text and text[0] not in "[{"
    try:
        return deepcopy(_parsed(f"[{text}]" if bare else text))
    except YAMLError:
        return text


_parsed = lru_cache(maxsize=64)(parse)  # texts of forms are read at each move of a slider


def text_error(field: Field, text: str) -> str:
    """Return the error of an empty text in a field that needs a value, else "". Values are checked elsewhere."""
    if text.strip() or field.empty or field.kind == "text":
        return ""
    example = f", e.g. {field.default}" if field.default else ""
    return f"{field.name}: is empty; write a value{example}"


def menu(name: str, label: str, labels: Mapping[str, str], help: str = "") -> Field:
    """Return the menu of a field: value -> label."""
    return Field(name, label, help, kind="choice", choices=tuple(labels), labels=tuple(labels.values()))


def values_of(fields: Sequence[Field], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a form by name, without defaults.

    >>> from workbench.core.contract.links import Link
    >>> values_of(fields_of(Link), {"latency": "1e-3", "bandwidth": "", "downloads": "no"})
    {'latency': 0.001}
    """
    typed = [(field, texts.get(field.name, field.default).strip()) for field in fields]
    return {field.name: read(field, text) for field, text in typed if not _same(field, text)}


def _same(field: Field, text: str) -> bool:
    """Return whether a text is the default. Numbers are compared by value, in any notation."""
    if text == field.default or field.kind not in ("whole", "number") or not (text and field.default):
        return text == field.default
    return bool(read(field, text) == read(field, field.default))

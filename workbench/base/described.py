"""What `help` and Jupyter's `?` show of settings: every field with meaning, unit, range and default.

All of it is read off the fields; pydantic's own methods stay where they are, and are not listed.
"""

import re
from inspect import Parameter, Signature, cleandoc, formatannotation
from typing import Any

from pydantic import BaseModel
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import FieldInfo

from workbench.base.kinds import limit_of

_MACHINERY = frozenset(dir(BaseModel)) - frozenset(dir(object))
_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class Described(ModelMetaclass):
    """Metaclass that writes a class's docstring and signature from its fields."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace, **options)
        fields: dict[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
        named = {field.alias or name: field for name, field in fields.items()}
        if named:
            entries = "\n".join(_entry(name, field) for name, field in named.items())
            words = cleandoc(namespace.get("__doc__") or "")
            cls.__doc__ = f"{words}\n\nParameters\n----------\n{entries}".lstrip()
            cls.__signature__ = Signature([_parameter(name, field) for name, field in named.items()])

    def __dir__(cls) -> list[str]:
        usual, own = dir(object), [name for name in super().__dir__() if name not in _MACHINERY]
        return [name for name in own if name in usual or not name.startswith("__")]


def _entry(name: str, field: FieldInfo) -> str:
    """As numpydoc wants it: name, kind, range and default; below, what it is, and its unit."""
    bounds = {sign: limit_of(field, rule) for rule, sign in _LIMITS.items()}
    limits = [f" {sign} {limit:g}" for sign, limit in bounds.items() if limit is not None]
    default = "" if field.is_required() else f", default {_default(field)!r}"
    extra = field.json_schema_extra
    unit = extra.get("unit") if isinstance(extra, dict) else ""
    text = (field.description or "") + (f" [{unit}]" if unit else "")
    kind = re.sub(r"\b(\w+\.)+(?=\w)", "", formatannotation(field.annotation))
    return f"{name} : {kind}{' and'.join(limits)}{default}" + (f"\n    {text}" if text else "")


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def _parameter(name: str, field: FieldInfo) -> Parameter:
    default = Parameter.empty if field.is_required() else _default(field)
    plain = "." not in formatannotation(field.annotation)  # else it would take a line of the screen, or three
    annotation = field.annotation if plain else Parameter.empty
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

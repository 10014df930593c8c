"""Arguments of the wrong type to public functions cause an error of one sentence."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature, unwrap
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from workbench.core.base.settings import SettingError, short
from workbench.core.base.type_checks import find_mismatch

P = ParamSpec("P")
R = TypeVar("R")
_TYPE_TEXTS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", NoneType: "None"}


def kinds_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: turn an error caused by an argument of the wrong type into a `SettingError` that names it.

    The types are compared only after an error, so that the function may accept more types than its annotations name. A
    `SettingError` of the function is not changed.

    >>> @kinds_checked
    ... def half(number: float) -> float:
    ...     return number / 2
    >>> half("x")
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: number = 'x': is of the wrong kind; give a number
    """

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except SettingError:
            raise
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError):
            if misfit := _misfit(function, args, named):
                raise SettingError(misfit) from None
            raise

    return call


def _misfit(function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return the message for the first argument of the wrong type, or "" if all fit or their number is wrong."""
    parameters = signature(function)
    try:
        given = parameters.bind(*args, **named).arguments
    except TypeError:
        return ""
    kinds = _kinds(unwrap(function))
    for name, value in given.items():
        several = parameters.parameters[name].kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if not several and not fits(kinds.get(name, Any), value):
            return f"{name} = {short(value)}: is of the wrong kind; give {_text(kinds[name])}"
    return ""


def _kinds(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's arguments.

    The return type is left out, because it may exist for type checkers only.
    """
    named = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=named), globalns=function.__globals__)


def fits(kind: Any, value: Any) -> bool:
    """Return whether a value is of an annotated type, as far as that can be decided.

    >>> fits(list[int], [1, 2]), fits(list[int], [1, "2"]), fits(dict[str, Any], {"a": 1})
    (True, False, True)
    """
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:  # `isinstance` does not support Any
        return True
    if origin is Annotated:
        return fits(inner[0], value)
    if origin in (Union, UnionType):
        return any(fits(member, value) for member in inner)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in inner)
    if kind in (int, float, bool, NoneType):
        return find_mismatch(kind, value) is None
    one = origin or kind
    if not isinstance(one, type) or getattr(one, "_is_protocol", False):
        return True
    if not isinstance(value, one) or (one is Sequence and isinstance(value, str | bytes)):
        return False
    items: Any = () if one not in (Mapping, dict, Sequence, list) else value
    items = items.values() if isinstance(items, Mapping) else items
    return not inner or all(fits(inner[-1], item) for item in items)


def _text(kind: Any) -> str:
    """Return a text for the values that an annotation allows.

    >>> _text(Sequence[int] | None)
    'a list of a whole number, or None'
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _text(inner[0])
    if origin in (Union, UnionType):
        return ", or ".join(map(_text, inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin in (Sequence, list, Mapping, dict):
        what = "a list of" if origin in (Sequence, list) else "names, each with"
        return f"{what} {_text(inner[-1])}"
    name = getattr(kind, "__name__", str(kind))
    return _TYPE_TEXTS.get(kind) or f"a{'n' * (name[0] in 'AEIO')} {name}"

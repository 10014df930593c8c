"""Validated settings: the base class of everything that a user configures.

Widgets, the help of the command line and error messages are made from the same field metadata.
"""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from difflib import get_close_matches
from inspect import Parameter, Signature, cleandoc, formatannotation
from pathlib import Path
from typing import Any, Never, Self
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo, model_validator
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.fields import Field, FieldInfo

from workbench.core.base.errors import reason
from workbench.core.base.type_checks import find_mismatch, limit_of, range_of

MAX_NAME_BYTES = 255  # bytes in the name of a file or folder
# bytes in a path: the system allows 4095, and file names in a run folder are added to the path
MAX_PATH_BYTES = 3800
_BRANCHES = ("int", "float", "str", "bool", "tuple[int, ...]")  # pydantic's names for the members of a union
_RANGES = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
# pydantic's types of errors for which the message shows the range of the field
_NUMBERS = (*_RANGES, "finite_number", "float_type")
_PLAIN_MESSAGES = {  # type of pydantic's error -> message for users
    "tuple_type": "is not a list; write one in brackets",
    "list_type": "is not a list; write one in brackets",
    "dict_type": "must be fields and values, such as {name: value}",
    "model_attributes_type": "must be fields and values, such as {kind: constant}",
    "string_type": "must be text; put it in quotes",
}
_PYDANTIC_NAMES = frozenset(dir(BaseModel)) - frozenset(dir(object))
_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class SettingError(ValueError):
    """A setting cannot be used. The `text` is one sentence: the field, its value, and values that would work.

    >>> import workbench as wb
    >>> try:
    ...     wb.Experiment(workers=0)
    ... except SettingError as error:
    ...     print(error)
    workers = 0: take 1 or more
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(re.sub(r"(\d{57})\d{4,}", r"\1...", text))  # as `short` does


def setting(default: Any = ..., description: str = "", unit: str = "", **constraints: Any) -> Any:
    """Declare a field with its description, unit and range, from which forms, help and errors are made."""
    return Field(default, description=description, json_schema_extra={"unit": unit}, **constraints)


def at_most(most: int) -> AfterValidator:
    """Return a validator that refuses numbers above `most`, which would need too much memory or time later.

    The constraint `le` is not used, because sliders of the forms would end there.
    """

    def check(value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value > most:
            raise ValueError(f"{info.field_name} = {short(value)}: is too large; take {most} or less")
        return value

    return AfterValidator(check)


class Described(ModelMetaclass):
    """Metaclass that makes docstring and signature of a class from its fields, for `help` and Jupyter's ``?``.

    Methods of pydantic are left out of `dir`.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace, **options)
        fields: dict[str, FieldInfo] = getattr(cls, "__pydantic_fields__", {})
        named = {field.alias or name: field for name, field in fields.items()}
        if named:
            entries = "\n".join(_entry(name, field) for name, field in named.items())
            text = cleandoc(namespace.get("__doc__") or f"{name}.")  # python -OO removes docstrings
            cls.__doc__ = f"{text}\n\nParameters\n----------\n{entries}".lstrip()
            cls.__signature__ = Signature([_parameter(name, field) for name, field in named.items()])

    def __dir__(cls) -> list[str]:
        usual, own = dir(object), [name for name in super().__dir__() if name not in _PYDANTIC_NAMES]
        return [name for name in own if name in usual or not name.startswith("__")]


def _entry(name: str, field: FieldInfo) -> str:
    """Return the entry of a field in numpydoc format: name, type, range and default, then description and unit."""
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
    # annotations with dots are too long for a signature
    plain = "." not in formatannotation(field.annotation)
    annotation = field.annotation if plain else Parameter.empty
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class Settings(BaseModel, metaclass=Described):
    """Base of frozen, validated settings. Unknown keys and wrong values raise a `SettingError` of one sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _as_it_is(cls, data: Any) -> Any:
        """Refuse values of other types, which pydantic would convert.

        For example, "2", True and 2.0 are errors for a whole number.
        """
        for name, value in data.items() if isinstance(data, dict) else ():
            field = cls.model_fields.get(name)
            wrong = find_mismatch(field.annotation, value) if field else None
            if field and wrong:
                hint = f"; {range_of(field, value)}" if ";" not in wrong.text else ""
                raise ValueError(f"{name}{wrong.where} = {short(wrong.value)}: {wrong.text}{hint}")
        return data

    def __new__(cls, *given: Never, **data: Any) -> Self:
        """Refuse positional arguments. This is not done in `__init__`, from which the visible signature is taken."""
        _refuse_unnamed(cls.__name__, given)
        return super().__new__(cls)

    def __init__(self, **data: Any) -> None:
        with _one_sentence(type(self)):
            super().__init__(**data)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            why = f"settings cannot be changed; replace({name}=...) gives a changed copy"
            raise SettingError(f"{name} = {short(value)}: {why}")
        super().__setattr__(name, value)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Build settings from a dict. An instance is returned unchanged. Raises `SettingError`."""
        with _one_sentence(cls):
            return super().model_validate(obj, **options)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """Build settings from JSON text. Raises `SettingError`."""
        with _one_sentence(cls):
            return super().model_validate_json(json_data, **options)

    def replace(self, *given: Never, **changes: Any) -> Self:
        """Return a copy with some fields changed, after validation."""
        _refuse_unnamed("replace", given)
        return type(self)(**{**{name: getattr(self, name) for name in self.model_fields_set}, **changes})

    @classmethod
    def fields(cls) -> list[dict[str, Any]]:
        """Describe every field as a plain dict: name, type, default, unit, range, choices, description."""
        # cached, because pydantic needs milliseconds for them, and a slider waits
        properties = _PROPERTIES.get(cls)
        if properties is None:
            properties = _PROPERTIES[cls] = cls.model_json_schema()["properties"]
        return [{"name": name, **deepcopy(spec)} for name, spec in properties.items()]


_PROPERTIES = WeakKeyDictionary[type[Settings], dict[str, dict[str, Any]]]()  # class -> its fields


def _refuse_unnamed(what: str, given: tuple[object, ...]) -> None:
    if given:
        raise SettingError(f"{what}({short(given[0])}): has no field's name; write {what}(name=value)")


@contextmanager
def _one_sentence(cls: type[BaseModel]) -> Iterator[None]:
    """Turn a ValidationError of pydantic, which has several lines, into a `SettingError` of one sentence."""
    try:
        yield
    except ValidationError as error:
        raise SettingError(sentence(error, cls)) from None
    except RecursionError:
        why = "its lists and fields are nested too deeply; use fewer levels"
        raise SettingError(f"{cls.__name__}: {why}") from None


@contextmanager
def within(field: str) -> Iterator[None]:
    """Prefix fields in errors with the name of the outer field, so that errors contain the full dotted path."""
    try:
        yield
    except SettingError as error:
        text = str(error)
        raise SettingError(text if text.startswith(field) else f"{field}.{text}") from None


def path_of(value: object, field: str) -> Path:
    """Return the path that a user gave. Raises `SettingError` if it cannot be a name of a file or folder."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        why = "is not a path; give the name of a file or folder, in quotes"
        raise SettingError(f"{field} = {short(value)}: {why}")
    try:
        str(value).encode()
    except UnicodeEncodeError:  # the path has undecodable bytes, or half of a surrogate pair
        why = "is not text in UTF-8; rename the file or folder"
        raise SettingError(f"{field} = {short(str(value))}: {why}") from None
    path = Path(value)
    longest = max(map(len, map(os.fsencode, path.parts)), default=0)
    if longest > MAX_NAME_BYTES:
        why = f"has a name of {longest} bytes; take at most {MAX_NAME_BYTES}"
        raise SettingError(f"{field} = {short(str(value))}: {why}")
    try:
        whole = len(os.fsencode(path.absolute()))
    except FileNotFoundError:  # the working directory was removed
        whole = len(os.fsencode(path))
    if whole > MAX_PATH_BYTES:
        why = f"is a path of {whole} bytes; take at most {MAX_PATH_BYTES}"
        raise SettingError(f"{field} = {short(str(value))}: {why}")
    return path


def user_path(value: object, field: str) -> Path:
    """Return the path that a user gave, with ~ expanded. Raises `SettingError` if that home does not exist."""
    try:
        return path_of(value, field).expanduser()
    except RuntimeError:
        why = "there is no such user's home; write the whole path"
        raise SettingError(f"{field} = {short(str(value))}: {why}") from None


def check_kind(field: str, value: object, kind: type) -> None:
    """Raise `SettingError` for an argument that is not a bool, int or float, with the message that fields have.

    >>> check_kind("events", True, bool)
    >>> check_kind("events", "no", bool)
    Traceback (most recent call last):
    ...
    workbench.core.base.settings.SettingError: events = 'no': is neither true nor false; write one of the two
    """
    if wrong := find_mismatch(kind, value):
        raise SettingError(f"{field} = {short(value)}: {wrong.text}")


@contextmanager
def errors_of(path: str | Path) -> Iterator[None]:
    """Put the path of a file before errors of its fields."""
    try:
        yield
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def check_ending(path: Path, endings: tuple[str, ...], field: str) -> None:
    """Raise `SettingError` if a file does not have one of the `endings`."""
    if path.suffix not in endings:
        raise SettingError(f"{field} = {str(path)!r}: end it in {' or '.join(endings)}")


def check_writable(path: Path, field: str, folder: Path | None = None) -> None:
    """Make the folder of a file (default: its parent) and try to write there, before any computation for the file.

    Raises `SettingError`.
    """
    path_of(path, field)
    if folder is None and path.is_dir():
        raise SettingError(f"{field} = {str(path)!r}: is a folder; give a file's name")
    where = folder or path.parent
    try:
        where.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=where):
            pass
    except OSError as error:
        why = f"cannot be written ({reason(error, where)}); choose another place"
        raise SettingError(f"{field} = {str(path)!r}: {why}") from None


def sentence(error: ValidationError, cls: type[BaseModel]) -> str:
    """Turn the first error of a ValidationError into one sentence."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in _BRANCHES)
    if first["type"] == "json_invalid":
        return f"{where or cls.__name__} = {short(first['input'])}: {_lower(first['msg'])}; give fields and values"
    if first["type"] == "model_type":
        return f"{where or cls.__name__} = {short(first['input'])}: must be fields and values, such as {{name: value}}"
    if first["type"] == "extra_forbidden":
        return _unknown_key(where, list(cls.model_fields), cls.__name__)
    field = cls.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    if first["type"] == "missing" and isinstance(first["loc"][-1], int):  # an item of a tuple is missing
        which = f"{where.rpartition('.')[0]} = {short(list(first['input']))}"
        return f"{which}: has too few values; give {field.description if field else 'more'}"
    if first["type"] == "too_long":
        most = first["ctx"]["max_length"]
        return f"{where} = {short(list(first['input']))}: has more than {most} values; give {most} or fewer"
    if first["type"] == "missing":
        return f"{where}: is missing; {(field.description if field else None) or 'give it a value'}"
    if first["type"] == "value_error":
        return _joined(where, str(first["ctx"]["error"]))
    texts = [_PLAIN_MESSAGES.get(first["type"], _lower(first["msg"]))]
    if field and first["type"] in _NUMBERS:
        texts = [*(texts if first["type"] not in _RANGES else []), range_of(field, first["input"])]
    return f"{where} = {short(first['input'])}: {'; '.join(texts)}"


def _joined(where: str, message: str) -> str:
    """Prefix a message with the outer field, and a dot if the message begins with an inner field."""
    if where and message.startswith(f"{where}."):
        return message
    if not where or message.startswith(f"{where.rsplit('.', 1)[-1]} = "):
        return where.rpartition(".")[0] + "." * ("." in where) + message
    return f"{where}.{message}" if re.match(r"[\w.\[\]]+( = |: )", message) else f"{where}: {message}"


def _unknown_key(key: str, known: list[str], owner: str) -> str:
    last = key.rsplit(".", 1)[-1]
    close = _close(last, known)
    guess = f" did you mean {close[0]!r}?" if close else ""
    return f"{key}: {owner} has no such field;{guess} its fields are {', '.join(known) or 'none'}"


def unknown_name(field: str, value: object, known: Mapping[str, object] | list[str]) -> SettingError:
    """Return the error for an unknown name, with the most similar known name."""
    close = _close(value if isinstance(value, str) else short(value), known)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return SettingError(f"{field} = {short(value)}: no such name; {guess}choose one of {', '.join(known)}")


def _close(word: str, known: Iterable[str]) -> list[str]:
    """Return a list with the known name that is most similar to a word, ignoring case, or an empty list."""
    names = {name.casefold(): name for name in known}
    return [names[found] for found in get_close_matches(word.casefold(), names, n=1)]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def short(value: object, width: int = 60) -> str:
    """Return a value as text for an error message, on one line. Long text is cut.

    >>> short([1, 2]), short(10**5000)
    ('[1, 2]', 'a number of thousands of digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return "lists in lists"
    text = " ".join(text.split()) if "\n" in text else text  # arrays and tables take several lines
    return text if len(text) <= width else text[: width - 3] + "..."

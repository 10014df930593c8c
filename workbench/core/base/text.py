"""Reading and writing of YAML and JSON. In YAML, 1e-3 is a number, and "no" and "1:30" without quotes are text.

All YAML and JSON that a person may have written is read here: files, form fields and options of the command line. Text
with aliases that would expand to too many values is rejected before it is expanded. NumPy values are converted to
Python's.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from yaml import YAMLError as YAMLError  # other modules import it from here

from workbench.core.base import reading
from workbench.core.base.arguments import fits
from workbench.core.base.settings import SettingError, Settings, path_of, short

MAX_JSON_BYTES = 2**28  # max number of bytes in a JSON file of fields; files of the package are much smaller
YAML_BYTES_PER_BYTE = 100  # bytes of memory that the YAML reader needs for each byte of text
MAX_DEPTH = 50  # max number of levels of nested lists and fields; experiments have fewer than ten
MAX_ALIASED_VALUES = 10_000  # max number of values in all expanded aliases of one text


class Loader(yaml.SafeLoader):
    """YAML loader for plain data, with the numbers and booleans of YAML 1.2 and a limit on expanded aliases."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._repeated = 0
        self._sizes: dict[int, int] = {}  # id of a node -> number of values in it, with aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse nodes that are too deep, too large when expanded, or recursive."""
        first: Any = self.peek_event()  # type: ignore[no-untyped-call]
        alias = first if isinstance(first, yaml.AliasEvent) else None
        if self._depth == MAX_DEPTH:
            raise self._refusal(first, f"is {MAX_DEPTH} levels deep; use fewer levels")
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if alias is None:
            self._sizes[id(node)] = 1 + sum(self._sizes[id(part)] for part in _parts(node))
        elif id(node) not in self._sizes:
            raise self._refusal(alias, f"*{alias.anchor} is within itself; write it out")
        else:
            self._repeated += self._sizes[id(node)]
            if self._repeated > MAX_ALIASED_VALUES:
                why = f"the aliases up to *{alias.anchor} expand to more than {MAX_ALIASED_VALUES} values"
                raise self._refusal(alias, f"{why}; write them out")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that occurs twice."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            name = "" if key.tag.endswith(":merge") else str(self.construct_object(key, deep=True))
            if name and name in seen:
                raise self._refusal(node, f"{name!r} occurs twice in the fields")
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Refuse text that does not match its tag, and numbers with thousands of digits."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError):
            kind = node.tag.rpartition(":")[2]
            raise self._refusal(node, f"{str(node.value)!r:.40} cannot be read as {kind}") from None

    @staticmethod
    def _refusal(where: Any, text: str) -> YAMLError:
        return yaml.constructor.ConstructorError(None, None, text, where.start_mark)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    """Return the direct children of a node."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


# 010 is treated as text, because YAML 1.1 reads it as the octal number 8
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)$")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"
)
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"(~|null|Null|NULL|)$")
_KINDS = {f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str", "seq", "map")}
Loader.yaml_constructors = {  # dates, sets and bytes are left out, because no field has these types
    tag: make for tag, make in Loader.yaml_constructors.items() if tag is None or tag in _KINDS
}
Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("bool", _BOOL, "tTfF"),
    ("null", _NULL, ["~", "n", "N", ""]),
    ("int", _INT, "-+0123456789"),
    ("float", _FLOAT, "-+.0123456789"),
    ("merge", re.compile("<<$"), "<"),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, list(_first))


class Dumper(yaml.SafeDumper):
    """YAML dumper that quotes text which either version of YAML would read as another type."""


Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def dump(value: Any, **options: Any) -> str:
    r"""Return plain data as YAML, for `parse` and other readers.

    >>> dump({"data": "1e3", "step": 1e-3})
    "data: '1e3'\nstep: 0.001\n"
    """
    return str(yaml.dump(value, Dumper=Dumper, **{"sort_keys": False, **options}))


def parse(text: str) -> Any:
    """Parse one YAML or JSON document. Raises `YAMLError` for every kind of mistake in it.

    >>> parse("{rate: 1e-3, name: no, time: 1:30}")
    {'rate': 0.001, 'name': 'no', 'time': '1:30'}
    """
    found = _parsed(text)
    try:
        if "\\" in text:
            reading.check_characters(found)
    except ValueError as error:
        raise YAMLError(str(error)) from None
    return found


def _parsed(text: str) -> Any:
    if text.startswith("{") and text.count("{") + text.count("[") < MAX_DEPTH:
        try:  # the JSON parser is thirty times faster, and gives the same result
            return json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
        except ValueError:
            pass  # the text is not JSON: the YAML loader reads it, or raises the error
    return Loader(text).get_single_data()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError
    return found


def _refused(text: str) -> Any:
    """Refuse NaN and Infinity, which are text in YAML."""
    raise ValueError(text)


def in_seconds(time: float, digits: int = 4) -> str:
    """Return a time with its unit, for messages.

    >>> in_seconds(1.23456), in_seconds(float("inf")), in_seconds(float("nan"))
    ('1.235 s', 'more seconds than a number can hold', 'an unknown time')
    """
    if math.isnan(time):
        return "an unknown time"
    return f"{time:.{digits}g} s" if math.isfinite(time) else "more seconds than a number can hold"


def duration(time: float) -> str:
    """Return a duration in hours, minutes and seconds, for messages.

    >>> duration(12.3), duration(200), duration(9000)
    ('12 s', '3 min 20 s', '2 h 30 min')
    """
    minutes, seconds = divmod(round(time), 60)
    hours, left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {left} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def read_text(path: Path) -> str:
    """Return the text of a file. Raises `SettingError` with its path."""
    try:
        return reading.read_text(path)
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: is not text in UTF-8 ({error.reason} at byte {error.start})") from None


def read_yaml(path: str | Path, example: str) -> dict[str, Any]:
    """Read a YAML or JSON file of fields. Raises `SettingError` with its path. `example`: a field, for the message."""
    file = path_of(path, "path")
    if file.is_dir() or not file.exists():
        wanted = f"give a .yaml or .json file with fields such as {example!r}"
        raise SettingError(f"{path}: no such file; {wanted}")
    text = read_text(file)
    reading.check_size(file, YAML_BYTES_PER_BYTE * len(text))
    try:
        content = parse(text)
    except YAMLError as error:
        raise SettingError(f"{path}: not valid YAML or JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise SettingError(f"{path}: must hold fields such as {example!r}, not {kind}")
    return {str(key): value for key, value in content.items()}


def read_json(path: str | Path, *needed: str, **kinds: Any) -> dict[str, Any]:
    """Read a JSON file of fields. Raises `SettingError` for other content, and OSError if there is no file.

    `needed`: names of required fields. `kinds`: required fields with their types.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.json"
    >>> _ = path.write_text('{"name": "first"}')
    >>> read_json(path, "name")
    {'name': 'first'}
    """
    content = reading.read_bytes(path, MAX_JSON_BYTES)
    try:
        found = reading.parse_json(content, path)
        missing = [name for name in (*needed, *kinds) if name not in found]
        why = f"{missing[0]!r} is missing" if missing else "" if isinstance(found, dict) else "no fields"
        odd = [] if why else [name for name, kind in kinds.items() if not fits(kind, found[name])]
        why = f"{odd[0]} = {short(found[odd[0]])} is of the wrong kind" if odd else why
    except SettingError:
        raise
    except (ValueError, TypeError) as error:
        why = " ".join(str(error).split())
    if why:
        raise SettingError(f"{path}: is damaged ({why})")
    return found


def plain(value: Any) -> Any:
    """Convert NumPy values, tuples and paths to Python's numbers, lists and text, at any depth.

    >>> import numpy as np
    >>> plain({"rate": np.float64(2.0), "seeds": np.arange(2)})
    {'rate': 2.0, 'seeds': [0, 1]}
    """
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Settings):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def upper(text: str) -> str:
    """Capitalise the first letter.

    >>> upper("rank 3 waits for MPI")
    'Rank 3 waits for MPI'
    """
    return text[:1].upper() + text[1:]

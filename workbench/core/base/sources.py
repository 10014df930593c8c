"""Source text of user-defined classes and functions, with all user-defined code that they use, and its hash.

The text of a class is the whole cell or file that defines it. Two things are appended: definitions of other cells and
files that it uses, and used values that the text does not contain. Such values are numbers, text, arrays, and lists,
tuples, sets and dicts of these. Values of other types, and values that the program changes itself, are not compared; a
note is appended for them. Data from other sources, such as files that the program reads, are not compared either.
"""

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from symtable import SymbolTable, symtable
from textwrap import dedent
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from workbench.core.base.grouping import grouped
from workbench.core.base.settings import SettingError, Settings
from workbench.core.base.user_code import functions_of, is_own

USED_DEFINITIONS_HEADING = (
    "\n\n# ---- used of other cells and files, and values that are not told above ----\n"
)
SOURCE_ATTRIBUTE = "_workbench_source"  # attribute with the source of a class that was received by value
VALUE_NOTE_PREFIX = "held: "  # prefix of a note on a value; notes are statements that consist of a string
MAX_SHOWN_CHARACTERS = 2_000  # max number of characters of a value; longer values are replaced by a hash
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (tuple, list, set, frozenset, dict)
MAX_NESTING = 8  # levels of nested containers that are compared
# methods that change a list, a set or a dict in place
_LISTS = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
_CHANGES = {*_LISTS, "add", "discard", "popitem", "setdefault", "update"}


@dataclass(frozen=True)
class Source:
    """Source of a class or function.

    `text`: text of its cell or file. `digest`: hash of the definition and of the definitions that it uses, without
    comments.
    """

    name: str
    text: str
    digest: str


def source_of(cls: Any) -> Source:
    """Return the source of a class or function. Raises `SettingError` if its text is not available."""
    # the class was received by value, without its file
    if isinstance(kept := vars(cls).get(SOURCE_ATTRIBUTE), Source):
        return kept
    home = _home(cls)
    if home is None:
        raise SettingError(f"{cls.__name__}: its source is not to be had; define it in a cell or a file")
    text = home.text.rstrip("\n") + "\n"
    more = list(dict.fromkeys(_beyond(cls, home)))
    text = home.text if not more else text + USED_DEFINITIONS_HEADING + "\n".join(more) + "\n"
    return Source(cls.__name__, text, digest_in(text, cls.__name__))


def digest_of(obj: Any) -> str:
    """Return the hash of a user-defined class or function with all that it uses, or empty if its source is unknown."""
    try:
        return source_of(obj).digest if is_own(obj) else ""
    except SettingError:
        return ""


def digest_in(text: str, name: str) -> str:
    """Return the hash of a class or function in a source text, with all that it uses there, or empty if not found."""
    tree = _tree(text)
    found = [n for n in ast.walk(tree) if isinstance(n, _DEFINITIONS) and n.name == name]
    if not found:
        return ""
    bound = grouped((name, statement) for statement in tree.body for name in _binds(statement))
    reached: list[ast.stmt] = [found[-1], *(n for n in tree.body if _is_note(n))]
    for node in reached:  # the list grows in the loop
        for other in (s for known in _names(node) for s in bound.get(known, ())):
            reached += [] if other in reached else [other]
    return sha256("\n".join(sorted(map(_text_of, reached))).encode()).hexdigest()


def _text_of(statement: ast.stmt) -> str:
    """Return a statement as text.

    Names of workbench modules become "workbench", because the modules of 1.0 have moved.
    """
    if isinstance(statement, ast.ImportFrom) and str(statement.module).partition(".")[0] == "workbench":
        statement = ast.ImportFrom("workbench", statement.names, 0)
    return ast.unparse(statement)


# parsing is not thread-safe in Python 3.11, so the text is parsed before a run's thread starts
@lru_cache(maxsize=64)
def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SystemError:  # Python 3.11, while another thread parses
        return ast.parse(text)


def _names(node: ast.AST) -> set[str]:
    """Return all names and attributes that a piece of code may look up."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return found | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def _binds(statement: ast.stmt) -> set[str]:
    """Return the names to which a statement of a module assigns."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {each.asname or each.name.partition(".")[0] for each in statement.names}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


# ---------------------------------------------------------------- where things are defined


@dataclass(frozen=True)
class _Place:
    """Place of a definition: text of its cell or file, node in the syntax tree, and names that it can look up."""

    file: str
    text: str
    node: ast.stmt
    names: Mapping[str, Any]

    @property
    def segment(self) -> str:
        """Text of the definition, without the rest of its cell or file and without indentation."""
        lines = self.text.splitlines()[_first(self.node) - 1 : self.node.end_lineno]
        return dedent("\n".join(lines))


def _home(obj: Any) -> _Place | None:
    if not isinstance(obj, type):
        return _place(obj.__code__, obj.__name__, _seen_by(obj))
    # methods that pydantic adds are skipped
    functions = [function for function in functions_of(obj) if is_own(function)]
    names = dict(vars(sys.modules.get(obj.__module__)) if obj.__module__ in sys.modules else {})
    for function in functions:
        names |= _seen_by(function)
    for function in functions:
        if place := _place(function.__code__, obj.__name__, names):
            return place
    # cells of the notebook, newest first
    texts = [("", text) for text in reversed(names.get("In", ())) if isinstance(text, str)]
    if file := names.get("__file__"):
        texts.append((file, "".join(linecache.getlines(file))))
    return next((place for file, text in texts if (place := _found(file, text, obj.__name__, names))), None)


def _seen_by(function: Any) -> dict[str, Any]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {**function.__globals__, **{name: cell.cell_contents for name, cell in cells if _is_full(cell)}}


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # the variable has no value yet, such as the name of the class itself
        return False


def _place(code: CodeType, name: str, names: Mapping[str, Any]) -> _Place | None:
    text = "".join(linecache.getlines(code.co_filename))
    return _found(code.co_filename, text, name, names, code.co_firstlineno)


def _found(
    file: str, text: str, name: str, names: Mapping[str, Any], line: int | None = None
) -> _Place | None:
    """Return the last definition of a name, or the definition on a line.

    For a lambda, return the statement that contains it.
    """
    try:
        tree = _tree(text)
    except SyntaxError:  # magic commands of a notebook
        return None
    found = [n for n in ast.walk(tree) if isinstance(n, _DEFINITIONS) and n.name == name and _spans(n, line)]
    nodes: list[ast.stmt] = [*found, *(n for n in tree.body if line is not None and _spans(n, line))]
    node = nodes[-1] if line is None and nodes else nodes[0] if nodes else None
    return None if node is None else _Place(file, text, node, names)


def _spans(node: ast.stmt, line: int | None) -> bool:
    return line is None or _first(node) <= line <= (node.end_lineno or line)


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


# ---------------------------------------------------------------- what a definition uses beyond its text


def _beyond(obj: Any, home: _Place) -> Iterator[str]:
    """Yield the text of definitions of other cells or files that a definition uses, and of used values."""
    given = _given(home.text)
    queue, seen, values = [home], {id(obj)}, set[str]()
    queue += [place for base in getattr(obj, "__mro__", ())[1:] if is_own(base) and (place := _home(base))]
    for place in queue:
        if place.file != home.file:
            yield place.segment
        for name, value in _used(place):
            code = value if isinstance(value, type) or inspect.isfunction(value) else type(value)
            if is_own(code) and id(code) not in seen:
                seen.add(id(code))
                queue += [inner] if (inner := _home(code)) else []
            if name in values:
                continue
            if isinstance(value, _CONTAINERS) and name in _changed(place.text):
                values.add(name)
                yield from _note(name, "changed as it runs, and not compared")
            elif not (name in given and _alike(given[name], value)):
                values.add(name)
                yield from _value_text(name, value)


def _used(place: _Place) -> Iterator[tuple[str, Any]]:
    """Yield the names that a definition looks up, with their values. For user modules, yield the used attributes."""
    looked_up = _free(symtable(place.segment, place.file, "exec")) - _imported(place.text)
    for name in sorted(looked_up & place.names.keys()):
        value = place.names[name]
        if not isinstance(value, ModuleType):
            yield name, _bare(value)
        elif is_own(value):
            for n in ast.walk(place.node):
                if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == name:
                    yield n.attr, _bare(getattr(value, n.attr, None))


def _free(table: SymbolTable) -> set[str]:
    """Return the global names that a piece of code uses, without those that it assigns to."""
    symbols = table.get_symbols()
    found = {symbol.get_name() for symbol in symbols if symbol.is_global() and symbol.is_referenced()}
    found = found.union(*map(_free, table.get_children()))
    return found - {symbol.get_name() for symbol in symbols if symbol.is_declared_global()}


def _changed(text: str) -> set[str]:
    """Return the names whose values the functions in a text change in place."""
    inside = (n for f in ast.walk(_tree(text)) if isinstance(f, _DEFINITIONS) for n in ast.walk(f))
    found = [n for n in inside if isinstance(n, ast.Subscript | ast.Attribute)]
    changes = (n for n in found if not isinstance(n.ctx, ast.Load) or getattr(n, "attr", "") in _CHANGES)
    return {n.value.id for n in changes if isinstance(n.value, ast.Name)}


def _imported(text: str) -> set[str]:
    """Return the names that a text imports from installed packages."""
    found = (n for n in _tree(text).body if isinstance(n, ast.ImportFrom) and n.module)
    return {name for n in found if not is_own(sys.modules.get(str(n.module), ast)) for name in _binds(n)}


def _bare(value: Any) -> Any:
    """Return a function without its wrappers, and other values unchanged."""
    inner = getattr(value, "func", value)  # `func` is the function of a functools.partial
    return inspect.unwrap(inner) if callable(inner) and not isinstance(inner, type) else inner


def _given(text: str) -> dict[str, Any]:
    """Return the literal values that a text assigns to names of its module."""
    found: dict[str, Any] = {}
    for statement in _tree(text).body:
        values: Any = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        for name in _binds(statement):
            try:
                found[name] = ast.literal_eval(values)
            except (ValueError, TypeError, SyntaxError, AttributeError):
                found.pop(name, None)
    return found


def _alike(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _value_text(name: str, value: Any) -> list[str]:
    """Return lines for a value: an assignment if the value is short and plain, else a note with its hash."""
    text = _nested_text(value)
    if text is None:
        note = f"a {type(value).__name__} whose values are not compared"
        return _note(name, note) if isinstance(value, _CONTAINERS) else []
    try:
        if len(text) <= MAX_SHOWN_CHARACTERS and _alike(ast.literal_eval(text), value):
            return [f"{name} = {text}"]
    except (ValueError, SyntaxError):
        pass
    short = len(text) <= MAX_SHOWN_CHARACTERS
    return _note(name, text if short else f"{type(value).__name__} {sha256(text.encode()).hexdigest()}")


def _nested_text(value: Any, deep: int = 0) -> str | None:
    """Return text that identifies a value, or None for a type that cannot be compared.

    Numbers, texts and settings give their repr, arrays a hash, and containers the texts of their items.
    """
    if isinstance(value, np.ndarray | np.generic):
        digest = sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return None if value.dtype == object else f"array {value.shape} of {value.dtype}, {digest}"
    if isinstance(value, _PLAIN_TYPES):
        return repr(value)
    if not isinstance(value, _CONTAINERS) or deep == MAX_NESTING:
        return repr(value) if isinstance(value, Settings) else None
    items = value.items() if isinstance(value, dict) else [(None, x) for x in value]
    pairs = [(_nested_text(key, deep + 1), _nested_text(x, deep + 1)) for key, x in items]
    if any(None in pair for pair in pairs):
        return None
    texts = [f"{key}: {x}" if isinstance(value, dict) else str(x) for key, x in pairs]
    if isinstance(value, dict):
        return f"{{{', '.join(texts)}}}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({{{', '.join(sorted(texts))}}})"
    if isinstance(value, list):
        return f"[{', '.join(texts)}]"
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _note(name: str, text: str) -> list[str]:
    return [repr(f"{VALUE_NOTE_PREFIX}{name} is {text}")]


def _is_note(node: ast.stmt) -> bool:
    """Return whether a statement is a note on a value."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and str(value.value).startswith(VALUE_NOTE_PREFIX)

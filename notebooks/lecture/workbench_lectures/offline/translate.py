"""Translation of lectures from Python to JavaScript: functions of figures and exercises, and all that they call.

The Python code is the only source of a figure. `Translator.of` starts at a name of a module and follows every name
that it meets. Functions and classes are translated, and constants are written as literals. Names in `natives` have
hand-written JavaScript (`js/python.js`, `js/theory.js`, `js/rounds.js`). Python's operators become calls, because
arrays and lists have them too. Code without an equivalent raises `Untranslatable`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import math
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitOr: "bitor", ast.BitAnd: "bitand",
    ast.USub: "neg", ast.UAdd: "pos", ast.Not: "not", ast.Invert: "invert",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
    ast.In: "isin", ast.NotIn: "notin", ast.Is: "is", ast.IsNot: "isnot",
}  # fmt: skip
MODULES = {"builtins": "py", "numpy": "np", "math": "math", "plotly.graph_objects": "go"}
OURS = ("workbench", "workbench_lectures")
RESERVED = {
    "case",
    "catch",
    "class",
    "const",
    "default",
    "delete",
    "do",
    "enum",
    "export",
    "extends",
    "false",
    "function",
}
RESERVED |= {"let", "new", "null", "super", "switch", "this", "throw", "true", "typeof", "var", "void"}


class Untranslatable(Exception):
    """Code without a JavaScript equivalent, with its place."""


@cache
def _tree(module: ModuleType) -> dict[str, ast.AST]:
    """Return the top-level definitions of a module, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
    return found


def literal(value: Any) -> str:
    """Return a constant as JavaScript. Raises `TypeError` for other values.

    >>> literal({"a": (1, 2.5)}), literal(float("nan"))
    ('({"a": [1, 2.5]})', 'NaN')
    """
    if isinstance(value, np.ndarray):
        return f"np.array([{literal(value.tolist())}])"
    if hasattr(value, "_asdict") or hasattr(value, "__dataclass_fields__"):
        value = value._asdict() if hasattr(value, "_asdict") else vars(value)
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{json.dumps(str(name))}: {literal(inner)}" for name, inner in value.items())
        return f"({{{pairs}}})"
    if isinstance(value, list | tuple | range):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(float(value))]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value, ensure_ascii=False)
    raise TypeError


class Translator:
    """JavaScript of the requested names, each definition once and after those that it needs.

    `natives`: qualified names with hand-written JavaScript. `known`: functions of numpy, math and the like that this
    JavaScript has. `lines` are the definitions.
    """

    def __init__(self, natives: Iterable[str], known: Iterable[str]) -> None:
        self.natives, self.known = frozenset(natives), frozenset(known)
        self.used: set[str] = set()  # hand-written functions that were needed
        self.lines: list[str] = []
        self._ids: dict[tuple[str, str], str] = {}

    def of(self, module: ModuleType, name: str) -> str:
        """Return the JavaScript expression for a name of a module."""
        if name not in vars(module):
            if hasattr(builtins, name):
                return self._outside(f"builtins.{name}")
            raise Untranslatable(f"{module.__name__}: {name} is not known")
        value = vars(module)[name]
        plain = inspect.unwrap(value) if callable(value) else value
        origin = getattr(plain, "__module__", None) if callable(plain) else module.__name__
        called = getattr(plain, "__qualname__", name) if callable(plain) else name
        qualified = f"{origin}.{called}"
        if qualified in self.natives:
            self.used.add(qualified)
            return f"N[{json.dumps(qualified)}]"
        if callable(plain) and str(origin).split(".")[0] not in OURS:
            return self._outside(qualified)
        home = sys.modules[str(origin)]
        if (str(origin), called) in self._ids:
            return self._ids[str(origin), called]
        if callable(plain) and called in _tree(home):
            return self._define(home, called, _tree(home)[called])
        try:
            return literal(value)
        except TypeError:
            if name in _tree(module):
                return self._define(module, name, _tree(module)[name])
        raise Untranslatable(f"{module.__name__}: {name} can neither be translated nor written down")

    def _outside(self, qualified: str) -> str:
        """Return a function of numpy, math, plotly or Python itself."""
        if qualified not in self.known:
            raise Untranslatable(f"{qualified} has no counterpart in JavaScript")
        module, _, name = qualified.rpartition(".")
        return f"{MODULES[module]}.{name}"

    def _define(self, module: ModuleType, name: str, node: ast.AST) -> str:
        made = f"{_safe(name)}${len(self._ids)}"
        self._ids[module.__name__, name] = made
        scope = _Scope(self, module)
        if isinstance(node, ast.ClassDef):
            self.lines += scope.class_(made, node)
        elif isinstance(node, ast.FunctionDef):
            kept = any(
                "lru_cache" in ast.unparse(each) or ast.unparse(each) == "cache"
                for each in node.decorator_list
            )
            function = scope.function(node)
            self.lines.append(f"const {made} = {f'py.memo({function})' if kept else function};")
        elif isinstance(node, ast.expr):
            self.lines.append(f"const {made} = {scope.expr(node)};")
        return made


def _safe(name: str) -> str:
    return f"{name}_" if name in RESERVED else name


class _Scope:
    """Names of a module, and of the functions around a piece of code."""

    def __init__(
        self, translator: Translator, module: ModuleType, local: frozenset[str] = frozenset()
    ) -> None:
        self.translator, self.module, self.local = translator, module, local

    def within(self, names: Iterable[str]) -> _Scope:
        return _Scope(self.translator, self.module, self.local | frozenset(names))

    def refuse(self, node: ast.AST) -> Untranslatable:
        line = getattr(node, "lineno", 0)
        return Untranslatable(
            f"{self.module.__name__}, line {line}: {type(node).__name__} has no counterpart"
        )

    # ------------------------------------------------------------ definitions

    def function(self, node: ast.FunctionDef | ast.Lambda, me: bool = False) -> str:
        """Return a JavaScript function that accepts keyword arguments.

        `me`: a method, whose first argument is `this`.
        """
        given = [*node.args.posonlyargs, *node.args.args]
        names = [each.arg for each in (given[1:] if me else given)]
        keys = [each.arg for each in node.args.kwonlyargs]
        rest = [each.arg if each else "" for each in (node.args.vararg, node.args.kwarg)]
        inside = self.within([each.arg for each in given] + keys + [name for name in rest if name])
        defaults = dict(zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True))
        defaults |= {name: each for name, each in zip(keys, node.args.kw_defaults, strict=True) if each}
        shown = ", ".join(f"{_safe(name)}: {self.expr(each)}" for name, each in defaults.items())
        parameters = ", ".join(_safe(name) for name in [*names, *keys, *filter(None, rest)])
        if isinstance(node, ast.Lambda):
            body = f"{{ return {inside.expr(node.body)}; }}"
        else:
            own = sorted(_assigned(node.body))
            inside = inside.within(own)
            fresh = [_safe(name) for name in own if name not in {*names, *keys, *rest}]
            first = [f"let {', '.join(fresh)};"] if fresh else []
            first += [f"const {_safe(given[0].arg)} = this;"] if me else []
            body = "{ " + " ".join([*first, *(inside.statement(each) for each in node.body)]) + " }"
        whole = f"function ({parameters}) {body}" if me else f"({parameters}) => {body}"
        signature = f"{json.dumps([_safe(name) for name in names])}, () => ({{{shown}}})"
        return f"py.def({whole}, {signature}, {json.dumps(keys)}, {json.dumps(rest)})"

    def class_(self, made: str, node: ast.ClassDef) -> list[str]:
        """Return a class of knobs: its properties and methods. The page implements fields and their checks."""
        if [ast.unparse(base) for base in node.bases] != ["Knobs"]:
            raise self.refuse(node)
        fields = vars(self.module)[node.name].model_fields
        defaults = literal({name: found.default for name, found in fields.items()})
        lines = [f"class {made} extends Knobs {{ static defaults = {defaults}; }}"]
        for each in node.body:
            if not isinstance(each, ast.FunctionDef):
                continue
            kinds = [ast.unparse(found) for found in each.decorator_list]
            qualified = f"{self.module.__name__}.{node.name}.{each.name}"
            try:
                made_of = self.function(each, me=True)
            except Untranslatable as error:
                made_of = f"() => {{ throw new Error({json.dumps(str(error))}); }}"
            if qualified in self.translator.natives:
                self.translator.used.add(qualified)
                made_of = f"N[{json.dumps(qualified)}]"
            lines.append(f"py.{'getter' if kinds else 'member'}({made}, {json.dumps(each.name)}, {made_of});")
        return lines

    # ------------------------------------------------------------ statements

    def statement(self, node: ast.stmt) -> str:
        make = getattr(self, f"s_{type(node).__name__.lower()}", None)
        if make is None:
            raise self.refuse(node)
        return str(make(node))

    def block(self, body: list[ast.stmt]) -> str:
        return "{ " + " ".join(map(self.statement, body)) + " }"

    def s_return(self, node: ast.Return) -> str:
        return f"return {self.expr(node.value) if node.value else 'null'};"

    def s_expr(self, node: ast.Expr) -> str:
        return "" if isinstance(node.value, ast.Constant) else f"{self.expr(node.value)};"

    def s_pass(self, _: ast.Pass) -> str:
        return ""

    def s_continue(self, _: ast.Continue) -> str:
        return "continue;"

    def s_break(self, _: ast.Break) -> str:
        return "break;"

    def s_raise(self, node: ast.Raise) -> str:
        return f"throw new Error({json.dumps(ast.unparse(node))});"

    def s_assert(self, _: ast.Assert) -> str:
        return ""

    def s_functiondef(self, node: ast.FunctionDef) -> str:
        return f"{_safe(node.name)} = {self.function(node)};"

    def s_assign(self, node: ast.Assign) -> str:
        return " ".join(self._put(target, self.expr(node.value)) for target in node.targets)

    def s_annassign(self, node: ast.AnnAssign) -> str:
        return self._put(node.target, self.expr(node.value)) if node.value else ""

    def s_augassign(self, node: ast.AugAssign) -> str:
        return self._put(
            node.target, f"py.{OPERATORS[type(node.op)]}({self.expr(node.target)}, {self.expr(node.value)})"
        )

    def _put(self, target: ast.expr, value: str) -> str:
        if isinstance(target, ast.Subscript):
            return f"py.put({self.expr(target.value)}, {self.key(target.slice)}, {value});"
        return f"{';' if isinstance(target, ast.Tuple) else ''}{self.target(target)} = {self._spread(target, value)};"

    def _spread(self, target: ast.expr, value: str) -> str:
        return f"py.iter({value})" if isinstance(target, ast.Tuple | ast.List) else value

    def target(self, node: ast.expr) -> str:
        """Return the target of an assignment, or a parameter of a comprehension."""
        if isinstance(node, ast.Tuple | ast.List):
            return f"[{', '.join(map(self.target, node.elts))}]"
        if isinstance(node, ast.Starred):
            return f"...{self.target(node.value)}"
        if isinstance(node, ast.Name):
            return _safe(node.id)
        raise self.refuse(node)

    def s_if(self, node: ast.If) -> str:
        other = f" else {self.block(node.orelse)}" if node.orelse else ""
        return f"if (py.bool({self.expr(node.test)})) {self.block(node.body)}{other}"

    def s_for(self, node: ast.For) -> str:
        return f"for ({self.target(node.target)} of py.iter({self.expr(node.iter)})) {self.block(node.body)}"

    def s_while(self, node: ast.While) -> str:
        return f"while (py.bool({self.expr(node.test)})) {self.block(node.body)}"

    def s_with(self, node: ast.With) -> str:
        if "errstate" not in ast.unparse(node.items[0]):
            raise self.refuse(node)
        return self.block(node.body)  # JavaScript has no such warnings

    # ------------------------------------------------------------ expressions

    def expr(self, node: ast.expr) -> str:
        make = getattr(self, f"x_{type(node).__name__.lower()}", None)
        if make is None:
            raise self.refuse(node)
        return str(make(node))

    def x_constant(self, node: ast.Constant) -> str:
        try:
            return literal(node.value)
        except TypeError:
            raise self.refuse(node) from None

    def x_name(self, node: ast.Name) -> str:
        return _safe(node.id) if node.id in self.local else self.translator.of(self.module, node.id)

    def x_attribute(self, node: ast.Attribute) -> str:
        module = self._module(node.value)
        if module is None:
            return f"{self.expr(node.value)}.{node.attr}"
        if module.__name__.split(".")[0] in OURS:
            return self.translator.of(module, node.attr)
        if not callable(found := getattr(module, node.attr)):
            return (
                literal(found)
                if not isinstance(found, ModuleType)
                else self.translator._outside(f"{module.__name__}.{node.attr}")
            )
        return self.translator._outside(f"{module.__name__}.{node.attr}")

    def _module(self, node: ast.expr) -> ModuleType | None:
        if isinstance(node, ast.Name) and node.id not in self.local:
            found = vars(self.module).get(node.id)
            return found if isinstance(found, ModuleType) else None
        return None

    def x_call(self, node: ast.Call) -> str:
        if ast.unparse(node.func) == "cast":
            return self.expr(node.args[1])
        arguments = ", ".join(map(self.expr, node.args))
        if isinstance(node.func, ast.Subscript):  # Script[Knobs](...)
            return self.x_call(ast.Call(node.func.value, node.args, node.keywords))
        text = ""
        if node.keywords:
            pairs = (
                f"{json.dumps(_safe(k.arg))}: {self.expr(k.value)}" if k.arg else f"...{self.expr(k.value)}"
                for k in node.keywords
            )
            text = f", {{{', '.join(pairs)}}}"
        if isinstance(node.func, ast.Attribute) and self._module(node.func.value) is None:
            return (
                f"py.method({self.expr(node.func.value)}, {json.dumps(node.func.attr)}, [{arguments}]{text})"
            )
        return f"py.call({self.expr(node.func)}, [{arguments}]{text})"

    def x_starred(self, node: ast.Starred) -> str:
        return f"...py.iter({self.expr(node.value)})"

    def x_lambda(self, node: ast.Lambda) -> str:
        return self.function(node)

    def x_binop(self, node: ast.BinOp) -> str:
        return f"py.{OPERATORS[type(node.op)]}({self.expr(node.left)}, {self.expr(node.right)})"

    def x_unaryop(self, node: ast.UnaryOp) -> str:
        return f"py.{OPERATORS[type(node.op)]}({self.expr(node.operand)})"

    def x_boolop(self, node: ast.BoolOp) -> str:
        word = "and" if isinstance(node.op, ast.And) else "or"
        return f"py.{word}({', '.join(f'() => {self.arrow(value)}' for value in node.values)})"

    def arrow(self, node: ast.expr) -> str:
        return f"({self.expr(node)})"

    def x_compare(self, node: ast.Compare) -> str:
        sides = [node.left, *node.comparators]
        pairs = [
            f"py.{OPERATORS[type(op)]}({self.expr(a)}, {self.expr(b)})"
            for op, a, b in zip(node.ops, sides[:-1], sides[1:], strict=True)
        ]
        return pairs[0] if len(pairs) == 1 else f"({' && '.join(pairs)})"

    def x_ifexp(self, node: ast.IfExp) -> str:
        return f"(py.bool({self.expr(node.test)}) ? {self.expr(node.body)} : {self.expr(node.orelse)})"

    def x_tuple(self, node: ast.Tuple | ast.List) -> str:
        return f"[{', '.join(map(self.expr, node.elts))}]"

    x_list = x_tuple

    def x_set(self, node: ast.Set) -> str:
        return f"py.set([{', '.join(map(self.expr, node.elts))}])"

    def x_dict(self, node: ast.Dict) -> str:
        pairs = (
            f"[{self.expr(key)}]: {self.expr(value)}" if key else f"...{self.expr(value)}"
            for key, value in zip(node.keys, node.values, strict=True)
        )
        return f"({{{', '.join(pairs)}}})"

    def x_joinedstr(self, node: ast.JoinedStr) -> str:
        return f"[{', '.join(map(self.expr, node.values))}].join('')"

    def x_formattedvalue(self, node: ast.FormattedValue) -> str:
        spec = self.expr(node.format_spec) if node.format_spec else '""'
        return f"py.format({self.expr(node.value)}, {spec})"

    def x_subscript(self, node: ast.Subscript) -> str:
        return f"py.at({self.expr(node.value)}, {self.key(node.slice)})"

    def key(self, node: ast.expr) -> str:
        """Return the subscript: a tuple is one index per axis, and a list is several indices along one axis."""
        return f"py.key({self.expr(node)})" if isinstance(node, ast.Tuple) else self.expr(node)

    def x_slice(self, node: ast.Slice) -> str:
        ends = (self.expr(each) if each else "null" for each in (node.lower, node.upper, node.step))
        return f"py.slice({', '.join(ends)})"

    def x_listcomp(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> str:
        return self._loop(node.generators, lambda scope: scope.expr(node.elt))

    x_generatorexp = x_listcomp

    def x_setcomp(self, node: ast.SetComp) -> str:
        return f"py.set({self.x_listcomp(node)})"

    def x_dictcomp(self, node: ast.DictComp) -> str:
        made = self._loop(node.generators, lambda s: f"[{s.expr(node.key)}, {s.expr(node.value)}]")
        return f"Object.fromEntries({made})"

    def _loop(self, generators: list[ast.comprehension], element: Any) -> str:
        first, *others = generators
        inside = self.within(_names(first.target))
        wanted = "".join(
            f".filter(({self.target(first.target)}) => py.bool({inside.expr(test)}))" for test in first.ifs
        )
        walk = f"py.iter({self.expr(first.iter)}){wanted}"
        if others:
            return f"{walk}.flatMap(({self.target(first.target)}) => {inside._loop(others, element)})"
        return f"{walk}.map(({self.target(first.target)}) => {inside._element(element)})"

    def _element(self, element: Any) -> str:
        made = element(self)
        return f"({made})"


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _assigned(body: list[ast.stmt]) -> set[str]:
    """Return the names that a function's statements assign, without those of inner functions."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
            continue
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For):
            targets = [node.target]
        for target in targets:
            if not isinstance(target, ast.Subscript):
                found |= _names(target)
        for inner in ("body", "orelse"):
            found |= _assigned(getattr(node, inner, []))
    return found

"""What the engines can be asked for: named in the signature and the help of every function that passes it on."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from workbench.base.settings import SettingError, check_kind

F = TypeVar("F", bound=Callable[..., Any])
_ENTRY = re.compile(r"^(\w+)\n((?:    .*\n?)+)", re.MULTILINE)  # of a docstring's list of parameters


def options_of(starter: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Options of what starts an engine's runs: what its docstring lists under Parameters and has a default."""
    known = inspect.signature(starter, eval_str=True).parameters
    listed = {name: known[name] for name, _ in _entries(starter)}
    return {name: p for name, p in listed.items() if p.default is not p.empty}


def _entries(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Names and descriptions of the parameters that a docstring lists."""
    section = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")[2]
    return _ENTRY.findall(re.split(r"\n\n\w[\w ]*\n-+\n", section)[0] + "\n")


def passes_on(**starters: Callable[..., Any]) -> Callable[[F], F]:
    """Show the options of these engines in the signature and in the help of a function that takes them as **options."""

    def shown(function: F) -> F:
        signature = inspect.signature(function, eval_str=True)
        shared = {name: p for name, p in signature.parameters.items() if p.kind is not p.VAR_KEYWORD}
        for starter in starters.values():
            named = options_of(starter).items()
            shared |= {name: p.replace(kind=p.KEYWORD_ONLY) for name, p in named if name not in shared}
        function.__signature__ = signature.replace(parameters=list(shared.values()))  # type: ignore[attr-defined]
        parts = [inspect.getdoc(function) or ""]
        for engine, starter in starters.items():
            known = options_of(starter)
            told = [(name, text.rstrip()) for name, text in _entries(starter) if name in known]
            lines = [f"{name} : default {known[name].default!r}\n{text}" for name, text in told]
            title = f'Options of engine = "{engine}"'
            parts.append("\n".join([title, "-" * len(title), *lines]))
        function.__doc__ = "\n\n".join(parts)
        return function

    return shown


def check_options(engine: str, starter: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that an engine does not know, and flags and numbers that are none; raises `SettingError`."""
    known = options_of(starter)
    for name, value in options.items():
        if name not in known:
            raise SettingError(
                f"{name} = {value!r:.60}: means nothing to engine = {engine!r}; leave it out, or take one of"
                f" {', '.join(known)}"
            )
        if type(default := known[name].default) in (bool, float):
            check_kind(name, value, type(default))

"""Public names by section, for the reference and tests/test_site.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import workbench as wb
from workbench.core.contract.delays import delay_models

# documented on the pages of their contracts
BASES = ("DelayModel", "Optimiser", "Problem", "ProblemArgs", "Scheme")


@dataclass(frozen=True)
class Section:
    """Page of the reference. `names`: public names, as `module:attribute`. `module`: its docstring begins the page."""

    file: str
    title: str
    names: tuple[str, ...]
    module: str = ""

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield dotted name and object of each public name."""
        for name in self.names:
            module, _, attribute = name.partition(":")
            yield f"{module}.{attribute}", getattr(import_module(module), attribute)


def sections() -> list[Section]:
    """Return every page of the reference, in the order of its contents."""
    theory, figures, batch = "workbench.core.theory", "workbench.lab.figures", "workbench.lab.batch"
    return [
        Section("workbench", "wb: experiments and runs", _package(), "workbench"),
        Section("schemes", "wb.schemes", _schemes(), "workbench.core.schemes"),
        Section("theory", "wb.theory", _names(theory, *wb.theory.__all__), theory),
        Section("figures", "wb.figures", _names(figures, *wb.figures.__all__), figures),
        Section("batch", "wb.batch", _names(batch, *wb.batch.__all__), batch),
        Section("live", "wb.live", _names("workbench.core.running.run", "Run"), "workbench.core.running.run"),
        Section("quickstart", "wb.quickstart", _quickstart(), "workbench.lab.batch.quickstart"),
        Section("problems", "wb.problems", _problems(), "workbench.core.problems"),
        Section("scheme", "The contract: schemes", _contract(), "workbench.core.contract.scheme"),
        Section("effects", "The contract: effects", _effects(), "workbench.core.contract.protocol"),
        Section("odds", "The contract: forecasts", _round_times(), "workbench.core.contract.round_times"),
        Section("delays", "The contract: delays", _delays(), "workbench.core.contract.delays"),
        Section(
            "links",
            "The contract: links",
            _names("workbench.core.contract.links", "Link"),
            "workbench.core.contract.links",
        ),
        Section(
            "optimisers", "The contract: optimisers", _optimisers(), "workbench.core.contract.optimisers"
        ),
    ]


def everything() -> Iterator[tuple[str, Any]]:
    """Yield dotted name and object of each public name, except modules, which have their own pages."""
    for section in sections():
        yield from section.objects()


def _names(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{module}:{name}" for name in names)


def _package() -> tuple[str, ...]:
    names = (n for n in wb.__all__ if n not in BASES and not isinstance(getattr(wb, n), ModuleType))
    return _names("workbench", *names)


def _of(*classes: type) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{each.__module__}:{each.__name__}" for each in classes))


def _schemes() -> tuple[str, ...]:
    classes = _of(*(wb.schemes.get(name) for name in wb.schemes.names()))
    return _names("workbench.core.schemes", "names", "get") + classes


def _quickstart() -> tuple[str, ...]:
    return _names("workbench.lab.batch.quickstart", "common_target", "summary", "story", "keep", "main")


def _problems() -> tuple[str, ...]:
    # DataError is on the page of wb
    own = _names("workbench.core.problems", *(name for name in wb.problems.__all__ if name != "DataError"))
    return own + _of(*(wb.problems.get(name) for name in wb.problems.names()))


def _contract() -> tuple[str, ...]:
    plan = ("Plan", "Work", "Blend", "even_sizes", "star_plan", "uncoded_plan")
    return (
        *_names("workbench.core.contract.scheme", "Scheme"),
        *_names("workbench.core.contract.plan", *plan),
    )


def _effects() -> tuple[str, ...]:
    names = ("Message", "Compute", "Send", "Recv", "Close", "Decode", "AllReduce", "Commit")
    return _names("workbench.core.contract.protocol", *names)


def _round_times() -> tuple[str, ...]:
    names = (
        "RoundTimes",
        "SampledTimes",
        "star_round_times",
        "tree_round_times",
        "ring_round_times",
        "deadline_round_times",
    )
    return _names("workbench.core.contract.round_times", *names)


def _delays() -> tuple[str, ...]:
    return _names("workbench.core.contract.delays", "DelayModel") + _of(
        *(
            delay_model
            for delay_model in delay_models().values()
            if delay_model.__module__.startswith("workbench.")
        )
    )


def _optimisers() -> tuple[str, ...]:
    names = ("Optimiser", "GradientDescent", "Nesterov", "InverseTime", "AMSGrad", "optimiser_class")
    return _names("workbench.core.contract.optimisers", *names)

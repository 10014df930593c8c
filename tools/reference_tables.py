"""Write the tables of the pages in docs from the code. Called by `make format`.

python tools/reference_tables.py

A page marks the place of a table by two comments: `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import workbench as wb
from workbench.cli.main import cli
from workbench.cli.show import described
from workbench.core import experiment, forecasting
from workbench.core.base.files import atomic_write
from workbench.core.base.settings import Settings
from workbench.core.contract.delays import DelayModel, delay_models
from workbench.core.contract.faults import Fault, WrongAnswer
from workbench.core.contract.links import Link
from workbench.core.contract.optimisers import Optimiser, Schedule
from workbench.core.contract.problem import Problem
from workbench.core.contract.scheme import Scheme
from workbench.core.problems import OnData, ProblemArgs, on_data
from workbench.lab.batch import Crossing, Optimum, Sample, Span, Sweep, sweeps
from workbench.lab.batch.executors import ExecutorSettings
from workbench.lab.figures import labels
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.launch.head.pools import FolderPool
from workbench.mpi.launch.site import Pool, RunOwner, Site

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# Delay model -> its effect, and which workers differ.
DELAYS = {
    "constant": ("no randomness: each sample takes the same time", "none"),
    "exponential": ("a whole answer takes an exponential time, whatever its load", "by chance, each round"),
    "shifted_exponential": (
        "a least time for each sample, plus an exponential part",
        "by chance, each round",
    ),
    "pareto": ("a heavy tail: rare, very long delays", "by chance, each round"),
    "two_part": ("computing and sending each have a shifted exponential time", "by chance, each round"),
    "heterogeneous": (
        "slow and active workers, which straggle with two probabilities",
        "slow workers, for the whole run",
    ),
    "markov": (
        "bursts: a worker that turns slow stays slow for some rounds",
        "slow workers, for several rounds",
    ),
    "fritchman": (
        "bursts: a worker that turns slow passes several slow states",
        "slow workers, for several rounds",
    ),
    "weibull": ("a Weibull time for each sample", "by chance, each round"),
    "lognormal": ("a lognormal time for each sample", "by chance, each round"),
    "gamma": ("a gamma time for each sample", "by chance, each round"),
    "distribution": ("any continuous distribution of `scipy.stats`, by its name", "by chance, each round"),
    "mixture": ("one of several delay models, drawn with given shares", "by chance, each round"),
    "groups": (
        "hosts or racks with a delay in common, and speeds of workers",
        "the workers of a group, together",
    ),
    "replay": ("times from a recording", "as recorded"),
    "changing": (
        "one delay model up to a round, another one afterwards",
        "one worker or all, from a round on",
    ),
}
# Kind of plug-in -> its base classes; a plug-in may need more than one.
CONTRACTS: dict[str, tuple[type, ...]] = {
    "scheme": (Scheme,),
    "delay-model": (DelayModel,),
    "fault": (Fault, WrongAnswer),
    "problem": (ProblemArgs, Problem),
    "optimiser": (Optimiser,),
    "schedule": (Schedule,),
    "cluster": (Cluster, Site, Pool, RunOwner, FolderPool),
}
# Columns of `trace.rounds` without a label in figures: those of all runs, then those of runs on real processes.
COLUMNS = {
    "round": "number of the round, from 0",
    "time": "time of the commit since the start of the run [s]",
    "accuracy": "share of the training samples that are classified correctly",
    "test_accuracy": "the same, of the samples that were held out (`problem_args.test`)",
}
MPI_COLUMNS = {
    "overrun": "computations that took longer than the drawn time (real runs)",
    "rejected": "messages that were rejected as damaged, not finite or repeated (real runs)",
    "abandoned": "computations that were given up for a newer model (real runs)",
}
# Maximum sizes: the quantity, and the module and the name of the constant with its limit.
LIMITS = (
    ("workers of an experiment", experiment, "MAX_WORKERS"),
    ("rounds of an experiment", experiment, "MAX_ROUNDS"),
    ("rounds that `wb.forecast` samples", forecasting, "MAX_ROUNDS"),
    ("runs of a sweep", sweeps, "MAX_RUNS"),
    ("samples of a problem", on_data, "MAX_SAMPLES"),
    ("features of a problem", on_data, "MAX_FEATURES"),
)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table. Bars inside cells are escaped."""
    lines = [
        [str(cell).replace("|", "\\|").replace("\n", " ").strip() for cell in row] for row in (head, *rows)
    ]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def first_line(thing: Any) -> str:
    """Return the first paragraph of a docstring, as one line."""
    return " ".join(inspect.cleandoc(thing.__doc__ or "").split("\n\n")[0].split())


def fields(cls: type[Settings], leave_out: Iterable[str] = ()) -> str:
    """Return the table of the fields of a settings class: name, meaning with unit, range and default."""
    hidden = {"kind", "name", *leave_out}
    rows = [(f"`{each['name']}`", described(each)) for each in cls.fields() if each["name"] not in hidden]
    return table(("field", "meaning [unit, range] (default)"), rows) if rows else "No parameters.\n"


# ---------------------------------------------------------------- experiments


def schemes() -> str:
    """Return one row per scheme, in the order of `wb.schemes.names()`."""
    return table(
        ("name", "scheme", "source", "follows", "exact", "forecast"), map(_scheme_row, wb.schemes.names())
    )


def _scheme_row(name: str) -> tuple[str, ...]:
    scheme = wb.schemes.get(name)
    forecast = "of a round that asks all workers" if scheme.data_dependent else "yes"
    return name, scheme.title, scheme.paper, scheme.follows, "yes" if scheme.exact else "no", forecast


def scheme_parameters() -> str:
    """Return the parameters of each scheme."""
    return _sections((name, wb.schemes.get(name)) for name in wb.schemes.names())


def delays() -> str:
    """Return one row per delay model: its effect, which workers differ, fields and units."""
    rows = [
        (f"`{kind}`", *DELAYS[kind], ", ".join(map(_with_unit, _own_fields(cls))))
        for kind, cls in delay_models().items()
        if cls.__module__.startswith("workbench.")
    ]
    return table(("kind", "what it models", "who differs", "fields [unit]"), rows)


def _own_fields(cls: type[Settings]) -> Iterator[dict[str, Any]]:
    return (field for field in cls.fields() if field["name"] != "kind")


def _with_unit(field: dict[str, Any]) -> str:
    return f"`{field['name']}`" + (f" [{field['unit']}]" if field.get("unit") else "")


def delay_fields() -> str:
    """Return the fields of each delay model."""
    models = delay_models().items()
    ours = ((kind, cls) for kind, cls in models if cls.__module__.startswith("workbench."))
    return _sections(ours)


def problems() -> str:
    """Return the fields of each problem, without those that all problems on data have."""
    shared = {field["name"] for field in OnData.fields()}
    found = ((name, wb.problems.get(name)) for name in wb.problems.names())
    return _sections(found, leave_out=shared)


def optimisers() -> str:
    """Return the fields of each optimiser."""
    return _sections(Optimiser.catalogue.items())


def schedules() -> str:
    """Return the fields of each schedule."""
    return _sections(Schedule.catalogue.items(), leave_out=Schedule.model_fields)


def _sections(classes: Iterable[tuple[str, type[Settings]]], leave_out: Iterable[str] = ()) -> str:
    parts = []
    for name, cls in classes:
        inherited = [field for field in leave_out if field not in cls.__annotations__]
        parts.append(f"### {name}\n\n{first_line(cls).rstrip('.')}.\n\n{fields(cls, inherited)}")
    return "\n" + "\n".join(parts)


def metrics() -> str:
    """Return the columns of `trace.rounds`."""
    found = COLUMNS | labels.METRICS | MPI_COLUMNS
    return table(("column", "meaning [unit]"), ((f"`{name}`", text) for name, text in found.items()))


def results() -> str:
    """Return the results in the table of runs."""
    rows = ((f"`{name}`", beside) for name, (_, beside) in labels.RESULTS.items())
    return table(("column", "meaning"), rows)


def figures() -> str:
    """Return the figures, each with the first line of its docstring."""
    rows = ((f"`wb.figures.{name}`", first_line(getattr(wb.figures, name))) for name in wb.figures.names())
    return table(("figure", "what it draws"), rows)


def theory() -> str:
    """Return the functions of `wb.theory` by module, each with its arguments and the first line of its docstring."""
    by_module: dict[str, list[Any]] = {}
    for name in wb.theory.__all__:
        each = getattr(wb.theory, name)
        by_module.setdefault(each.__module__, []).append(each)
    parts = []
    for module, found in sorted(by_module.items()):
        rows = ((f"`{each.__name__}{_signature(each)}`", first_line(each)) for each in found)
        listed = table(("function", "what it returns"), rows)
        parts.append(f"### {module.rpartition('.')[2]}\n\n{first_line(import_module(module))}\n\n{listed}")
    return "\n" + "\n".join(parts)


def clusters() -> str:
    """Return the fields of each kind of cluster file."""
    ours = ((kind, cls) for kind, cls in Cluster.catalogue.items() if cls.__module__.startswith("workbench."))
    return _sections(ours)


def limits() -> str:
    """Return the maximum sizes that are accepted."""
    rows = ((what, f"{getattr(module, name):,}") for what, module, name in LIMITS)
    return table(("what", "at most"), rows)


# ---------------------------------------------------------------- commands


def commands() -> str:
    """Return every command with its arguments, options and defaults."""
    parts = []
    for name, command, parent in _every(cli, "workbench"):
        context = click.Context(command, info_name=name, parent=parent)
        usage = " ".join([name, *command.collect_usage_pieces(context)])
        options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
        rows = [
            record
            for option in options
            if (record := option.get_help_record(context)) and "--help" not in record[0]
        ]
        help_text = " ".join(inspect.cleandoc(command.help or "").split())
        listed = table(("option", "meaning"), ((f"`{left}`", right) for left, right in rows)) if rows else ""
        parts.append(f"### {name}\n\n    {usage}\n\n{help_text}\n" + (f"\n{listed}" if listed else ""))
    return "\n" + "\n".join(parts)


def _every(
    group: click.Group, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(group, info_name=name, parent=parent)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        if isinstance(command, click.Group):
            yield from _every(command, f"{name} {each}", context)
        elif command is not None:
            yield f"{name} {each}", command, context


# ---------------------------------------------------------------- what can be added


def contract(what: str) -> str:
    """Return, for each class of a contract, the mandatory methods and those that may be overridden."""
    return "\n".join(
        f"**`{cls.__name__}`** (`{cls.__module__}`)\n\n{_methods(cls)}" for cls in CONTRACTS[what]
    )


def _methods(cls: type) -> str:
    protocol = getattr(cls, "_is_protocol", False)
    must = set(getattr(cls, "__abstractmethods__", ()))
    rows = []
    for name, member in _members(cls):
        needed = protocol or name in must
        rows.append(
            (not needed, (f"`{name}{_signature(member)}`", "yes" if needed else "no", first_line(member)))
        )
    return table(
        ("method", "mandatory", "what it does"), (row for _, row in sorted(rows, key=lambda each: each[0]))
    )


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented methods and properties that a class defines itself."""
    for name, member in vars(cls).items():
        plain = member.__func__ if isinstance(member, classmethod) else member
        if (
            (inspect.isfunction(plain) or isinstance(plain, property))
            and not name.startswith("_")
            and plain.__doc__
        ):
            yield name, plain


def _signature(member: Any) -> str:
    if isinstance(member, property):
        return ""
    names = [name for name in inspect.signature(member).parameters if name not in ("self", "cls")]
    return f"({', '.join(names)})"


# ---------------------------------------------------------------- pages

TABLES: dict[str, Callable[[], str]] = {
    "schemes": schemes,
    "scheme-parameters": scheme_parameters,
    "delay-models": delays,
    "delay-fields": delay_fields,
    "experiment": lambda: fields(wb.Experiment),
    "link": lambda: fields(Link),
    "faults": lambda: _sections(Fault.catalogue.items()),
    "problem-data": lambda: fields(OnData),
    "problems": problems,
    "optimisers": optimisers,
    "schedule": lambda: fields(Schedule),
    "schedules": schedules,
    "sweep": lambda: fields(Sweep),
    "executor": lambda: fields(ExecutorSettings),
    "sample": lambda: fields(Sample),
    "span": lambda: fields(Span),
    "crossing": lambda: fields(Crossing),
    "optimum": lambda: fields(Optimum),
    "metrics": metrics,
    "results": results,
    "figures": figures,
    "theory": theory,
    "clusters": clusters,
    "limits": limits,
    "commands": commands,
    **{f"contract-{what}": lambda what=what: contract(what) for what in CONTRACTS},  # type: ignore[misc]
}


def pages() -> list[Path]:
    """Return the pages that have a generated table."""
    return [page for page in sorted(DOCS.rglob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


def renewed(text: str) -> str:
    """Return a page with its tables renewed."""
    return BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def main() -> None:
    """Replace the tables that have changed."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if renewed(text) != text:
            with atomic_write(page, "w") as out:
                out.write(renewed(text))


if __name__ == "__main__":
    import_module("workbench.core.schemes")
    main()

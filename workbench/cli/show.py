"""Commands that start no run: lists of schemes, presets and the like, forecasts, and the digits that a code loses."""

import math
from pathlib import Path
from typing import Any

import click
from click import option

from workbench.core import schemes as known
from workbench.core.base.plugins import Catalogue
from workbench.core.base.settings import Settings, check_writable
from workbench.core.base.text import in_seconds
from workbench.core.codes import report, warning
from workbench.core.codes.quality import dtype_of
from workbench.core.contract.delays import delay_models
from workbench.core.contract.faults import Fault
from workbench.core.contract.optimisers import Optimiser, Schedule
from workbench.core.contract.scheme import mark_note, marked
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast as expect
from workbench.core.presets.codedreduce import presets as all_presets

_SETS = click.IntRange(1, 10**6)
TRUST = option("--trust", is_flag=True, help="Run code that SPEC names, such as mine.py:Half.")


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@option("--rounds", type=click.IntRange(1), help="Number of rounds to sample.  [default: the experiment's]")
@TRUST
def forecast(spec: Path, rounds: int | None, trust: bool) -> None:
    """Print the expected round time of a SPEC, without reading its data."""
    experiment = Experiment.read(spec, trust)
    f = expect(experiment, rounds)
    if math.isfinite(f.mean):
        click.echo(f"{f.mean:.6g} s a round (spread {f.std:.3g}, error of the mean {f.error:.2g})")
    else:
        click.echo(f"a round takes {in_seconds(f.mean)}")
    if (delays := experiment.delays).markovian or delays.per_run:
        click.echo(f"with {delays.kind} delays rounds are not independent: other seeds differ by more")
    click.echo(
        f"load {100 * f.load:.3g} % of the data, {f.messages:.6g} messages, {f.bytes:.6g} bytes a round"
    )


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@option("--sets", type=_SETS, default=500, show_default=True, help="Number of survivor sets to draw.")
@TRUST
def code(spec: Path, sets: int, trust: bool) -> None:
    """Print how many digits decoding loses: amplification and measured errors of a SPEC's code."""
    experiment = Experiment.read(spec, trust)
    codes = experiment.built_scheme.codes(experiment.workers)
    if not codes:
        click.echo(f"{experiment.scheme} sends plain sums: nothing is lost")
    for each in codes:
        found = report(each, sets)
        click.echo(f"decode amplification, largest |a|_1 max|B|: {found['amplification']:.3g}")
        double, single = found["error_float64"], found["error_float32"]
        click.echo(f"relative gradient error: {double:.2g} in float64, {single:.2g} in float32")
        dtype = dtype_of(experiment.problem_spec.width)  # type of the numbers in messages
        click.echo(warning(each, sets=sets, dtype=dtype) or "no more than half of the digits are lost")


@click.command()
@click.argument("name", required=False)
@option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the preset's SPEC files.")
def presets(name: str | None, output: Path | None) -> None:
    """List the published experiments, or write the SPEC files of one."""
    if name is None:
        for preset in all_presets.values():
            click.echo(f"{preset.name:8} {preset.title}")
        return

    folder = output or Path(name)
    chosen = all_presets[name]
    check_writable(folder, "output", folder)
    for experiment in chosen:
        click.echo(experiment.write(folder / f"{experiment.scheme}.yaml"))


@click.command()
@click.argument("name", required=False)
def schemes(name: str | None) -> None:
    """List the schemes, or the parameters of one."""
    if name is None:
        for each in known.names():
            cls = known.get(each)
            click.echo(f"{marked(each, each):8} {cls.title} ({cls.paper})")
        click.echo(mark_note(known.names()))
        return
    _print_fields(known.get(name))


@click.command()
@click.argument("kind", required=False)
def delays(kind: str | None) -> None:
    """List the delay models, or the parameters of one."""
    _print_kinds(delay_models(), kind)


@click.command()
@click.argument("kind", required=False)
def faults(kind: str | None) -> None:
    """List the kinds of faults, or the parameters of one."""
    _print_kinds(Fault.catalogue, kind)


@click.command()
@click.argument("name", required=False)
def optimisers(name: str | None) -> None:
    """List the optimisers, or the parameters of one."""
    _print_kinds(Optimiser.catalogue, name)


@click.command()
@click.argument("kind", required=False)
def schedules(kind: str | None) -> None:
    """List the schedules of optimisers' steps, or the parameters of one."""
    _print_kinds(Schedule.catalogue, kind)


def _print_kinds(catalogue: Catalogue[Any], kind: str | None) -> None:
    if kind is None:
        for each, cls in catalogue.items():
            click.echo(f"{each:20} {(cls.__doc__ or '').splitlines()[0]}")
        return
    _print_fields(catalogue.get_class(kind))


def _print_fields(cls: type[Settings]) -> None:
    click.echo((cls.__doc__ or "").splitlines()[0])
    for field in cls.fields():
        click.echo(f"  {field['name']:18} {described(field)}")


def described(field: dict[str, Any]) -> str:
    """Return the help text of a field: description, unit, range, default."""
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    places = [field, *field.get("anyOf", [])]
    limits = [f"{sign} {place[key]}" for place in places for key, sign in bounds.items() if key in place]
    choices = next((" | ".join(map(str, place["enum"])) for place in places if "enum" in place), "")
    notes = [field.get("unit", ""), *limits, choices]
    default = field.get("default")
    if isinstance(default, dict) and "kind" in default:
        default = default["kind"]
    shown = "" if default in (None, "", {}, [], ()) else f" (default {default})"
    return f"{field.get('description', '')}{' [' + ', '.join(n for n in notes if n) + ']' if any(notes) else ''}{shown}"

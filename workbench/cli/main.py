"""The command line. It only fills an Experiment; options and help come from the fields' own metadata."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click
from workbench_book import command as cli_book
from workbench_lectures import command as cli_lectures

from workbench import schemes as known
from workbench.base.errors import RunError
from workbench.base.settings import SettingError, Settings, check_writable, path_of, unknown_name
from workbench.base.text import in_seconds, parse
from workbench.cli import batch as cli_batch
from workbench.cli import cluster as cli_cluster
from workbench.cli import lab as cli_lab
from workbench.cli import plan as cli_plan
from workbench.cli import real as cli_real
from workbench.codes import report, warning
from workbench.core.delays import delay_models
from workbench.experiment import Experiment
from workbench.forecasting import forecast as expect
from workbench.published.codedreduce import presets as published
from workbench.running.start import run as run_experiment


def main() -> None:
    """Entry point: a mistake of the user ends with one sentence, not with a traceback."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned
            cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("workbench: interrupted", err=True)
        sys.exit(130)
    except (SettingError, RunError, ValueError, OSError) as error:
        click.echo(f"workbench: {error}", err=True)
        sys.exit(2)
    except OverflowError as error:
        click.echo(
            f"workbench: a number is too large ({error}); take fewer workers, rounds or samples", err=True
        )
        sys.exit(2)
    except MemoryError as error:
        more = str(error) or "more was needed"
        click.echo(
            f"workbench: not enough memory ({more}); take fewer workers, rounds, samples or runs", err=True
        )
        sys.exit(2)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning is one sentence, too; where in the code it came up helps no user."""
    click.echo(f"workbench: warning: {message}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Experiments with straggler-tolerant gradient aggregation."""


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """One option per simple field of an Experiment, made from its metadata."""
    kinds = {"integer": int, "number": float, "string": str}
    for field in reversed(Experiment.fields()):
        kind = field.get("type") or next(
            (o["type"] for o in field.get("anyOf", []) if o["type"] != "null"), None
        )
        if kind in kinds:
            text = described(field)
            command = click.option(f"--{field['name'].replace('_', '-')}", type=kinds[kind], help=text)(
                command
            )
    return command


def described(field: dict[str, Any]) -> str:
    """Help text of a field: description, unit, range, default."""
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    places = [field, *field.get("anyOf", [])]
    limits = [f"{sign} {place[key]}" for place in places for key, sign in bounds.items() if key in place]
    choices = next((" | ".join(map(str, place["enum"])) for place in places if "enum" in place), "")
    notes = [field.get("unit", ""), *limits, choices]
    default = field.get("default")
    shown = "" if default in (None, "", {}, [], ()) else f" (default {default})"
    return f"{field.get('description', '')}{' [' + ', '.join(n for n in notes if n) + ']' if any(notes) else ''}{shown}"


cli.add_command(cli_batch.sweep)
cli.add_command(cli_batch.runs)
cli.add_command(cli_book.reproduce)
cli.add_command(cli_cluster.cluster)
cli.add_command(cli_lab.lab)
cli.add_command(cli_lectures.lectures)
cli.add_command(cli_plan.profile)
cli.add_command(cli_plan.plan)
for _command in (cli_real.follow, cli_real.resume, cli_real.stop):
    cli.add_command(_command)


@cli.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@click.option(
    "--engine",
    default="sim",
    show_default=True,
    help="sim: the virtual clock; mpi: real processes (see --emulate).",
)
@click.option("--cluster", help="With --engine mpi: where; default: local, this machine.")
@click.option(
    "--emulate", help="With --engine mpi: what is drawn on top of reality: all (default), delays or nothing."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Run folder to write; must not exist.")
@click.option(
    "--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Any field, e.g. scheme_args.stragglers=2."
)
@settings_options
def run(
    spec: Path | None,
    engine: str,
    cluster: str | None,
    emulate: str | None,
    output: Path | None,
    changes: tuple[str, ...],
    **options: Any,
) -> None:
    """Run the experiment of a SPEC file (.yaml, .json), changed by the options; no SPEC: the defaults."""
    if output is not None and path_of(output, "output").exists():
        raise SettingError(f"output = {str(output)!r}: exists already; choose a new name")
    if output is not None:
        check_writable(output, "output")  # now, not after the run
    base = Experiment.read(spec).model_dump(exclude_unset=True) if spec else {}
    for name in ("scheme", "problem", "optimiser"):  # another one has other numbers
        if options.get(name) not in (None, base.get(name)):
            base.pop(f"{name}_args", None)
    base.update({name: value for name, value in options.items() if value is not None})
    experiment = Experiment(**_changed(base, changes))
    real: dict[str, Any] = {
        name: value for name, value in (("cluster", cluster), ("emulate", emulate)) if value is not None
    }
    if engine == "mpi" and output is not None:
        real["folder"] = str(output)  # written while it goes on
    trace = run_experiment(experiment, engine, progress=True, **real)
    cli_real.echo(trace)
    if output is not None:
        click.echo(f"written to {output if engine == 'mpi' else trace.save(output)}")


def _changed(base: dict[str, Any], changes: tuple[str, ...]) -> dict[str, Any]:
    import yaml

    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not all(path.split(".")):
            raise SettingError(f"--set {change:.60}: write FIELD=VALUE, e.g. scheme_args.stragglers=2")
        place: Any = base
        *outer, last = path.split(".")
        for key in outer:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise SettingError(f"--set {change:.60}: {key} has no fields of its own; write {key}=VALUE")
        try:
            place[last] = parse(text)
        except yaml.YAMLError:
            raise SettingError(
                f"--set {change:.60}: {text!r:.60} is not a value in YAML, such as 3, 1e-3 or [1, 2]"
            ) from None
    if isinstance(delays := base.get("delays"), dict):
        # of the default, some numbers were changed
        delays.setdefault("kind", Experiment.model_fields["delays"].default.kind)
    return base


@cli.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--rounds", type=click.IntRange(1), help="How many rounds to sample; default: the experiment's."
)
def forecast(spec: Path, rounds: int | None) -> None:
    """Print the expected round time of a SPEC, without touching its data."""
    experiment = Experiment.read(spec)
    f = expect(experiment, rounds)
    if math.isfinite(f.mean):
        click.echo(f"{f.mean:.6g} s a round (spread {f.std:.3g}, error of the mean {f.error:.2g})")
    else:
        click.echo(f"a round takes {in_seconds(f.mean)}")
    if experiment.delays.memory or experiment.delays.lasting:
        click.echo(
            f"with {experiment.delays.kind} delays rounds are not independent: other seeds differ by more"
        )
    click.echo(
        f"load {100 * f.load:.3g} % of the data, {f.messages:.6g} messages, {f.bytes:.6g} bytes a round"
    )


@cli.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--sets", type=click.IntRange(1, 10**6), default=500, show_default=True, help="Survivor sets to draw."
)
def code(spec: Path, sets: int) -> None:
    """Print how many digits decoding costs: amplification and measured errors of a SPEC's code."""
    experiment = Experiment.read(spec)
    codes = experiment.build_scheme().codes(experiment.workers)
    if not codes:
        click.echo(f"{experiment.scheme} sends plain sums: nothing is lost")
    for each in codes:
        found = report(each, sets)
        click.echo(f"decode amplification, largest |a|_1 max|B|: {found['amplification']:.3g}")
        click.echo(
            f"relative gradient error: {found['error_float64']:.2g} in float64, {found['error_float32']:.2g} in float32"
        )
        click.echo(warning(each, sets=sets) or "no more than half of the digits are lost")


@cli.command()
@click.argument("name", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the preset's SPEC files.")
def presets(name: str | None, output: Path | None) -> None:
    """List the published experiments, or write one's SPEC files."""
    if name is None:
        for preset in published.values():
            click.echo(f"{preset.name:8} {preset.title}")
        return

    folder = output or Path(name)
    chosen = published[name]
    check_writable(folder, "output", folder)
    for experiment in chosen:
        click.echo(experiment.write(folder / f"{experiment.scheme}.yaml"))


@cli.command()
@click.argument("name", required=False)
def schemes(name: str | None) -> None:
    """List the schemes, or the numbers of one."""
    if name is None:
        for each in known.names():
            cls = known.get(each)
            click.echo(f"{each:8} {cls.title} ({cls.paper})")
        return
    _print_fields(known.get(name))


@cli.command()
@click.argument("kind", required=False)
def delays(kind: str | None) -> None:
    """List the delay models, or the numbers of one."""
    known = delay_models()
    if kind is None:
        for each, cls in known.items():
            click.echo(f"{each:20} {(cls.__doc__ or '').splitlines()[0]}")
        return
    if kind not in known:
        raise unknown_name("delays.kind", kind, list(known))
    _print_fields(known[kind])


def _print_fields(cls: type[Settings]) -> None:
    click.echo((cls.__doc__ or "").splitlines()[0])
    for field in cls.fields():
        click.echo(f"  {field['name']:18} {described(field)}")

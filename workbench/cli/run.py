"""Commands for runs: `run` starts one. `resume` continues a real run by its folder. `attach`, `stop`: also for sweeps.

`workbench run` fills an `Experiment`. The options and their help are made from the fields' metadata.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click import option

from workbench.cli.show import described
from workbench.core.base.settings import SettingError, check_writable, path_of
from workbench.core.base.text import YAMLError, in_seconds, parse
from workbench.core.experiment import Experiment, put
from workbench.core.running.run import watched
from workbench.core.running.start import run as run_experiment
from workbench.core.trace.layout import ENDED, PLAN
from workbench.core.trace.trace import Trace
from workbench.mpi.running.real import RealRun
from workbench.mpi.running.real import attach as attach_to
from workbench.mpi.running.real import resume as resume_run

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))
TRUST = option("--trust", is_flag=True, help="Run others' code and cluster that FOLDER names; needed once.")


def settings_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add one option per simple field of an Experiment, made from the field's metadata."""
    kinds = {"integer": int, "number": float, "string": str}
    for field in reversed(Experiment.fields()):
        members = [member["type"] for member in field.get("anyOf", []) if member["type"] != "null"]
        kind = field.get("type") or next(iter(members), None)
        if kind in kinds:
            flag = f"--{field['name'].replace('_', '-')}"
            command = option(flag, type=kinds[kind], help=described(field))(command)
    return command


@click.command()
@click.argument("spec", type=click.Path(path_type=Path), required=False)
@option(
    "--engine",
    default="sim",
    show_default=True,
    help="sim: the virtual clock; mpi: real processes (see --emulate).",
)
@option("--cluster", help="With --engine mpi: cluster of the run.  [default: local, this machine]")
@option(
    "--emulate",
    help="With --engine mpi: what is emulated on top of real times: all (default), delays or nothing.",
)
@option("-o", "--output", type=click.Path(path_type=Path), help="Run folder to write; must not exist.")
@option(
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
    """Run the experiment of a SPEC file (.yaml, .json), changed by the options. Without SPEC, run the defaults."""
    if output is not None and path_of(output, "output").exists():
        raise SettingError(f"output = {str(output)!r}: exists already; choose a new name")
    if output is not None:
        check_writable(output, "output")  # before the run, not after it
    base = Experiment.read(spec, trust=True).model_dump(exclude_unset=True) if spec else {}
    for name in ("scheme", "problem", "optimiser"):  # another class has other parameters
        if options.get(name) not in (None, base.get(name)):
            base.pop(f"{name}_args", None)
    base.update({name: value for name, value in options.items() if value is not None})
    experiment = Experiment(**_changed(base, changes))
    given = {"cluster": cluster, "emulate": emulate}
    real: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if engine == "mpi" and output is not None:
        real["folder"] = str(output)  # written during the run
    trace = run_experiment(experiment, engine, progress=True, **real)
    echo(trace)
    if output is not None:
        click.echo(f"written to {output if engine == 'mpi' else trace.save(output)}")


def _changed(base: dict[str, Any], changes: tuple[str, ...]) -> dict[str, Any]:
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not all(path.split(".")):
            raise SettingError(f"--set {change:.60}: write FIELD=VALUE, e.g. scheme_args.stragglers=2")
        try:
            put(base, path, parse(text))
        except YAMLError:
            why = f"{text!r:.60} is not a value in YAML, such as 3, 1e-3 or [1, 2]"
            raise SettingError(f"--set {change:.60}: {why}") from None
        except SettingError as error:
            raise SettingError(f"--set {error}") from None
    return base


@click.command()
@_FOLDER
@TRUST
@option("--once", is_flag=True, help="For a sweep: print its status once, and end.")
@option(
    "--of",
    help="For a sweep: result whose means are shown.  [default: the result that it optimises, or time]",
)
@option("--target", type=float, help="For a sweep: metric's value to reach, for --of time_to and rounds_to.")
def attach(folder: Path, trust: bool, once: bool, of: str | None, target: float | None) -> None:
    """Show the real run or the sweep in FOLDER until it ends. Ctrl-C ends the display, not the run.

    For a sweep: show missing runs, failures, means, and the setting that explains most of the variance.
    """
    if (folder / PLAN).is_file():
        from workbench.cli.batch import show_sweep

        if trust:
            raise SettingError(
                "--trust: watching a sweep runs nothing; leave it out (workbench sweep takes it)"
            )
        return show_sweep(folder, once, of, target)
    for name, value in (("--once", once or None), ("--of", of), ("--target", target)):
        if value is not None:
            raise SettingError(f"{name}: is for sweeps, and {str(folder)!r} holds none; leave it out")
    _report(attach_to(folder, trust=trust), stop=False)


@click.command()
@_FOLDER
@TRUST
def resume(folder: Path, trust: bool) -> None:
    """Resume a stopped or broken real run from its last checkpoint."""
    _report(resume_run(folder, trust=trust), stop=True)


@click.command()
@_FOLDER
@TRUST
def stop(folder: Path, trust: bool) -> None:
    """Stop the real run in FOLDER after its current round, or the sweep in FOLDER. Results so far are kept."""
    if (folder / PLAN).is_file():
        from workbench.lab.batch.background import attach as sweep_in

        if trust:
            raise SettingError("--trust: stopping a sweep runs nothing; leave it out")
        sweep = sweep_in(folder)
        sweep.stop()
        sweep.wait(30.0)
        click.echo(sweep)
        return
    run = attach_to(folder, trust=trust)
    if (folder / ENDED).exists():
        click.echo("this run has ended already")
    else:
        run.stop()
    _report(run, stop=False)


def _report(run: RealRun, stop: bool) -> None:
    echo(watched(run, progress=True, stop=stop))


def echo(trace: Trace) -> None:
    """Print one line about a trace."""
    e, k = trace.experiment, len(trace.columns["round"])
    if not k:
        click.echo(f"{trace.label}: stopped before the first round was over")
        return
    time, loss = (float(trace.columns[name][-1]) for name in ("time", "loss"))
    kind = "measured" if trace.info.get("measured") else "simulated"
    reached = f"loss {loss:.6g}" if math.isfinite(loss) else "the loss is no longer finite"
    of = "" if e.batch is None else f" of {e.batch} samples"
    click.echo(f"{trace.label}: {k} rounds{of}, {in_seconds(time)} ({kind}, {trace.engine}), {reached}")
    overrun = trace.info.get("overrun_share", 0.0)
    if overrun:
        click.echo(f"{overrun:.1%} of the computations took longer than the time drawn for them")

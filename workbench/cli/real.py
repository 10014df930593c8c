"""Commands for real runs that are under way or broke off: follow, stop, resume."""

import math
from pathlib import Path

import click

from workbench.base.text import in_seconds
from workbench.running.real import RealRun, attach, watched
from workbench.running.real import resume as go_on
from workbench.trace.layout import ENDED, PLAN
from workbench.trace.trace import Trace

_FOLDER = click.argument("folder", type=click.Path(path_type=Path))


@click.command()
@_FOLDER
def follow(folder: Path) -> None:
    """Watch a real run by its FOLDER until it ends; Ctrl-C only stops watching."""
    _report(attach(folder), stop=False)


@click.command()
@_FOLDER
def resume(folder: Path) -> None:
    """Go on with a real run that broke off or was stopped, from its last checkpoint."""
    _report(go_on(folder), stop=True)


@click.command()
@_FOLDER
def stop(folder: Path) -> None:
    """End a real run after the round that it is in, or a sweep, by its FOLDER; what was measured is kept."""
    if (folder / PLAN).is_file():
        from workbench.batch.background import attach as sweep_in

        sweep = sweep_in(folder)
        sweep.stop()
        sweep.wait(30.0)
        click.echo(sweep)
        return
    run = attach(folder)
    if (folder / ENDED).exists():
        click.echo("this run has ended already")
    else:
        run.stop()
    _report(run, stop=False)


def _report(run: RealRun, stop: bool) -> None:
    echo(watched(run, progress=True, stop=stop))


def echo(trace: Trace) -> None:
    """One line about a trace."""
    e, k = trace.experiment, len(trace.columns["round"])
    if not k:
        click.echo(f"{e.scheme}: stopped before the first round was over")
        return
    time, loss = (float(trace.columns[name][-1]) for name in ("time", "loss"))
    kind = "measured" if trace.info.get("measured") else "simulated"
    reached = f"loss {loss:.6g}" if math.isfinite(loss) else "the loss is not finite any more"
    click.echo(f"{e.scheme}: {k} rounds, {in_seconds(time)} ({kind}, {trace.engine}), {reached}")
    overrun = trace.info.get("overrun_share", 0.0)
    if overrun:
        click.echo(f"{overrun:.1%} of the computations took longer than the time drawn for them")

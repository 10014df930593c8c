"""Commands for many runs: `workbench sweep` runs them, and `workbench runs` shows their results."""

from pathlib import Path
from typing import Any

import click
from click import option

from workbench.analysis.tables.exports import export
from workbench.analysis.tables.importance import importance
from workbench.analysis.tables.table import Runs
from workbench.analysis.tables.table import runs as read
from workbench.core.base.settings import SettingError, check_writable
from workbench.core.base.text import YAMLError, parse
from workbench.core.trace.layout import PAGE
from workbench.lab import batch
from workbench.lab.batch.folders import opened, read_folder

_PATH = click.Path(path_type=Path)
_TIME = click.FloatRange(0, min_open=True)
_TIME.name = "number of seconds above 0"  # in errors


@click.command()
@click.argument("plan", metavar="SWEEP", type=_PATH)
@option(
    "-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Number of runs at a time."
)
@option("-o", "--output", type=_PATH, help="Folder of the sweep.  [default: runs/ and its name]")
@option("--only", multiple=True, metavar="RUN", help="Run only this one (repeatable).")
@option("--engine", help="Engine to use in place of the sweep's.")
@option(
    "--cluster", help="Cluster for real runs. Simulated runs: cluster on which --jobs engines execute them."
)
@option(
    "--walltime",
    type=_TIME,
    metavar="SECONDS",
    help="Begin no run that is expected to end later than SECONDS from now.",
)
@option("--timeout", type=_TIME, metavar="SECONDS", help="Longest time for one cell of a notebook.")
@option("--dry-run", is_flag=True, help="Check and list the runs, but start none.")
@option("--quiet", is_flag=True, help="No progress bar.")
@option("--pictures", is_flag=True, help="Put PNGs into the notebooks at the end; needs Chromium.")
@option("--background", is_flag=True, help="Run in a background process, which `workbench attach` shows.")
@option("--trust", is_flag=True, help="Run code of others that a sweep's folder names; needed once.")
def sweep(
    plan: Path,
    jobs: int,
    output: Path | None,
    only: tuple[str, ...],
    engine: str | None,
    cluster: str | None,
    walltime: float | None,
    timeout: float | None,
    dry_run: bool,
    quiet: bool,
    pictures: bool,
    background: bool,
    trust: bool,
) -> None:
    """Run all experiments of a SWEEP file, or resume the sweep in a folder. Finished runs are skipped.

    Exit status: 0 all done, 1 a run failed, 2 nothing was started, 130 interrupted.
    """
    run_sweep = batch.sweep  # if a library is missing, this raises before the plan is read
    changes = {} if engine is None else {"engine": engine}
    with opened(plan, output, trust, **changes) as (chosen, folder):
        if cluster is not None:
            chosen = chosen.on(cluster)
        if dry_run:
            for item in chosen.items():
                click.echo(item.name)
            return
        options: dict[str, Any] = {"timeout": timeout, "walltime": walltime, "pictures": pictures}
        if background:
            if only:
                raise SettingError(
                    "--only: names single runs, which --background cannot; drop one of the two"
                )
            batch.start(chosen, folder, jobs=jobs, **options)
            click.echo(
                f"{folder}: started; workbench attach {folder} shows it, workbench stop {folder} ends it"
            )
            return
        summary = run_sweep(chosen, folder, jobs=jobs, only=only, progress=not quiet, **options)
    click.echo(summary)
    if summary.failed:
        raise SystemExit(1)


@click.command()
@click.argument("run", metavar="FOLDER/RUN", type=_PATH)
@option("--trust", is_flag=True, help="Run code of others that a sweep's folder names; needed once.")
def restore(run: Path, trust: bool) -> None:
    """Repeat a RUN of a sweep with `notebooks: false`, and write its folder, notebook and page.

    Its rounds must equal those of the sweep, bit by bit.
    """
    click.echo(batch.restore(run, trust) / PAGE)


def show_sweep(folder: Path, once: bool, of: str | None, target: float | None) -> None:
    """Print the status of a sweep until it has ended.

    The status has the missing runs, failures, means, and the setting that explains most of the variance.
    """
    sweep, shown = batch.attach(folder), ""
    while not once and not sweep.wait(2.0):
        if (text := str(sweep.progress())) != shown:
            click.echo(text)
        shown = text
    click.echo(sweep)
    search = read_folder(folder).search
    of, target = of or (search.of if search else "time"), target or (search.target if search else None)
    table = sweep.runs(target, search.metric if search else "loss")
    if not len(table.done):
        return
    means = table.mean(of)
    click.echo(means.to_string(index=False, float_format=lambda x: f"{x:.5g}"))
    if len(table.done) >= 3 and len(decided := importance(table, of)):
        click.echo(f"share of the variance of {of} that a setting explains by itself:")
        click.echo(decided.to_string(index=False, float_format=lambda x: f"{x:.3g}"))


@click.command()
@click.argument("folder", type=_PATH, default=Path("runs"))
@option(
    "--where",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Select runs; with several options, a run must match all of them.",
)
@option("--by", multiple=True, metavar="COLUMN", help="Group runs by this column; prints means with bands.")
@option(
    "--of",
    metavar="RESULT",
    help="Result to average, e.g. time, loss, time_to. Without --by, runs are grouped by all settings that differ.",
)
@option("--level", default=0.95, show_default=True, help="Level of the confidence interval.")
@option(
    "--target",
    type=float,
    help="Value of the metric. Adds columns time_to and rounds_to: time and rounds until the metric reaches it.",
)
@option("--metric", default="loss", show_default=True, help="Metric of the target.")
@option("-o", "--output", type=_PATH, help="Write the whole table to a .csv or .parquet file.")
def runs(
    folder: Path,
    where: tuple[str, ...],
    by: tuple[str, ...],
    of: str | None,
    level: float,
    target: float | None,
    metric: str,
    output: Path | None,
) -> None:
    """Print the table of all runs below FOLDER (default: runs)."""
    found = _filtered(read(folder, target=target, metric=metric), where)
    if output is not None:
        check_writable(output, "output")
    grouped = bool(by or of)
    table = found.mean(of or "time", by or None, level) if grouped else found.table
    if output is not None:
        click.echo(f"written to {export(table, output)}")
    elif grouped:
        click.echo(table.to_string(index=False, float_format=lambda x: f"{x:.5g}"))
    else:
        click.echo(found)
        for _, row in found.table[found.table["error"] != ""].iterrows() if len(found) else ():
            click.echo(f"{row['run']}: {row['error']}")


def _filtered(found: Runs, where: tuple[str, ...]) -> Runs:
    fields: dict[str, Any] = {}
    for text in where:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingError(f"--where {text}: write COLUMN=VALUE, e.g. scheme=CR")
        try:
            wanted = parse(value)
        except YAMLError:
            wanted = value
        fields.setdefault(name, []).append(wanted)
    return found.where(fields)

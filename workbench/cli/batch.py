"""The commands for many runs: `workbench sweep` does them, `workbench runs` shows what came out."""

from pathlib import Path
from typing import Any

import click

from workbench.base.settings import SettingError, check_writable
from workbench.base.text import YAMLError, parse
from workbench.trace.exports import export
from workbench.trace.table import Runs
from workbench.trace.table import runs as read

_PATH = click.Path(path_type=Path)
_TIME = click.FloatRange(0, min_open=True)


@click.command()
@click.argument("plan", metavar="SWEEP", type=_PATH)
@click.option(
    "-j", "--jobs", type=click.IntRange(1), default=1, show_default=True, help="How many run at a time."
)
@click.option("-o", "--output", type=_PATH, help="Folder of the sweep; default: runs/ and its name.")
@click.option("--only", multiple=True, metavar="RUN", help="This run alone (more than once: these).")
@click.option("--engine", help="Another engine than the sweep's.")
@click.option("--cluster", help="Another cluster than the sweep's.")
@click.option("--timeout", type=_TIME, metavar="SECONDS", help="Longest time for one cell of a notebook.")
@click.option("--dry-run", is_flag=True, help="Check and list the runs, start none.")
@click.option("--quiet", is_flag=True, help="No progress bar.")
def sweep(
    plan: Path,
    jobs: int,
    output: Path | None,
    only: tuple[str, ...],
    engine: str | None,
    cluster: str | None,
    timeout: float | None,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run all experiments of a SWEEP file, or go on with the sweep in a folder: what is missing or failed.

    Exit status: 0 all done, 1 a run failed, 2 nothing was started, 130 interrupted.
    """
    from workbench.batch.run import opened
    from workbench.batch.run import sweep as run_sweep

    chosen, folder = opened(plan, output)
    changes = {name: value for name, value in (("engine", engine), ("cluster", cluster)) if value is not None}
    chosen = chosen.replace(**changes)
    if dry_run:
        for item in chosen.items():
            click.echo(item.name)
        return
    summary = run_sweep(chosen, folder, jobs=jobs, only=only, timeout=timeout, progress=not quiet)
    click.echo(summary)
    if summary.failed:
        raise SystemExit(1)


@click.command()
@click.argument("folder", type=_PATH, default=Path("runs"))
@click.option(
    "--where", multiple=True, metavar="COLUMN=VALUE", help="These runs only; several must all hold."
)
@click.option(
    "--by", multiple=True, metavar="COLUMN", help="Mean and confidence band over the runs of each group."
)
@click.option(
    "--of",
    metavar="RESULT",
    help="Of which result, e.g. time, loss, time_to; without --by: by all that differs.",
)
@click.option("--level", default=0.95, show_default=True, help="Of the confidence interval.")
@click.option("--target", type=float, help="Adds time_to and rounds_to: when the metric first was as low.")
@click.option("--metric", default="loss", show_default=True, help="The target's metric.")
@click.option("-o", "--output", type=_PATH, help="Write the whole table to a .csv or .parquet file.")
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

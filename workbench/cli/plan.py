"""Commands that measure a cluster and recommend a scheme for it: profile, plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click import option

from workbench.analysis.planning.linkfit import link_text
from workbench.analysis.planning.measuring import profile as measure
from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.planning.quantities import INEXACT_MARK, quantity_of
from workbench.cli.show import TRUST
from workbench.core.base.extras import not_installed
from workbench.core.base.grouping import grouped
from workbench.core.base.settings import check_ending, check_writable
from workbench.core.contract.scheme import mark_note
from workbench.core.experiment import Description, Experiment

if TYPE_CHECKING:
    from workbench.analysis.planning.advice import Advice, Choice

MAX_SHOWN_CHOICES = 8  # max number of choices in the table
_FILE = click.Path(path_type=Path)
_PICTURES = (".html", ".png", ".svg", ".pdf")


@click.command()
@click.argument("name", default="local")
@option(
    "--workers",
    type=int,
    help="Number of workers that compute at the same time.  [default: those of --like, else 12]",
)
@option("--like", type=_FILE, help="SPEC whose problem, loads and model size are measured.")
@option("--rounds", type=int, default=60, show_default=True, help="Rounds for each load and model size.")
@option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling.")
@option("-o", "--output", type=_FILE, help="Profile to write, .json or .yaml.  [default: NAME.profile.json]")
@option(
    "--picture",
    type=_FILE,
    help="Picture to draw: .html, .png, .svg or .pdf.  [default: the profile's name, .html]",
)
@TRUST
def profile(
    name: str, workers: int | None, like: Path | None, rounds: int, seed: int, output: Path | None,
    picture: Path | None, trust: bool,
) -> None:  # fmt: skip
    """Measure the cluster NAME: computing times, stragglers, links. Takes a minute or less."""
    file = output or Path(f"{Path(name).stem}.profile.json")
    drawn = picture or file.with_suffix(".html")
    _writable(file, (".json", ".yaml", ".yml"), "output")
    _writable(drawn, _PICTURES, "picture")
    wanted = None if like is None else Experiment.read(like, trust)
    found = measure(name, workers, wanted, rounds, seed=seed, progress=True)
    found.save(file)
    for line in described(found):
        click.echo(line)
    click.echo(f"written to {file}")
    _draw("cluster", found, drawn, asked=picture is not None)


@click.command()
@click.argument("profile", type=_FILE)
@click.argument("spec", type=_FILE, required=False)
@option(
    "--workers", type=int, help="Number of workers.  [default: the SPEC's, else as many as were measured]"
)
@option(
    "--rounds", type=int, help="Max number of updates of an exact scheme.  [default: the SPEC's, else 100]"
)
@option(
    "--target",
    type=float,
    help="Value of the metric to reach.  [default: what an exact scheme reaches after --rounds]",
)
@option("--metric", default="loss", show_default=True, help="The target's metric, such as test_accuracy.")
@option(
    "--tolerance", type=float, default=0.02, show_default=True,
    help="Without --target: share of the loss decrease that may be missing.",
)  # fmt: skip
@option("--scheme", "schemes", multiple=True, help="Consider only this scheme (repeatable).")
@option("--seconds", type=float, help="Max seconds of the search.  [default: unlimited]")
@option(
    "--effort",
    type=float,
    help="Max number of data values that simulations may process; 0: only exact schemes, with the automatic step.",
)
@option(
    "--machines",
    type=click.Choice(["same", "new"]),
    help="same: the measured machines; new: others of their kind.  [default: same, if all of them are used]",
)
@option(
    "--batch", "batches", type=int, multiple=True,
    help="Compare mini-batches of this size, too (repeatable).",
)  # fmt: skip
@option("--replay", is_flag=True, help="Replay the recorded times instead of fitted delay models.")
@option("--seed", type=int, default=0, show_default=True, help="Seed of all draws.")
@option(
    "--picture", type=_FILE, help="Picture: .html, .png, .svg or .pdf.  [default: PROFILE's name, .plan.html]"
)
@option("-o", "--output", type=_FILE, help="SPEC file to write for the best choice, .yaml or .json.")
@TRUST
def plan(
    profile: Path, spec: Path | None, workers: int | None, rounds: int | None, target: float | None, metric: str,
    tolerance: float, schemes: tuple[str, ...], effort: float | None, seconds: float | None,
    machines: Literal["same", "new"] | None,
    batches: tuple[int, ...], replay: bool, seed: int, picture: Path | None, output: Path | None, trust: bool,
) -> None:  # fmt: skip
    """Rank all schemes and their parameters on the cluster of PROFILE, for the problem of SPEC.

    Each scheme is compared with the optimiser and the step size that suit it best. If SPEC has an optimiser other than
    gd, or parameters of an optimiser, all schemes use these.
    """
    from workbench.analysis.planning.planner import plan as choose

    drawn = picture or profile.with_suffix(".plan.html")
    _writable(drawn, _PICTURES, "picture")
    if output is not None:
        _writable(output, (".json", ".yaml", ".yml"), "output")
    wanted: dict[str, Any] = {"workers": workers, "rounds": rounds, "effort": effort, "seconds": seconds}
    given = {name: value for name, value in wanted.items() if value is not None}
    known = ClusterProfile.load(profile, trust=trust)
    advice = choose(
        known, **{**plan_fields(spec, trust), **given}, target=target, metric=metric, tolerance=tolerance,
        schemes=schemes or None, machines=machines, replay=replay, batches=batches, seed=seed, progress=True,
    )  # fmt: skip
    for line in table(advice):
        click.echo(line)
    for note in advice.notes:
        click.echo(f"note: {note}")
    click.echo(advice.why)
    if output is not None:
        click.echo(f"written to {advice.best.experiment.write(output)}")
    _draw("ranking", advice, drawn, asked=picture is not None)


def plan_fields(spec: Path | None, trust: bool = False) -> dict[str, Any]:
    """Return the given fields of a SPEC: problem, optimiser, their parameters, workers, rounds and batch.

    The planner chooses the scheme, and has delays and link from the profile. A SPEC written by `Experiment.write` has
    every field, so gd without parameters counts as not chosen.
    """
    if spec is None:
        return {}
    e = Experiment.read(spec, trust)
    if isinstance(e, Description):
        raise e.error
    names = ["problem", "problem_args", "optimiser", "optimiser_args", "workers", "rounds"]
    names += ["batch", "evaluate_every"]
    given = {name: getattr(e, name) for name in names if name in e.model_fields_set}
    if not e.optimiser_args and e.optimiser == Experiment.model_fields["optimiser"].default:
        given.pop("optimiser", None)
    return given


def described(found: ClusterProfile) -> list[str]:
    """Return a profile as a few lines of text."""
    lines = []
    for place, each in enumerate(found.recorded):
        best = found.delay_models[place][0]
        text = f"{best.delays.kind.replace('_', ' ')}, distance {best.distance:.2f}{'' if best.fits else ', poor'}"
        size = f"{each.samples:6.0f} samples x {each.floats:6d}"
        lines.append(f"{size}: {quantity_of(each.typical):>8} a task   ({text})")
    work, link = found.fitted.work, link_text(found.fitted.port)
    costs = f"{work.per_number:.3g} s a parameter + {work.per_sample:.3g} s a sample"
    costs += f" + {work.per_cell:.3g} s a parameter and sample"
    lines += [f"link: {link}", f"work: {quantity_of(work.fixed)} + {costs}"]
    return lines + [f"note: {note}" for note in found.notes()]


def table(advice: Advice) -> list[str]:
    """Return a table of the best configuration of each of the best schemes, and the schemes that are not ranked."""
    head = (
        f"{'scheme':42} {'time':>9} {'from':>9} {'to':>9} {'a round':>9} {'rounds':>7} {'fastest':>7}  step"
    )
    shown = advice.schemes[:MAX_SHOWN_CHOICES]
    lines = [head, *(_row(choice) for choice in shown), "fastest: share of the resampled predictions"]
    if not all(choice.exact for choice in shown):
        lines.append(f"{INEXACT_MARK}: inexact, it commits estimates of the gradient; rounds are simulated")
    if note := mark_note(choice.scheme for choice in shown):
        lines.append(note)
    reasons = grouped((each.reason, each.name) for each in advice.refusals)
    return lines + [f"not ranked: {'; '.join(names)}: {reason}" for reason, names in reasons.items()]


def _row(choice: Choice) -> str:
    times = (choice.seconds, choice.low, choice.high, choice.per_round)
    cells = " ".join(f"{quantity_of(seconds):>9}" for seconds in times)
    return f"{choice.marked[:42]:42} {cells} {choice.rounds:7.0f} {choice.sure:7.0%}  {choice.step}"


def _writable(path: Path, endings: tuple[str, ...], field: str) -> None:
    """Raise an error for a file that cannot be written, before anything is measured."""
    check_ending(path, endings, field)
    check_writable(path, field)


def _draw(figure: str, shown: object, path: Path, asked: bool) -> None:
    """Draw a figure of the gallery. Without plotly, raise only if the user asked for the picture."""
    try:
        from workbench.lab import figures
    except ModuleNotFoundError as error:
        if asked:
            raise
        click.echo(f"no picture: {not_installed('it', error)}", err=True)
        return
    try:
        click.echo(f"picture: {figures.save(getattr(figures, figure)(shown), path)}")
    except figures.NoBrowser as error:
        click.echo(f"no picture: {error}", err=True)

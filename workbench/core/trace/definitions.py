"""What a run was made with of the user's own: sources beside it, as text, and whether they are the same today."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.core.base.files import write_file
from workbench.core.base.own import is_own
from workbench.core.base.settings import SettingError
from workbench.core.base.sources import Source, digest_in, source_of
from workbench.core.base.text import read_text
from workbench.core.experiment import Experiment
from workbench.core.trace.layout import OWN, SPEC


def definitions_of(e: Experiment) -> list[Any]:
    """Classes and functions of an experiment that others cannot import: of a cell, a script or a loose file."""
    parts = (e.built_scheme, e.delays, e.problem_spec, e.build_optimiser())
    found = [*map(type, parts), *e.problem_spec.own().values()]
    return [thing for thing in dict.fromkeys(found) if is_own(thing)]


def sources_of(e: Experiment) -> list[Source]:
    """Their sources; what was typed where no text is kept has none."""
    found: dict[str, Source] = {}
    for thing in definitions_of(e):
        with suppress(SettingError):
            found.setdefault(thing.__name__, source_of(thing))
    return list(found.values())


def keep(folder: Path, e: Experiment) -> list[str]:
    """Write the sources into a run folder, unless its run began with them; names of the files."""
    names = []
    for source in sources_of(e):
        names.append(OWN.format(source.name))
        if not (folder / names[-1]).is_file():
            write_file(folder / names[-1], source.text)
    return names


def experiment_of(folder: Path, same: bool = False) -> Experiment:
    """The experiment of a run folder. same: refuse definitions that have changed since it began.

    Raises `SettingError`, which says where the source is kept of what is not defined here.
    """
    kept = sorted(path for path in folder.glob(OWN.format("*")))
    try:
        e = Experiment.read(folder / SPEC)
    except SettingError as error:
        if kept:
            files = ", ".join(map(str, kept))
            why = "run that first)"
            raise SettingError(f"{error} (the run's own definitions are kept in {files}; {why}") from None
        raise
    if same:
        before = {path.stem.removeprefix("own-"): digest_in(read_text(path), path.stem[4:]) for path in kept}
        check_same(e, before)
    return e


def check_same(e: Experiment, before: Mapping[str, str]) -> None:
    """Raise `SettingError` where a class of the user's own is not the one that a run began with, by its hash."""
    for source in sources_of(e):
        if before.get(source.name, source.digest) != source.digest:
            why = f"put back that of {OWN.format(source.name)} in the run folder, or start a new run"
            raise SettingError(f"{source.name}: its definition is not what the run began with; {why}")

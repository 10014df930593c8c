"""User-defined code of a run: its sources, kept as text in the run folder, and a check that they are unchanged."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from workbench.core.base.files import write_file
from workbench.core.base.older import renamed
from workbench.core.base.settings import SettingError, errors_of
from workbench.core.base.sources import Source, digest_in, source_of
from workbench.core.base.text import read_text, read_yaml
from workbench.core.base.user_code import is_own
from workbench.core.experiment import Description, Experiment, described
from workbench.core.trace.layout import OWN_SOURCE, SPEC


def definitions_of(e: Experiment) -> list[Any]:
    """Return an experiment's classes and functions that other processes cannot import, such as those of a cell."""
    found = [*map(type, e.parts), *e.problem_spec.model_args().values()]
    return [obj for obj in dict.fromkeys(found) if is_own(obj)]


def sources_of(e: Experiment) -> list[Source]:
    """Return the sources of `definitions_of`. Definitions whose text is not available have no source."""
    found: dict[str, Source] = {}
    for obj in definitions_of(e):
        with suppress(SettingError):
            found.setdefault(obj.__name__, source_of(obj))
    return list(found.values())


def keep(folder: Path, e: Experiment, origin: Path | None = None) -> list[str]:
    """Write the sources into a run folder, unless it has them already. Return the file names.

    The sources of a `Description` are copied from `origin`, the folder from which it was read.
    """
    if isinstance(e, Description):
        texts = {path.name: read_text(path) for path in kept_in(origin)} if origin is not None else {}
    else:
        texts = {OWN_SOURCE.format(source.name): source.text for source in sources_of(e)}
    for name, text in texts.items():
        if not (folder / name).is_file():
            write_file(folder / name, text)
    return list(texts)


def kept_in(folder: Path) -> list[Path]:
    """Return the sources in a run folder."""
    return sorted(
        path for path in folder.glob(OWN_SOURCE.format("*")) if path.is_file() and not path.is_symlink()
    )


def experiment_of(folder: Path) -> Experiment:
    """Return the experiment of a run folder without running code.

    The result is a `Description` if the folder names code or an unknown class.
    """
    fields = renamed(read_yaml(folder / SPEC, "scheme: CR"))
    with errors_of(folder / SPEC):
        return described(fields, f"wb.Trace.load({str(folder)!r}, trust=True)", where_kept(folder))


def where_kept(folder: Path) -> str:
    """Return a sentence that names the files with the sources of undefined names, or empty if there are none."""
    files = ", ".join(map(str, kept_in(folder)))
    return f" (the run's own definitions are kept in {files}; run that first)" if files else ""


def check_kept(folder: Path, e: Experiment) -> None:
    """Raise `SettingError` if a definition differs from its source in a run folder."""
    check_same(e, {path.stem[4:]: _digest_of(path) for path in kept_in(folder)})


def _digest_of(path: Path) -> str:
    try:
        return digest_in(read_text(path), path.stem[4:])
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise SettingError(f"{path}: is damaged ({' '.join(str(error).split())})") from None


def check_same(e: Experiment, before: Mapping[str, str]) -> None:
    """Raise `SettingError` if a user-defined class or function differs from that at the run's start, by its hash."""
    for source in sources_of(e):
        if before.get(source.name, source.digest) != source.digest:
            raise not_the_same(source.name)


def not_the_same(name: str) -> SettingError:
    """Return the error for a definition that has changed since its run began."""
    kept = f"that of {OWN_SOURCE.format(name)} in the run folder (names of 1.0: docs/moving-from-1.0.md)"
    why = f"put back {kept}, or start a new run"
    return SettingError(f"{name}: its definition is not what the run began with; {why}")

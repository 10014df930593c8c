"""Folder of a sweep (see `layout`): its runs, their states, and the process that executes the sweep."""

import os
import platform
from collections.abc import Collection
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from workbench.core.base.files import write_json
from workbench.core.base.locks import Lock
from workbench.core.base.older import renamed
from workbench.core.base.settings import SettingError
from workbench.core.base.text import read_json
from workbench.core.trace.layout import (
    ATTEMPTS,
    FILES,
    PLAN,
    RANKS_LOCK,
    RUN,
    RUN_LOCK,
    SPEC,
    STATUS,
    SWEEP_LOCK,
    TASK,
)


def is_run(names: Collection[str]) -> bool:
    """Return whether file names are those of a run folder, below which there are no other runs."""
    return STATUS in names or (SPEC in names and (RUN in names or TASK in names))


def remains(folder: Path, names: Collection[str]) -> bool:
    """Return whether file names include some of a run's files.

    A folder with only a spec may be the user's own, unless it has the name of a temporary folder of a run.
    """
    few = 1 if folder.name.startswith(".") and folder.suffix == ".tmp" else 2
    return len({*FILES, TASK} & set(names)) >= few


def taken(folder: Path) -> bool:
    """Return whether a process works on the run in this folder."""
    return any(Lock(folder / name).locked for name in (RUN_LOCK, RANKS_LOCK))


@dataclass(frozen=True)
class Status:
    """Status of a run: running (or killed while it ran), interrupted, failed, done, and in `rows` others."""

    state: str
    spec: dict[str, Any] = field(default_factory=dict)  # the experiment with all fields
    engine: str = "sim"
    cluster: str = ""
    error: str = ""
    seconds: float | None = None  # from the notebook's start to its page, on this machine's clock
    host: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the status into a run's folder, atomically."""
        write_json(folder / STATUS, asdict(self), indent=2)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the status in a run's folder; None if there is none."""
        try:
            found = cls(**read_json(folder / STATUS))
        except (OSError, ValueError, TypeError):
            return None
        texts = (found.state, found.engine, found.cluster, found.error)
        right = all(isinstance(text, str) for text in texts) and isinstance(found.spec, dict)
        return found if right else None

    @classmethod
    def done(cls, folder: Path) -> Self | None:
        """Read the status of a run that is done; None for any other run."""
        found = cls.read(folder)
        return found if found is not None and found.state == "done" else None


def host() -> dict[str, Any]:
    """Return the properties of this host that affect the time of a run."""
    return {"name": platform.node(), "platform": platform.platform(), "cores": os.cpu_count()}


def write_plan(folder: Path, sweep: dict[str, Any], names: list[str], **more: Any) -> None:
    """Write the sweep, the names of its runs and `more`. Raise `SettingError` if the folder has another sweep."""
    known = run_names(folder)
    if known and not set(known) & set(names):
        raise another_sweep(folder)
    write_json(folder / PLAN, {"sweep": sweep, "runs": names, **more}, indent=2)


def another_sweep(folder: Path) -> SettingError:
    """Return the error about a folder with the runs of another sweep."""
    why = "holds another sweep, of which this one shares no run; choose another folder"
    return SettingError(f"folder = {str(folder)!r}: {why}")


def read_plan(folder: Path) -> dict[str, Any]:
    """Return the fields that `write_plan` wrote, or {} without a file. Raise `SettingError` for a damaged file."""
    with suppress(OSError):
        return dict(renamed(read_json(folder / PLAN)))
    return {}


def run_names(folder: Path) -> list[str]:
    """Return the names of a sweep's runs, in order; none if they are not known."""
    names = None
    with suppress(SettingError):
        names = read_plan(folder).get("runs")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def attempts(folder: Path) -> dict[str, Status]:
    """Return the status of each run that was begun and not completed, by the run's name."""
    found = {path.parent.name: Status.read(path.parent) for path in (folder / ATTEMPTS).glob(f"*/*/{STATUS}")}
    return {name: status for name, status in found.items() if status is not None}


def alone(folder: Path) -> AbstractContextManager[None]:
    """Return a context that locks the folder against a second sweep. The lock ends with this process in any case."""
    other = f"folder = {str(folder)!r}: a sweep is running in it; wait for its end, or choose another folder"
    return Lock(folder / SWEEP_LOCK).alone(SettingError(other))


def is_running(folder: Path) -> bool:
    """Return whether a sweep is running in the folder."""
    with suppress(OSError):
        return Lock(folder / SWEEP_LOCK).locked
    return False

"""The folder of a sweep (see `layout`): which runs it has, how each of them stands, and who works in it."""

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
from workbench.core.trace.layout import FILES, PLAN, RANKS_LOCK, RUN, RUN_LOCK, SPEC, STATUS, SWEEP_LOCK, TASK


def is_run(names: Collection[str]) -> bool:
    """Are these the files of a run's folder? Below it nobody looks for other runs."""
    return STATUS in names or (SPEC in names and (RUN in names or TASK in names))


def remains(folder: Path, names: Collection[str]) -> bool:
    """Are these some of a run's files? A spec alone is one that somebody wrote, but where it was just being saved."""
    few = 1 if folder.name.startswith(".") and folder.suffix == ".tmp" else 2
    return len({*FILES, TASK} & set(names)) >= few


def taken(folder: Path) -> bool:
    """Does somebody work on the run in this folder?"""
    return any(Lock(folder / name).locked for name in (RUN_LOCK, RANKS_LOCK))


@dataclass(frozen=True)
class Status:
    """How a run stands: running (or killed while it ran), interrupted, failed, done."""

    state: str
    spec: dict[str, Any] = field(default_factory=dict)  # the experiment, every field
    engine: str = "sim"
    cluster: str = ""
    error: str = ""
    seconds: float | None = None  # from the notebook's start to its page, on this machine's clock
    host: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write at once or not at all."""
        write_json(folder / STATUS, asdict(self), indent=2)

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Status of a run's folder; None where there is none."""
        try:
            found = cls(**read_json(folder / STATUS))
        except (OSError, ValueError, TypeError):
            return None
        texts = (found.state, found.engine, found.cluster, found.error)
        right = all(isinstance(text, str) for text in texts) and isinstance(found.spec, dict)
        return found if right else None


def host() -> dict[str, Any]:
    """What a run's time depends on."""
    return {"name": platform.node(), "platform": platform.platform(), "cores": os.cpu_count()}


def write_plan(folder: Path, sweep: dict[str, Any], names: list[str], **more: Any) -> None:
    """Note the sweep, its runs and `more`; refuses a folder in which another sweep has run."""
    known = run_names(folder)
    if known and not set(known) & set(names):
        why = "holds another sweep, of which this one shares no run; choose another folder"
        raise SettingError(f"folder = {str(folder)!r}: {why}")
    write_json(folder / PLAN, {"sweep": sweep, "runs": names, **more}, indent=2)


def read_plan(folder: Path) -> dict[str, Any]:
    """What `write_plan` noted, empty where nothing is. Raises `SettingError`: it is damaged."""
    with suppress(OSError):
        return dict(renamed(read_json(folder / PLAN)))
    return {}


def run_names(folder: Path) -> list[str]:
    """Names of a sweep's runs, in order; none where that is not known."""
    names = None
    with suppress(SettingError):
        names = read_plan(folder).get("runs")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def alone(folder: Path) -> AbstractContextManager[None]:
    """Keep a second sweep out of the folder; the system lets go of the lock when this process ends, however it does."""
    other = f"folder = {str(folder)!r}: a sweep is running in it; wait for its end, or choose another folder"
    return Lock(folder / SWEEP_LOCK).alone(SettingError(other))


def is_running(folder: Path) -> bool:
    """Is a sweep at work in the folder?"""
    with suppress(OSError):
        return Lock(folder / SWEEP_LOCK).locked
    return False

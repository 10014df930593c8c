"""Who has the run of a folder: its claim by the client that began it, and the processes that it was handed to.

The process that begins or resumes a run claims its folder, and keeps the claim until the run is over; the master's
rank has one of its own, as the run outlives its client. The system takes both back from who ends, however that is.
"""

import time
from pathlib import Path
from typing import Any

from workbench.core.base.errors import RunError, reason
from workbench.core.base.files import write_json
from workbench.core.base.locks import Lock
from workbench.core.base.settings import SettingError, path_of
from workbench.core.base.text import read_json, read_yaml
from workbench.core.experiment import Experiment
from workbench.core.trace import records
from workbench.core.trace.definitions import keep
from workbench.core.trace.folder import locked_new
from workbench.core.trace.layout import ENDED, OWNER, OWNER_1_0, RANKS_LOCK, RUN, RUN_LOCK, SPEC, STOP, TASK
from workbench.core.trace.trust import owner_is_signed, sign_code, sign_owner
from workbench.mpi import clusters
from workbench.mpi.clusters import Cluster
from workbench.mpi.launch.site import RunOwner

HAND_IN_TIMEOUT_S = 600.0  # s after which a run that nobody has taken is given up
STOP_TIMEOUT_S = 60.0  # s that a run that was asked to stop has for it, before it counts as under way
POLL_INTERVAL_S = 0.05  # s
# Fields of ended.json, each with its kind.
END: dict[str, Any] = {
    "error": Any,
    "state": str,
    "first": int,
    "zero": float | None,
    "committers": list[int],
    "dead": dict,
    "emulate": str,
    "clean": bool,
    "setup": float,
}


def real_folder(folder: str | Path, follow: bool = False) -> Path:
    """The folder of a real run; raises `SettingError` for any other.

    follow: refuse one with a trace and no ended.json as well: nobody would ever write that.
    """
    home = path_of(folder, "folder")
    if not (home / TASK).is_file() or not (home / SPEC).is_file():
        raise SettingError(
            f"folder = {str(folder)!r}: holds no run on real processes; give the folder of one (wb.Trace.load reads"
            " those of the virtual clock)"
        )
    if follow and (home / RUN).is_file() and not (home / ENDED).is_file():  # `reopen` takes run.json away
        why = f"{ENDED} is missing, and the run has ended; wb.Trace.load reads its trace"
        raise SettingError(f"folder = {str(folder)!r}: {why}")
    return home


def locked_again(home: Path, trust: bool = False) -> Lock:
    """Claim the folder of a run that nobody works on any more; one that was asked to stop is waited for.

    Raises `SettingError` where somebody does.
    """
    lock, until = Lock(home / RUN_LOCK), time.monotonic() + STOP_TIMEOUT_S
    while True:
        if lock.take():
            if not Lock(home / RANKS_LOCK).locked and not _under_way(home, trust):
                return lock
            lock.release()
        if not (home / STOP).exists() or time.monotonic() > until:
            raise SettingError(f"folder = {str(home)!r}: this run is still under way; wb.attach follows it")
        time.sleep(POLL_INTERVAL_S)


def ended(home: Path) -> dict[str, Any] | None:
    """How the run ended; None: it has not."""
    return read_json(home / ENDED, **END) if (home / ENDED).exists() else None


def check_whole(home: Path, experiment: Experiment, counted: bool = True) -> None:
    """Raise `SettingError` where files were changed since a run ended, `RunError` where it has lost rounds.

    counted: count the rounds; to resume a run needs those of its checkpoint only.
    """
    if not (home / ENDED).is_file():  # it broke off: the checkpoint has a sum of its own
        return
    floats = experiment.shape()[1]
    records.check_kept(home, experiment.rounds, floats)
    try:
        if counted:
            records.check_rounds(home, floats)
    except SettingError as missing:
        raise RunError(str(missing)) from None


def cluster_of(home: Path, trust: bool = False) -> Cluster:
    """Where a run was, or would have been; raises `SettingError` where that has to be trusted, see `_cluster`."""
    fields = _owner_record(home)
    return _cluster(home, fields, trust) if fields else clusters.load(clusters.LOCAL)


def owner_of(home: Path, trust: bool = False) -> RunOwner | None:
    """Who works on this run; None before it is handed in. Raises `SettingError` as `cluster_of` does."""
    if (fields := _owner_record(home)) is None:
        return None
    try:
        return _cluster(home, fields, trust).site.owner(fields, home)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"{home / OWNER}: is damaged ({type(error).__name__}: {error})") from None


def _cluster(home: Path, fields: dict[str, Any], trust: bool) -> Cluster:
    """The cluster that owner.json names. Its settings start programs: a folder's word for them is not enough.

    It is this machine, or as a file of the user's own says; else this user's processes have signed it, or it is to be
    trusted, and is signed then. Raises `SettingError`.
    """
    settings = fields["cluster"]
    if not isinstance(settings, dict):
        raise SettingError(f"{home / OWNER}: is damaged ('cluster' has no fields)")
    if (known := clusters.user_defined(settings)) is not None:
        return known
    if not owner_is_signed(home, fields):
        if not trust:
            kind, name = (str(settings.get(key))[:60] for key in ("kind", "name"))
            raise SettingError(
                f"{home / OWNER}: cluster = {name!r} ({kind}): is not what a file of yours says (see"
                " wb.clusters), and its settings start programs; look at it, then trust=True (--trust) takes it"
            )
        sign_owner(home, fields)
    try:
        return clusters.rebuilt(settings)
    except SettingError as error:
        raise SettingError(f"{home / OWNER}: {error}") from None


def soon(home: Path) -> bool:
    """May a run that was not handed in yet still be?"""
    return time.time() - (home / TASK).stat().st_mtime < HAND_IN_TIMEOUT_S or Lock(home / RUN_LOCK).locked


def _owner_record(home: Path) -> dict[str, Any] | None:
    """What owner.json says; None before the run is handed in."""
    found = next((path for path in (home / OWNER, home / OWNER_1_0) if path.exists()), None)
    return None if found is None else read_json(found, "cluster")


def _under_way(home: Path, trust: bool) -> bool:
    """Are the processes that work on this run still there? What they did meanwhile is brought here."""
    if (home / ENDED).exists() or (holder := owner_of(home, trust)) is None:
        return False  # who was to hand it in has no claim to it any more
    holder.look()
    there = holder.is_alive
    holder.release()
    return there and not (home / ENDED).exists()


def check_options(emulate: str, checkpoint_every: float, patience: float, **others: Any) -> None:
    """Refuse options of a run that are none; raises `SettingError`."""
    if not checkpoint_every >= 0:
        raise SettingError(f"checkpoint_every = {checkpoint_every}: take 0 s or more")
    if not patience > 0:
        raise SettingError(f"patience = {patience}: take more than 0 s")
    if emulate not in ("all", "delays", "nothing"):
        raise SettingError(f"emulate = {emulate!r}: take 'all', 'delays' or 'nothing'")


def begun(home: Path, experiment: Experiment, options: dict[str, Any]) -> Lock:
    """Claim a run folder and write down what is to be run: now it can be followed, stopped and gone on with."""
    try:
        claim = locked_new(home)
        experiment.write(home / SPEC)
        keep(home, experiment)
        sign_code("run", home, read_yaml(home / SPEC, "scheme: CR"))
        write_json(home / TASK, {**options, "first": 0})
    except OSError as error:
        raise SettingError(f"folder = {str(home)!r}: cannot be written ({reason(error, home)})") from None
    return claim

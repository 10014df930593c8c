"""Ownership of run folders: the lock of the client that started a run, and the processes that work on the run.

The process that starts or resumes a run locks its folder until the run is over. The rank of the master has a second
lock, since the run outlives its client. The system releases both locks when their processes end, in any way.
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

HAND_IN_TIMEOUT_S = 600.0  # s after which a run that no rank has begun counts as abandoned
STOP_TIMEOUT_S = 60.0  # s in which a run must end after a stop request; after that it counts as still active
POLL_INTERVAL_S = 0.05  # s
# Fields of ended.json, with their types.
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


def read_end(path: Path) -> dict[str, Any]:
    """Return how a run ended. Of a run that failed, only the error and the state are required."""
    failed = read_json(path, "error", "state")
    return read_json(path, **{n: kind for n, kind in END.items() if failed["error"] is None or n in failed})


def real_folder(folder: str | Path, follow: bool = False) -> Path:
    """Return the folder of a real run. Raises `SettingError` for any other folder.

    `follow`: also refuse a folder with a trace but without ended.json, because no process writes it any longer.
    """
    home = path_of(folder, "folder")
    if not (home / TASK).is_file() or not (home / SPEC).is_file():
        raise SettingError(
            f"folder = {str(folder)!r}: holds no run on real processes; give the folder of one (wb.Trace.load reads"
            " those of the virtual clock)"
        )
    if follow and (home / RUN).is_file() and not (home / ENDED).is_file():  # `reopen` removes run.json
        why = f"{ENDED} is missing, and the run has ended; wb.Trace.load reads its trace"
        raise SettingError(f"folder = {str(folder)!r}: {why}")
    return home


def locked_again(home: Path, trust: bool = False) -> Lock:
    """Lock the folder of a run that no process works on. If the run was asked to stop, wait for its end.

    Raises `SettingError` if the run is still under way.
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
    """Return how the run ended, or None if it has not."""
    return read_end(home / ENDED) if (home / ENDED).exists() else None


def check_whole(home: Path, experiment: Experiment, counted: bool = True) -> None:
    """Raise `SettingError` if files were changed since a run ended, and `RunError` if rounds are lost.

    `counted`: check the number of rounds. To resume a run, only the rounds of its checkpoint are needed.
    """
    if not (home / ENDED).is_file():  # the run was aborted; its checkpoint has a checksum of its own
        return
    floats = experiment.shape()[1]
    records.check_kept(home, experiment.rounds, floats)
    try:
        if counted:
            records.check_rounds(home, floats)
    except SettingError as missing:
        raise RunError(str(missing)) from None


def cluster_of(home: Path, trust: bool = False) -> Cluster:
    """Return the cluster of a run. Raises `SettingError` if it has to be trusted first, see `_cluster`."""
    fields = _owner_record(home)
    return _cluster(home, fields, trust) if fields else clusters.load(clusters.LOCAL)


def owner_of(home: Path, trust: bool = False) -> RunOwner | None:
    """Return the owner of a run, or None before it is handed in. Raises `SettingError` as `cluster_of` does."""
    if (fields := _owner_record(home)) is None:
        return None
    try:
        return _cluster(home, fields, trust).site.owner(fields, home)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        if isinstance(error, SettingError):
            raise
        raise SettingError(f"{home / OWNER}: is damaged ({type(error).__name__}: {error})") from None


def _cluster(home: Path, fields: dict[str, Any], trust: bool) -> Cluster:
    """Return the cluster in owner.json. Its settings start programs, so a foreign folder is not enough.

    The cluster is accepted if it is this machine, a file of the user has the same settings, or this user's processes
    have signed it. Any other cluster needs `trust`, which signs it. Raises `SettingError`.
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
                f"{home / OWNER}: cluster = {name!r} ({kind}): differs from your own files (see"
                " wb.clusters), and its settings start programs; check them, then accept them with trust=True (--trust)"
            )
        sign_owner(home, fields)
    try:
        return clusters.rebuilt(settings)
    except SettingError as error:
        raise SettingError(f"{home / OWNER}: {error}") from None


def may_be_submitted(home: Path) -> bool:
    """Return whether a run that was not submitted to a pool yet may still be submitted."""
    return time.time() - (home / TASK).stat().st_mtime < HAND_IN_TIMEOUT_S or Lock(home / RUN_LOCK).locked


def _owner_record(home: Path) -> dict[str, Any] | None:
    """Return the fields of owner.json, or None before the run is handed in."""
    found = next((path for path in (home / OWNER, home / OWNER_1_0) if path.exists()), None)
    return None if found is None else read_json(found, "cluster")


def _under_way(home: Path, trust: bool) -> bool:
    """Return whether the processes of this run are alive, after fetching their newest results."""
    if (home / ENDED).exists() or (owner := owner_of(home, trust)) is None:
        return False  # the client has lost the lock, so it will not submit the run
    owner.look()
    there = owner.is_alive
    owner.release()
    return there and not (home / ENDED).exists()


def check_options(emulate: str, checkpoint_every: float, patience: float, **others: Any) -> None:
    """Raise `SettingError` for invalid options of a run."""
    if not checkpoint_every >= 0:
        raise SettingError(f"checkpoint_every = {checkpoint_every}: take 0 s or more")
    if not patience > 0:
        raise SettingError(f"patience = {patience}: take more than 0 s")
    if emulate not in ("all", "delays", "nothing"):
        raise SettingError(f"emulate = {emulate!r}: take 'all', 'delays' or 'nothing'")


def begun(home: Path, experiment: Experiment, options: dict[str, Any]) -> Lock:
    """Lock a new run folder and write the experiment, so that the run can be followed, stopped and resumed."""
    try:
        lock = locked_new(home)
        experiment.write(home / SPEC)
        keep(home, experiment)
        sign_code("run", home, read_yaml(home / SPEC, "scheme: CR"))
        write_json(home / TASK, {**options, "first": 0})
    except OSError as error:
        raise SettingError(f"folder = {str(home)!r}: cannot be written ({reason(error, home)})") from None
    return lock

"""One run of a sweep as a task of an executor: what a process of the executor does, and what it returns.

The process writes the run into a new folder, called an attempt, and renames it when the run is done. Only the first
rename succeeds, so a process that was paused or replaced cannot damage the valid copy. Without a shared file system
the files are returned, with their hashes. Orders and results contain only text, numbers and bytes. "Engine" means a
process of the executor here, not `sim` or `mpi`.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from threading import Lock, Semaphore, Thread, get_ident
from typing import Any

from workbench.analysis.tables.status import Status
from workbench.core.base.by_value import register
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file
from workbench.core.base.reading import read_bytes, read_text
from workbench.core.base.settings import SettingError
from workbench.core.base.trust import limited
from workbench.core.experiment import Experiment
from workbench.core.trace.layout import ATTEMPTS, ATTEMPTS_OWNER, NOTEBOOK, PAGE, STOP
from workbench.core.trace.trace import versions
from workbench.lab.batch.execution import NotebookRunner
from workbench.lab.batch.kernels import Kernels
from workbench.lab.batch.sweeps import Item

POLL_INTERVAL_S = 0.3  # s between two checks for a request to stop
# s that a process waits after the first error of its host; each further error doubles it, up to the max
FIRST_PAUSE_S, MAX_PAUSE_S, MAX_DOUBLINGS = 2.0, 60.0, 10
# Errors of a host, not of a run: the run is done again elsewhere.
HOST_ERRORS = ("[Errno 28]", "[Errno 5]", "[Errno 116]", "No space left", "Disk quota exceeded")


@dataclass(frozen=True)
class Order:
    """Fields that all tasks of a sweep share.

    `folder`: folder of the sweep on the client. `token`: content of a file there, by which a process checks that it
    reads the same folder. `home`: where runs look for the user's files. `notebook`: text of the notebook; `path`: its
    file. `own`: user-defined code, see `by_value`. `allowed`: code that may run, see `trust`. `versions`: versions
    of the client. `threads`: threads of linear algebra in a run. `cores`: cores of each run. `timeout`: max seconds of
    a cell. `until`: end of the executor's processes, s since 1970.
    """

    folder: str
    token: str
    home: str
    notebook: str = ""
    path: str = NOTEBOOK
    own: str = ""
    allowed: dict[str, str] | None = None
    versions: dict[str, str] = field(default_factory=versions)
    threads: int = 1
    cores: int | None = None
    timeout: float | None = None
    until: float | None = None

    @property
    def shared(self) -> bool:
        """Whether this process can read the sweep's folder."""
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
            return read_text(Path(self.folder, ATTEMPTS, ATTEMPTS_OWNER)) == self.token
        return False

    @property
    def stopped(self) -> bool:
        """Whether this process can read a request to stop."""
        with suppress(OSError):  # a file server may not answer for a while
            return self.shared and Path(self.folder, STOP).exists()
        return False

    @property
    def abandoned(self) -> bool:
        """Whether the sweep has ended, or another one uses its folder.

        It is also True if this process could never read the folder, so check `shared` at the beginning.
        """
        with suppress(OSError):
            return not self.shared
        return False

    def unfit(self) -> str:
        """Return why this process cannot run tasks of the client, or "" if it can."""
        here = versions()
        other = [f"{n} {here.get(n)} instead of {it}" for n, it in self.versions.items() if here.get(n) != it]
        where = f"engine on {platform.node()}"
        return f"{where}: has {', '.join(other)}; install the client's versions there" if other else ""

    def took(self, seconds: float) -> None:
        """Record the time of a run, s. `too_late` expects the next run to take as long as the longest one."""
        _longest[self.token] = max(seconds, _longest.get(self.token, 0.0))

    def too_late(self, expected: float = 0.0) -> str:
        """Return why a task of `expected` seconds is not begun, or "" if this process has enough time left."""
        ends = [float(end) for end in (self.until, os.environ.get("SLURM_JOB_END_TIME")) if end]
        left = min(ends, default=float("inf")) - time.time()
        if left >= (longest := max(expected, _longest.get(self.token, 0.0))):
            return ""
        return f"{max(left, 0):.0f} s are left, and the longest run took {longest:.0f} s"


_longest: dict[str, float] = {}  # s that the longest run of a sweep took in this process
_host_errors: dict[str, int] = {}  # number of successive errors of this host in a sweep


def run_notebook(order: str, run: str) -> dict[str, Any]:
    """Run one notebook, and return its status, with its files if this process cannot read the sweep's folder.

    order: fields of an `Order`, as JSON. run: name, spec, engine, cluster and expected seconds of the run, as JSON.
    The result has one of these keys: `refused` (this process can run nothing of the sweep), `missing` (the run was not
    begun), `lost` (the host failed, not the run; see `lost`), or `status`. The value of the first three is the reason.
    """
    task, item = Order(**json.loads(order)), json.loads(run)
    if answer := refusal(task, float(item.pop("expected", 0.0))):
        return answer
    begun = time.monotonic()
    try:
        answer = _in_thread(task, item)
    except Exception as error:
        return failure(task, error, f"{type(error).__name__}: {error}")
    if why := answer.get("lost"):
        return lost(task, why)
    ended_well(task)
    task.took(time.monotonic() - begun)
    return {"host": platform.node(), **answer}


def refusal(task: Order, expected: float = 0.0) -> dict[str, Any]:
    """Return the result of a task that is not begun, or an empty one if it may begin. `expected`: its time, s."""
    if refused := task.unfit():
        return {"refused": refused}
    why = "the sweep was stopped" if task.stopped else task.too_late(expected)
    return {"missing": why} if why else {}


def failure(task: Order, error: Exception, why: str) -> dict[str, Any]:
    """Return the result of a task that failed: a host that lacks what the client has is refused, see `lost`."""
    if isinstance(error, SettingError) and not is_host_error(why):  # the client has checked all settings
        return {"refused": f"engine on {platform.node()}: {error}"}
    return lost(task, why)


def lost(task: Order, why: str) -> dict[str, Any]:
    """Return the result of a task that was lost: `lost`, the reason, and `host_error`, whether the host caused it.

    `engine` identifies this process and thread.

    After an error of the host, such as a full disk, this function waits, so that other processes do the next runs.
    """
    answer = {"lost": f"{platform.node()}: {' '.join(why.split())}", "host_error": is_host_error(why)}
    answer["engine"] = f"{platform.node()}-{os.getpid()}-{get_ident()}"
    if answer["host_error"]:
        count = _host_errors[task.token] = _host_errors.get(task.token, 0) + 1
        pause = max(FIRST_PAUSE_S, _longest.get(task.token, 0.0)) * 2.0 ** min(count - 1, MAX_DOUBLINGS)
        until = time.monotonic() + min(pause, MAX_PAUSE_S)
        while time.monotonic() < until and not task.stopped:
            time.sleep(POLL_INTERVAL_S)
    return answer


def ended_well(task: Order) -> None:
    """Record that this host could do a task."""
    _host_errors.pop(task.token, None)


def is_host_error(why: str) -> bool:
    """Return whether an error is one of a host, such as a full disk."""
    return any(sign in why for sign in HOST_ERRORS)


def _in_thread(task: Order, item: dict[str, Any]) -> dict[str, Any]:
    """Run in a new thread, because the calling one may have an event loop. Meanwhile check for a request to stop."""
    kernels, answer, seen = _kernels(task), Future[dict[str, Any]](), task.shared

    def work() -> None:
        try:
            answer.set_result(_run(task, item, kernels))
        except BaseException as error:
            answer.set_exception(error)
        with _lock:
            kernels.users -= 1

    Thread(target=work, name="workbench-task", daemon=True).start()
    while wait([answer], POLL_INTERVAL_S).not_done:
        if seen and (task.stopped or task.abandoned) and not kernels.stopping:
            kernels.stop()
    return answer.result()


def _run(task: Order, fields: dict[str, Any], kernels: Kernels) -> dict[str, Any]:
    with _attempt(task) as (attempt, shared), code_of(task):
        final = Path(task.folder, fields["name"])
        if shared and (status := Status.done(final)) is not None:
            return {"status": asdict(status)}  # another attempt has finished earlier
        notebook = attempt / NOTEBOOK
        write_file(notebook, task.notebook)
        item = Item({}, Experiment(**fields["spec"]), fields["engine"], fields["cluster"], fields["name"])
        runner = NotebookRunner(notebook, attempt, kernels, Semaphore(), task.timeout, task.cores)
        status = renamed(runner.run(item), attempt / item.name, final, task.path)
        if status.state == "failed" and is_host_error(status.error):
            return {"lost": status.error}
        if not shared:
            return {"status": asdict(status), **_packed(attempt / item.name)}
        if status.state == "done":
            publish(attempt / item.name, final)
            return {"status": asdict(status)}
        # the folder of a failed run is kept, because the client decides whether the failure counts
        kept = attempt.with_name(f"{attempt.name}-ended")
        kept.mkdir()
        (attempt / item.name).rename(kept / item.name)
        return {"status": asdict(status), "folder": str(kept / item.name)}


@contextmanager
def _attempt(task: Order) -> Iterator[tuple[Path, bool]]:
    """Make the folder of an attempt, and remove it at the end. The second value is whether the client can read it."""
    shared = task.shared
    if shared:
        path = Path(task.folder, ATTEMPTS, f"{platform.node()}-{os.getpid()}-{secrets.token_hex(4)}")
        path.mkdir(mode=0o700)
    else:
        path = Path(tempfile.mkdtemp(prefix="workbench-attempt-"))
    try:
        yield path, shared
    finally:
        shutil.rmtree(path, ignore_errors=True)


def remove_attempts(folder: Path, name: str = "*") -> None:
    """Remove the attempts of a run, or of all runs.

    Each is renamed first, because a process of the executor may rename its run to the final name meanwhile.
    """
    for attempt in {path.parent for path in (folder / ATTEMPTS).glob(f"*/{name}")}:
        with suppress(OSError):
            attempt.rename(gone := attempt.with_name(f"{attempt.name}.old"))
            shutil.rmtree(gone, ignore_errors=True)


def publish(attempt: Path, final: Path) -> bool:
    """Rename the folder of a complete run to `final`. If another attempt was faster, remove this one; return False."""
    try:
        attempt.rename(final)
    except OSError:
        # if it does not exist, the rename has succeeded, and the file server answered a repeated request
        if attempt.exists():
            shutil.rmtree(attempt, ignore_errors=True)
            return False
    return True


def renamed(status: Status, folder: Path, final: Path, notebook: str = "") -> Status:
    """Replace paths of the attempt in a run's files by its folder and the client's notebook. Return the status."""
    given = str(folder.with_name(NOTEBOOK))
    for name in (NOTEBOOK, PAGE):
        if (file := folder / name).is_file():
            text = read_text(file).replace(str(folder), str(final))
            write_file(file, text.replace(given, notebook) if notebook else text)
    status = replace(status, error=status.error.replace(str(folder), str(final)))
    with suppress(OSError):
        status.write(folder)
    return status


def _packed(folder: Path) -> dict[str, Any]:
    """Return the files of a run by name, and their hashes."""
    files = {str(path.relative_to(folder)): read_bytes(path) for path in folder.rglob("*") if path.is_file()}
    return {"files": files, "sums": {name: sha256(content).hexdigest() for name, content in files.items()}}


def unpack(answer: Mapping[str, Any], folder: Path) -> None:
    """Write the files of a run that a process of the executor has returned. Raises `RunError` if a hash differs."""
    files, sums = answer["files"], answer["sums"]
    for name, content in files.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise RunError(f"{name}: is not a file of the run; the engine's answer is damaged")
        if sha256(content).hexdigest() != sums.get(name):
            raise RunError(f"{name}: has changed on its way from the engine")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content)


@contextmanager
def code_of(task: Order) -> Iterator[None]:
    """Register the user's code in this process, once for each sweep, and restrict code if the order does.

    In the block, relative paths are those of the client, if its folder exists here.
    """
    with _lock:
        _left.append(os.open(".", os.O_RDONLY))  # also if the folder was removed
        with suppress(OSError):
            os.chdir(task.home)
    try:
        with _lock:
            if task.own and task.own not in _registered:
                register(task.own)
                _registered.add(task.own)
        with nullcontext() if task.allowed is None else limited(task.allowed):
            yield
    finally:
        with _lock:
            first = _left.pop()
            if not _left:
                os.chdir(first)
            os.close(first)


_left: list[int] = []  # descriptors of the working folders of this process before each task under way
_registered: set[str] = set()
_pools: list[Kernels] = []
_lock = Lock()


def _after_fork() -> None:
    """Forget the kernels of the parent process, because a child that shared its fork server would take its answers."""
    global _lock
    _lock = Lock()  # a thread of the parent may hold the lock
    for pool in _pools:
        atexit.unregister(pool.__exit__)
    _pools.clear()


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(after_in_child=_after_fork)


def _kernels(task: Order) -> Kernels:
    """Return warm kernels of this process that no other sweep uses now, because a stopped sweep stops all of them."""
    fields = json.dumps([task.threads, task.own, task.allowed, task.home])
    with _lock:
        _pools[:] = [pool for pool in _pools if not pool.stopping]
        free = (p for p in _pools if p.fields == fields and (p.token == task.token or not p.users))
        if (pool := next(free, None)) is None:
            pool = Kernels(task.threads, code=task.own, allowed=task.allowed)
            pool.__enter__()
            pool.home = Path(task.home) if Path(task.home).is_dir() else Path(tempfile.gettempdir())
            pool.warm()
            atexit.register(pool.__exit__)
            _pools.append(pool)
        pool.fields, pool.token, pool.users = fields, task.token, pool.users + 1
        return pool

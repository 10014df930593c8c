"""Engines of ipyparallel in one MPI world on this machine: an `ipyparallel.Cluster` that leaves nothing behind.

Controller and engines listen on this machine only, and their messages are encrypted (CURVE). Their keys are in a folder
that only this user can read, and that is removed when the engines end. Controller and engines are children of a thread
that lives as long as they do. On Linux they die with the thread, so a killed kernel leaves nothing behind. ipyparallel
offers nothing of this, see docs/decisions/0056-engines-of-ipyparallel.md.
"""

import contextlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil

from workbench.core.base.errors import ClusterError
from workbench.core.base.reading import read_text
from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.poolfolder import PoolFolder, kept_in, shared
from workbench.mpi.launch.processes import die_with_parent_argv, end_ours, is_alive
from workbench.mpi.running.ipyparallel.calls import patience, unsigned

MEGABYTES_PER_ENGINE = 100  # measured memory: 67 MB for the engine, and 31 MB for the process that watches it
# Files open at the same time, measured: 59, and 2 for each engine
FILES_OF_CONTROLLER, FILES_PER_ENGINE = 80, 2
HEARTBEAT_MS = 1000  # ms between the controller's heartbeats; an engine is registered after two of them
POLL_INTERVAL_S, REPORT_INTERVAL_S = 0.05, 1.0
STOP_TIMEOUT_S = 4.0
CONTROLLER = "ipyparallel.controller"
FOLDER_PREFIX = "workbench-engines-"  # prefix of folder names, followed by the owner's process id
ProgressCallback = Callable[[int], None]  # called with the number of engines that are up


class EngineCluster:
    """One controller and its engines."""

    def __init__(self, engines: int) -> None:
        mpiexec.check_room(engines, MEGABYTES_PER_ENGINE, FILES_OF_CONTROLLER + FILES_PER_ENGINE * engines)
        self.engines = engines
        remove_stale()
        prefix = f"{FOLDER_PREFIX}{os.getpid()}-"
        self.folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        self._cluster: Any = None
        self._client, self._closing = Future[Any](), threading.Event()
        self._thread = threading.Thread(target=self._keep, name="workbench-engines", daemon=True)
        self._thread.start()

    def await_up(self, progress: ProgressCallback) -> Any:
        """Wait until all engines are up. Return the client. Raises `ClusterError` if they do not come up."""
        until, reported = time.monotonic() + patience(self.engines), 0.0
        while (up := self._up()) < self.engines:
            if time.monotonic() > until:
                why = "not up in time; take fewer, or end other programs on this machine"
                raise ClusterError(f"{self.engines} engines: {why}")
            if time.monotonic() - reported > REPORT_INTERVAL_S:
                progress(up)
                reported = time.monotonic()
            time.sleep(POLL_INTERVAL_S)
        progress(self.engines)
        return self._client.result()

    def _up(self) -> int:
        """Return the number of engines that are up. Raises `ClusterError` if the others cannot come up."""
        if not self._client.done():
            return 0
        try:
            up = len(self._client.result().ids)
        except ClusterError:
            raise
        except Exception as error:
            raise ClusterError(f"{self.engines} engines: cannot be started ({error})") from error
        if not is_alive(self._cluster.engine_set.pid):
            log = read_text(self._cluster.engine_set.output_file, errors="replace")
            lines = [line.strip() for line in log.splitlines() if line.strip(" -\n")]
            errors = [line for line in lines if "Error" in line]
            last = (errors or lines or ["it ended without a message"])[-1]
            raise ClusterError(f"{self.engines} engines: mpiexec could not start them ({last})")
        return up

    def close(self) -> None:
        """End engines and controller. Nothing is left when this returns."""
        self._closing.set()
        self._thread.join()
        _clear(Path(self.folder.name))
        self.folder.cleanup()

    def _keep(self) -> None:
        try:
            self._client.set_result(self._start())
        except Exception as error:
            self._client.set_exception(error)
        self._closing.wait()
        self._stop()

    def _start(self) -> Any:
        import ipyparallel

        n, home, here = self.engines, self.folder.name, "127.0.0.1"
        options = {"profile_dir": home, "cluster_file": "", "load_profile": False, "shutdown_atexit": False}
        options |= {"controller_ip": here, "controller_location": here}
        options |= {"controller_args": controller_arguments(n, home), "config": settings(n, home)}
        no_log = logging.Logger("engines", logging.CRITICAL + 1)  # errors are raised
        self._cluster = cluster = ipyparallel.Cluster(engines="mpi", n=n, log=no_log, **options)
        cluster.start_cluster_sync()
        with unsigned():
            return cluster.connect_client_sync(timeout=patience(n))

    def _stop(self) -> None:
        """Stop controller and engines, and kill what does not stop."""
        if self._client.exception() is None:
            self._client.result().close()
        if self._cluster is None:
            return
        processes = self._processes()
        for stop in (self._cluster.stop_engines_sync, self._cluster.stop_controller_sync):
            with contextlib.suppress(Exception):
                stop()
        for process in psutil.wait_procs(processes, STOP_TIMEOUT_S)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def pids(self) -> list[int]:
        """Return the process ids of controller and engines, and of their children."""
        return [process.pid for process in self._processes()]

    def _processes(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for launcher in (self._cluster.controller, self._cluster.engine_set):
            with contextlib.suppress(psutil.NoSuchProcess):
                if launcher is not None and launcher.pid > 0:
                    first = psutil.Process(launcher.pid)
                    found += [*first.children(recursive=True), first]
        return found


def remove_stale() -> None:
    """Remove the folders of kernels that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            _clear(folder)


def _clear(folder: Path) -> None:
    """End the children of a killed controller, and remove what killed engines have left."""
    end_ours(folder.name, CONTROLLER)
    PoolFolder(folder).remove()


def controller_arguments(engines: int, folder: str) -> list[str]:
    """Return the controller's arguments. Its timeouts are long, since many engines on few cores answer late."""
    return [
        # the folder is also in the environment; here it identifies the controller's children
        f"--profile-dir={folder}",
        "--IPController.enable_curve=True",
        f"--IPController.registration_timeout={patience(engines)}",
        f"--HeartMonitor.period={HEARTBEAT_MS}",
        f"--HeartMonitor.max_heartmonitor_misses={patience(engines)}",
    ]


def settings(engines: int, folder: str) -> Any:
    """Return the launchers' configuration: environment of all ranks, and deaths that do not end the other ranks."""
    from traitlets.config import Config

    options = {
        "PYTHONDONTWRITEBYTECODE": "",  # empty, because launchers cannot remove a variable of the kernel
        **mpiexec.environment(),
        **kept_in(shared(Path(folder))),
        "IPYTHONDIR": folder,  # not the user's folder, so that the user's start-up files are not executed
    }
    config = Config()
    config.LocalControllerLauncher.environment = options
    config.LocalControllerLauncher.controller_cmd = die_with_parent_argv(
        "TERM", sys.executable, "-P", "-m", CONTROLLER
    )
    set_ = config.MPIEngineSetLauncher
    set_.environment = dict(options)
    set_.mpi_cmd = die_with_parent_argv("KILL", *mpiexec.outside_jobs(), mpiexec.find_mpiexec())
    set_.mpi_args = ["--with-ft", "ulfm"]
    set_.engine_cmd = die_with_parent_argv("KILL", sys.executable, "-P", "-m", "ipyparallel.engine")
    waits = ("timeout", "max_heartbeat_misses")
    set_.engine_args = [f"--IPEngine.{name}={patience(engines)}" for name in waits]
    return config

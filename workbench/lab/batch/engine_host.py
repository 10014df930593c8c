"""Engines of ipyparallel on one host: start them, replace dead ones, and end them with the client.

Through a gateway, `main` receives the controller's connection file, and ends when its input is closed. In a job,
`python -P -m workbench.lab.batch.engine_host FILE` runs one engine, which ends with the job, or without its controller.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import psutil

from workbench.mpi.launch import mpiexec
from workbench.mpi.launch.processes import die_with_parent_argv

ENGINE_MODULE = "ipyparallel.engine"
POLL_INTERVAL_S = 0.5
# after this number of successive engines that died within QUICK_S of their start, no further one is started
MAX_QUICK_DEATHS, QUICK_S = 5, 5.0
# s for which an engine may be stopped; soon after, the controller counts it as dead for ever
MAX_AWAY_S = 13.0
# s within which an engine must register; missed heartbeats after which an engine ends
REGISTRATION_S, MAX_MISSED_BEATS = 120, 40
# prefixes of variables by which MPI in a run would take its process for a rank
_LAUNCHERS = ("OMPI_", "PMIX_", "PRTE_", "PMI_")


def main(input: IO[bytes], output: IO[bytes], fields: dict[str, Any]) -> None:
    """Run engines until the input ends. `fields`: `connection` of the controller, as text, and number of `engines`."""
    ended = Event()
    Thread(target=_await_end, args=(input, ended), daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="workbench-engine-") as folder:
        file = Path(folder) / "connection.json"
        file.touch(mode=0o600)
        file.write_text(fields["connection"])
        keep(file, int(fields["engines"]), ended, float(fields.get("away", MAX_AWAY_S)))


def _await_end(input: IO[bytes], ended: Event) -> None:
    with suppress(OSError, ValueError):
        while input.read(1):
            pass
    ended.set()


def keep(connection: Path, engines: int, ended: Event, away: float = MAX_AWAY_S) -> None:
    """Keep engines running until `ended` is set, or until they die right after their start.

    away: s for which an engine may be stopped before another one replaces it.
    """
    running = [_Engine(connection, away) for _ in range(engines)]
    try:
        while not ended.wait(POLL_INTERVAL_S) and _kept(running):
            pass
    finally:
        for engine in running:
            engine.end()


def _kept(engines: list[_Engine]) -> bool:
    """Replace engines that have ended. Return whether any engine runs."""
    running = [engine.keep() for engine in engines]
    return any(running)


class _Engine:
    """One engine, which is replaced when it dies."""

    def __init__(self, connection: Path, away: float) -> None:
        self.connection, self.away, self.quick = connection, away, 0
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-P", "-m", ENGINE_MODULE, f"--file={self.connection}"]
        command += [
            f"--IPEngine.timeout={REGISTRATION_S}",
            f"--IPEngine.max_heartbeat_misses={MAX_MISSED_BEATS}",
        ]
        # IPython's start-up files of the user are not executed
        environment = {name: it for name, it in os.environ.items() if not name.startswith(_LAUNCHERS)}
        environment |= {**dict.fromkeys(mpiexec.THREADS, "1"), "IPYTHONDIR": str(self.connection.parent)}
        null = subprocess.DEVNULL
        argv = die_with_parent_argv("KILL", *command)
        self.process = subprocess.Popen(argv, stdin=null, stdout=null, env=environment)
        self.begun = self.running = time.monotonic()

    def _was_away(self) -> bool:
        """Return whether the engine runs again after it was stopped for too long."""
        if psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED:
            return False
        away, self.running = time.monotonic() - self.running, time.monotonic()
        return away > self.away

    def keep(self) -> bool:
        """Start the engine again if it has ended, or was stopped for too long. Return whether it runs."""
        with suppress(psutil.NoSuchProcess):
            if self.process.poll() is None and not self._was_away():
                return True
        self.end()
        self.quick = self.quick + 1 if time.monotonic() - self.begun < QUICK_S else 0
        if self.quick >= MAX_QUICK_DEATHS:
            return False
        self._start()
        return True

    def end(self) -> None:
        """Kill the engine. Its kernels end with it."""
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    keep(Path(sys.argv[1]), 1, Event())

"""A temporary PBS on this machine: three virtual nodes, and stand-ins for qsub, qstat and qdel in one folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.clusters import pbs_commands
from tests.support.clusters.pbs_commands import NODES, TASKS

PATIENCE = 240.0  # s, on a loaded machine
RSH = """#!/bin/sh
while :; do case "$1" in -*) shift;; *) break;; esac; done
host=$1; shift
exec env -i HOME="$HOME" PATH=/usr/bin:/bin PBS_JOBID="$PBS_JOBID" \\
  unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
"""
COMMAND = '#!/bin/sh\nexec {python} {file} {folder} {name} "$@"\n'


def missing() -> str | None:
    """Return why a PBS is impossible here, or None."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return "a throw-away PBS needs unshare (util-linux) and root: every node has its host's name"
    return None


class PbsMachine:
    """The stand-ins, and queries about their jobs. Commands are found by PATH."""

    nodes, tasks = NODES, TASKS

    def __init__(self, folder: Path, flavour: str = "pbs") -> None:
        self.folder, self.flavour = folder, flavour
        self.environment = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def up(self) -> None:
        """Write the commands."""
        for name in ("bin", "jobs"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "flavour").write_text(self.flavour)
        fields = {"python": sys.executable, "file": pbs_commands.__file__, "folder": self.folder}
        for name in ("qsub", "qstat", "qdel"):
            self._program(name, COMMAND.format(**fields, name=name))
        self._program("rsh", RSH)

    def _program(self, name: str, text: str) -> None:
        (self.folder / "bin" / name).write_text(text)
        (self.folder / "bin" / name).chmod(0o755)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the lines of a cluster file."""
        return {"kind": "pbs", "rsh": str(self.folder / "bin" / "rsh")}

    @property
    def variables(self) -> dict[str, str]:
        """Return the variables by which commands are found."""
        return {"PATH": self.environment["PATH"]}

    def call(self, *command: str) -> str:
        """Run a command. Return its output, or raise an error with it."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def jobs(self) -> list[str]:
        """Return the jobs that are queued or running."""
        server = pbs_commands.Server(self.folder)
        return [f"{job['number']}.{server.host}" for job in server.jobs() if job["state"] not in "CF"]

    settled = jobs

    def cancel(self, job: str) -> None:
        """End a job from outside."""
        self.call("qdel", job)

    def take(self) -> str:
        """Submit a foreign job that has all nodes."""
        script = self.folder / "foreign.sh"
        lines = (f"-l nodes={NODES}:ppn={TASKS}", "-l walltime=0:10:00", "-N foreign")
        script.write_text("".join(f"#PBS {line}\n" for line in lines) + "exec sleep 600\n")
        return self.call("qsub", str(script)).strip()

    def down(self) -> None:
        """End the jobs. Nothing is left when this returns."""
        for job in self.jobs():
            self.cancel(job)
        until = time.monotonic() + PATIENCE
        while self.jobs() and time.monotonic() < until:
            time.sleep(0.1)

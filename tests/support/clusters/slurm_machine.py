"""A temporary Slurm on this machine: three virtual nodes from Debian's packages (slurm-wlm, munge).

All files are in one folder, and all ports are on loopback. No systemd, cgroups or accounting are needed. The start
takes about a second.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from workbench.mpi.launch.processes import is_alive

NODES, TASKS = 3, 3  # virtual nodes, and tasks on each
PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "squeue", "scancel", "sinfo", "scontrol", "unshare")
PATIENCE = 240.0  # s, on a loaded machine
START = (
    # in a separate UTS namespace, so that each node has its own host name
    'hostname "$0" && exec slurmd -f "$1" -N "$0"'
)

CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=2
OverTimeLimit=0
MinJobAge=300
SchedulerParameters=sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=debug Nodes=n[1-{count}] Default=YES MaxTime=60 State=UP PriorityTier=1
PartitionName=short Nodes=n[1-{count}] MaxTime=1 State=UP PriorityTier=1
PartitionName=urgent Nodes=n[1-{count}] MaxTime=1 State=UP PriorityTier=9
"""
NODE = (
    "NodeName=n{i} NodeAddr=127.0.0.1 Port={port} CPUs={tasks} Boards=1 SocketsPerBoard=1"
    " CoresPerSocket={tasks} ThreadsPerCore=1 RealMemory=1000 State=UNKNOWN"
)


def missing() -> str | None:
    """Return why a Slurm is impossible here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install --no-install-recommends slurm-wlm munge"
    if os.geteuid() != 0:
        return "a throw-away Slurm needs root: slurmd starts jobs as their users"
    return None


class SlurmMachine:
    """Slurm's daemons, and queries about its jobs. The variable SLURM_CONF names its configuration for commands."""

    fields: ClassVar[dict[str, Any]] = {"kind": "slurm"}  # lines of a cluster file
    flavour = "slurm"

    def __init__(self, folder: Path, nodes: int = NODES, tasks: int = TASKS) -> None:
        self.folder, self.nodes, self.tasks = folder, nodes, tasks
        self.conf = folder / "slurm.conf"
        self.variables = {"SLURM_CONF": str(self.conf)}  # variables by which commands find it
        self.environment = {**os.environ, **self.variables}

    def up(self) -> None:
        """Start the daemons and wait until all nodes are idle."""
        for name in ("state", "log", "munge", *(f"spool/n{i + 1}" for i in range(self.nodes))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "munge").chmod(0o711)
        self._munge()
        self._configure()
        self.call("slurmctld", "-f", str(self.conf))
        for i in range(self.nodes):
            self.call("unshare", "--uts", "sh", "-c", START, f"n{i + 1}", str(self.conf))
        self.await_idle()

    def _munge(self) -> None:
        folder = self.folder / "munge"
        (folder / "key").write_bytes(secrets.token_bytes(1024))
        (folder / "key").chmod(0o600)
        files = {"key": "key", "socket": "sock", "pid": "pid", "log": "log", "seed": "seed"}
        texts = [
            f"--{name}-file={folder / file}" if name != "socket" else f"--socket={folder / file}"
            for name, file in files.items()
        ]
        self.call("munged", "--force", *texts)

    def _configure(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(self.nodes + 1)
        nodes = [NODE.format(i=i + 1, port=ports[i], tasks=self.tasks) for i in range(self.nodes)]
        fields = {"folder": self.folder, "user": getpass.getuser(), "count": self.nodes}
        self.conf.write_text(CONF.format(host=host, port=ports[-1], nodes="\n".join(nodes), **fields))

    def call(self, *command: str) -> str:
        """Run a command of Slurm. Return its output, or raise an error with it."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def await_idle(self) -> None:
        """Wait until every node accepts jobs. Set nodes that are down to resume."""
        for node in self.call("sinfo", "-h", "-N", "-p", "debug", "-t", "down", "-o", "%N").split():
            self.call("scontrol", "update", f"nodename={node}", "state=resume")
        until = time.monotonic() + PATIENCE
        while self.call("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D").split() != [str(self.nodes)]:
            if time.monotonic() > until:
                logs = "\n".join(path.read_text()[-2000:] for path in (self.folder / "log").iterdir())
                raise RuntimeError(f"nodes are not idle:\n{self.call('sinfo')}\n{logs}")
            time.sleep(0.1)

    def jobs(self) -> list[str]:
        """Return the jobs that are queued or running."""
        return self.call("squeue", "-h", "-o", "%i").split()

    def settled(self) -> list[str]:
        """Return the jobs, once no job of an earlier test is completing."""
        until = time.monotonic() + PATIENCE
        while self.call("squeue", "-h", "-t", "COMPLETING", "-o", "%i").split():
            assert time.monotonic() < until, self.call("squeue")
            time.sleep(0.05)
        return self.jobs()

    def cancel(self, job: str) -> None:
        """Cancel a job."""
        self.call("scancel", job)

    def take(self) -> str:
        """Submit a foreign job that has all nodes."""
        wish = (f"--nodes={NODES}", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
        return self.call("sbatch", "--parsable", *wish).strip()

    def down(self) -> None:
        """End the jobs, then the daemons."""
        for job in self.jobs():
            self.cancel(job)
        until = time.monotonic() + PATIENCE
        while self.jobs() and time.monotonic() < until:
            time.sleep(0.1)
        names = [*(f"slurmd-n{i + 1}.pid" for i in range(self.nodes)), "slurmctld.pid", "munge/pid"]
        for pid in [int(file.read_text()) for name in names if (file := self.folder / name).is_file()]:
            end(pid)


def end(pid: int) -> None:
    """Send TERM to a process, wait, then send KILL."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        if is_alive(pid):
            os.kill(pid, sig)
        until = time.monotonic() + 10.0
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Return free ports on loopback."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports

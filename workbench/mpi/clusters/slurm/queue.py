"""Calls of Slurm's commands, and the patience between them."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from workbench.core.base.errors import ClusterError, quoted, reason
from workbench.mpi.clusters.slurm.job import COLUMNS, STATE, Job, queue
from workbench.mpi.launch.processes import awaited

PATIENCE = 120.0  # s for one command: a busy controller takes its time
SOON, RUNNING, WAITING = 1.0, 5.0, 15.0  # s between looks at a job: at first, while it runs, while it waits
SLOWER = 1.3  # times, each
POLL_INTERVAL_S = 0.5  # s, while somebody waits for a job's end
NOT_SLURM = "it answered with something that Slurm does not print"
KEPT = ("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TZ", "SLURM_CONF")


class CommandRejected(ClusterError):
    """A command of Slurm has failed; `said`: what it said."""

    def __init__(self, command: str, said: str) -> None:
        super().__init__(f"{command}: {quoted(said) or 'failed without a word'}")
        self.said = said


def call(*command: str) -> str:
    """Run a command of Slurm on this machine; returns its output, raises `CommandRejected`, a `ClusterError`.

    sbatch hands its environment on to the job and lets SBATCH_ variables overrule the script, so it gets to see neither
    secrets nor settings of the caller.
    """
    kept = {name: os.environ[name] for name in KEPT if name in os.environ} | {"LC_ALL": "C.UTF-8"}
    how: Any = {"env": kept, "stdin": subprocess.DEVNULL, "capture_output": True}
    try:  # a session of its own: Ctrl-C is not for it
        done = subprocess.run(command, **how, timeout=PATIENCE, start_new_session=True)
    except FileNotFoundError:
        why = "not found on this machine; start runs on the cluster's login host, or name that as login"
        raise ClusterError(f"{command[0]}: {why}") from None
    except OSError as error:
        raise ClusterError(f"{command[0]}: cannot be run on this machine ({reason(error)})") from None
    except subprocess.TimeoutExpired:
        raise CommandRejected(command[0], f"no answer within {PATIENCE:g} s") from None
    output, errors = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    if done.returncode:
        raise CommandRejected(command[0], errors + output)
    return output


def jobs(*which: str) -> list[Job]:
    """Return the jobs that squeue lists, by its own words for which; raise `CommandRejected` for other output."""
    if (found := queue(answer := call("squeue", "-h", "-o", COLUMNS, *which))) or not answer.strip():
        return found
    raise CommandRejected("squeue", f"{NOT_SLURM} ({quoted(answer, 100)})")


def look_up(number: str) -> Job:
    """One job, also after its end; raises `CommandRejected` if Slurm cannot be asked."""
    try:
        found = jobs("-t", "all", "-j", number)
    except CommandRejected as refused:
        if "Invalid job id" not in refused.said:
            raise
        found = []
    return found[0] if found else remembered(number)


def remembered(number: str) -> Job:
    """A job that has left the queue's memory some minutes after its end, from the accounts where they are kept."""
    try:
        words = call("sacct", "-n", "-X", "-P", "-o", "State", "-j", number).split()
    except ClusterError:  # no accounts
        words = []
    known = words and re.fullmatch(STATE, words[0])  # more words may follow: CANCELLED by 1000
    return Job(number, words[0] if known else "FORGOTTEN")


def ours(name: str) -> list[Job]:
    """Jobs of this user and a name that are queued or run."""
    return [job for job in jobs("-u", str(os.getuid()), "-n", name) if not job.final]


def node_names(text: str) -> list[str]:
    """Return names of nodes, written out: n[1-3] is n1, n2, n3; raise `CommandRejected` where scontrol lists others."""
    names = (answer := call("scontrol", "show", "hostnames", text)).split() if text else []
    if text and not (names and all(re.fullmatch(r"[\w.-]+", name) for name in names)):
        raise CommandRejected("scontrol", f"{NOT_SLURM} ({quoted(answer, 100)})")
    return names


class JobStatusCache:
    """A job of ours, looked up no more often than is polite: less and less while nothing changes."""

    def __init__(self, number: str, ask: Callable[[str], Job] = look_up) -> None:
        self.number = number
        self.trouble = ""  # what Slurm answered instead, last time
        self.never: str | None = None  # why it will never start, once Slurm has said so twice
        self._ask, self._every, self._asked = ask, SOON, float("-inf")
        self._known = Job(number, "PENDING")

    def job(self, fresh: bool = False) -> Job:
        """What is known of it: at most some seconds old. As long as Slurm does not answer, what was known before."""
        now = time.monotonic()
        if fresh or (now - self._asked > self._every and not self._known.final):
            self._asked = now
            try:
                before, self._known, self.trouble = self._known, self._ask(self.number), ""
            except ClusterError as error:
                self.trouble = str(error)
                return self._known
            self.never = self._known.never() if before.never() else None
            most = WAITING if self._known.waits else RUNNING
            self._every = SOON if self._known.state != before.state else min(self._every * SLOWER, most)
        return self._known

    def await_end(self, seconds: float) -> bool:
        """Wait until nothing of it is left on any node, so long at most; says whether that is so."""
        return awaited(lambda: self.job(fresh=True).final, seconds, POLL_INTERVAL_S)

    def cancel(self, seconds: float) -> None:
        """End it; raises `ClusterError` unless squeue says that it has gone."""
        if not self.job(fresh=True).final:
            call("scancel", self.number)
        if not self.await_end(seconds):
            raise ClusterError(
                f"job {self.number}: still there {seconds:g} s after scancel {self.trouble or self._known.state};"
                f" ask squeue -j {self.number}"
            )


@cache
def status_of_job(number: str) -> JobStatusCache:
    """The one ticket of a job in this process, so that nobody asks Slurm more often than it."""
    return JobStatusCache(number)

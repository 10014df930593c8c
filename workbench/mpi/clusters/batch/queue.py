"""Calls of a batch system's commands, and the intervals between them."""

import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from workbench.core.base.errors import ClusterError, quoted, reason
from workbench.mpi.clusters.batch.job import Job
from workbench.mpi.launch.processes import awaited

COMMAND_TIMEOUT_S = 120.0  # s in which a command must end; it is long because busy controllers answer late
FIRST_INTERVAL_S, RUNNING_INTERVAL_S, WAITING_INTERVAL_S = 1.0, 5.0, 15.0  # s between queries of a job
INTERVAL_FACTOR = 1.3  # growth of the interval with each query
POLL_INTERVAL_S = 0.5  # s between queries while waiting for a job's end
PASSED_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "TZ"),
    *("SLURM_CONF", "PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT"),  # configuration of the batch system
)


class CommandRejected(ClusterError):
    """Failed command of the batch system. `answer`: what the command printed."""

    def __init__(self, command: str, answer: str) -> None:
        super().__init__(f"{command}: {quoted(answer) or 'failed without a message'}")
        self.answer = answer


class UnknownOutput(CommandRejected):
    """Output that no version of the batch system prints, so it comes from another program."""

    def __init__(self, command: str, system: str, output: str) -> None:
        answer = f"it answered with something that {system} does not print ({quoted(output, 100)})"
        super().__init__(command, answer)


def call(*command: str) -> str:
    """Run a command of the batch system on this machine. Return its output.

    sbatch copies its environment into the job, and SBATCH_ variables overrule the script. The command therefore gets
    only `PASSED_VARIABLES`, without secrets and settings of the caller.

    Raises `ClusterError`, or its subclass `CommandRejected` with the command's output.
    """
    variables = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ} | {
        "LC_ALL": "C.UTF-8"
    }
    how: Any = {"env": variables, "stdin": subprocess.DEVNULL, "capture_output": True}
    try:  # a new session keeps Ctrl-C from the command
        done = subprocess.run(command, **how, timeout=COMMAND_TIMEOUT_S, start_new_session=True)
    except FileNotFoundError:
        why = "not found on this machine; start runs on the cluster's login host, or name that as login"
        raise ClusterError(f"{command[0]}: {why}") from None
    except OSError as error:
        raise ClusterError(f"{command[0]}: cannot be run on this machine ({reason(error)})") from None
    except subprocess.TimeoutExpired:
        raise CommandRejected(command[0], f"no answer within {COMMAND_TIMEOUT_S:g} s") from None
    output, errors = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    if done.returncode:
        raise CommandRejected(command[0], errors + output)
    return output


class JobStatusCache:
    """Cached status of a job. The batch system is queried less and less often while nothing changes.

    `look_up` and `cancel` are the methods of the job's cluster.
    """

    def __init__(
        self, number: str, look_up: Callable[[str], Job], cancel: Callable[[str], object] = call
    ) -> None:
        self.number = number
        self.trouble = ""  # error of the last query, "" if it succeeded
        # why the job can never start, after two successive queries with this result
        self.never: str | None = None
        self._look_up, self._cancel = look_up, cancel
        self._every, self._asked = FIRST_INTERVAL_S, float("-inf")
        self._known = Job(number, "PENDING")

    def job(self, fresh: bool = False) -> Job:
        """Return the status, at most `_every` seconds old, or older while the batch system does not answer."""
        now = time.monotonic()
        if fresh or (now - self._asked > self._every and not self._known.final):
            self._asked = now
            try:
                before, self._known, self.trouble = self._known, self._look_up(self.number), ""
            except ClusterError as error:
                self.trouble = str(error)
                return self._known
            self.never = self._known.never() if before.never() else None
            longest = WAITING_INTERVAL_S if self._known.waits else RUNNING_INTERVAL_S
            changed = self._known.state != before.state
            self._every = FIRST_INTERVAL_S if changed else min(self._every * INTERVAL_FACTOR, longest)
        return self._known

    def await_end(self, seconds: float) -> bool:
        """Wait up to `seconds` until the job has left all nodes. Return whether it has."""
        return awaited(lambda: self.job(fresh=True).final, seconds, POLL_INTERVAL_S)

    def cancel(self, seconds: float) -> None:
        """Cancel the job. Raises `ClusterError` if it is still listed after `seconds`."""
        if not self.job(fresh=True).final:
            try:
                self._cancel(self.number)
            except CommandRejected:
                if not self.job(fresh=True).over:  # unless the job has ended in the meantime
                    raise
        if not self.await_end(seconds):
            raise ClusterError(
                f"job {self.number}: is still there {seconds:g} s after it was cancelled"
                f" ({self.trouble or self._known.state.lower()}); ask the batch system for it"
            )

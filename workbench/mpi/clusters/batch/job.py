"""Job of any batch system: its script, its state, and why it ended. No process is started here.

The states have the names that Slurm gives them (`man squeue`, JOB STATE CODES). Other kinds translate theirs.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workbench.core.base.errors import quoted
from workbench.core.base.settings import SettingError

TIME_PATTERN = r"(?:\d{1,9}-)?\d{1,9}(?::\d{1,2}){0,2}"  # minutes, hours:minutes:seconds, days-hours, ...
FORGOTTEN = "FORGOTTEN"  # state of a job that the batch system no longer lists
END_TEXTS = {  # last state of a job -> what happened
    "BOOT_FAIL": "a node did not start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "it had ended by itself",
    "DEADLINE": "it reached its deadline",
    "FAILED": "its script failed",
    FORGOTTEN: "it is over, and the batch system no longer lists it",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "a process took more memory than the job may (ask for more by a directive)",
    "PREEMPTED": "a job of higher priority took its nodes",
    "TIMEOUT": "it reached its time limit (raise time)",
}
# States of a waiting job; those that begin with REQUEUE are waiting as well.
_WAITING_STATES = ("PENDING", "CONFIGURING", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNNING_STATES = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")


@dataclass(frozen=True)
class JobSpec:
    """Command and resources of a job. `folder`: folder of its log, on the shared file system."""

    name: str
    folder: str
    command: tuple[str, ...]
    nodes: int
    tasks: int  # number of tasks per node
    path: str = ""  # folder with the package, if the job's Python does not have it


def script(spec: JobSpec, options: Iterable[str], modules: Sequence[str] = ()) -> str:
    """Return the text of the job's script. `options`: its lines for the batch system.

    >>> spec = JobSpec("pool", "/shared/pool", ("python3", "-m", "this"), nodes=2, tasks=4)
    >>> print(script(spec, ["#SBATCH --nodes=2"]))
    #!/bin/bash
    #SBATCH --nodes=2
    set -euo pipefail
    exec >>/shared/pool/log.txt 2>&1
    exec python3 -m this
    <BLANKLINE>
    """
    lines = ["#!/bin/bash", *options, "set -euo pipefail"]
    lines += [f"exec >>{shlex.quote(f'{spec.folder}/log.txt')} 2>&1", *_loading(modules)]
    if spec.path:
        lines.append(f"export PYTHONPATH={shlex.quote(spec.path)}${{PYTHONPATH:+:$PYTHONPATH}}")
    return "\n".join([*lines, f"exec {shlex.join(spec.command)}", ""])


def _loading(modules: Sequence[str]) -> list[str]:
    """Return lines that load modules. The system's definition of `module` may use unset variables."""
    if not modules:
        return []
    loads = [f"module load {shlex.quote(name)}" for name in modules]
    return ["set +eu", "type module >/dev/null 2>&1 || source /etc/profile", "set -e", *loads, "set -u"]


def seconds(time: str) -> float:
    """Return a time in Slurm's format as seconds. UNLIMITED and other words are infinite.

    >>> seconds("90"), seconds("1:30"), seconds("2:00:00"), seconds("1-12"), seconds("1-0:30")
    (5400.0, 90.0, 7200.0, 129600.0, 88200.0)
    """
    if not re.fullmatch(TIME_PATTERN, time, re.ASCII):
        return float("inf")
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return 86400.0 * int(days or 0) + sum(n * unit for n, unit in zip(parts, units, strict=False))


def clock(seconds: float) -> str:
    """Return a time as hours:minutes:seconds.

    >>> clock(3723)
    '1:02:03'
    """
    if seconds == float("inf"):
        return "unlimited time"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


@dataclass(frozen=True)
class Job:
    """State of one job, as the batch system lists it."""

    number: str
    state: str  # state, such as RUNNING or PENDING
    why: str = ""  # why the job waits, in the batch system's words
    left: float = float("inf")  # s until the job's time limit
    used: float = 0.0  # seconds since the job's start
    nodes: int = 0
    cores: int = 0  # sum over all nodes
    names: str = ""  # names of its nodes, to be expanded by `BatchCluster.node_names`
    start: str = ""  # when it started or is expected to start, if known
    hopeless: str = ""  # fields of the cluster's file to change if the job can never start, else empty

    @property
    def waits(self) -> bool:
        """Whether the job is in the queue."""
        return self.state in _WAITING_STATES or self.state.startswith("REQUEUE")

    @property
    def over(self) -> bool:
        """Whether the job's processes have ended."""
        return not self.waits and self.state not in _RUNNING_STATES

    @property
    def final(self) -> bool:
        """Whether the job has left its nodes."""
        return self.over and self.state != "COMPLETING"

    def waiting(self) -> str:
        """Return the reason of the wait, in a few words."""
        when = f", expected to start at {self.start}" if self.start else ""
        return f"job {self.number} waits in the queue ({self.why or 'no reason given'}{when})"

    def never(self) -> str | None:
        """Return why the job can never start, in one sentence. None if it may start."""
        if not (self.waits and self.hopeless):
            return None
        why = f"job {self.number} could never start ({self.why}); ask for what the queue offers"
        return f"{self.hopeless}: {why}"

    def ending(self) -> str:
        """Return why the job is over, in one sentence."""
        return f"job {self.number}: {END_TEXTS.get(self.state, f'it ended ({self.state})')}"


def refusal(
    system: str, text: str, meanings: Iterable[tuple[str, str]], fields: dict[str, object]
) -> SettingError:
    """Return the refusal of a batch system as one sentence, with the field to change.

    `meanings`: pairs of a message's pattern and the field that the message is about.
    """
    lines = [re.sub(r"^(.*error: |\w+: )", "", line).strip(" .") for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("Try ", "usage"))]
    for pattern, field in meanings:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                where = f"{field} = {fields.get(field)!r}"
                return SettingError(f"{where}: {system} refuses the job ({quoted(line.lower(), 200)})")
    return SettingError(f"{system} refuses the job ({quoted([*lines, 'it gave no reason'][0], 200)})")

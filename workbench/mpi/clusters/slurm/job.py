"""Slurm's words: a job's script, the answers of sbatch and squeue, and why a job ended. No process is started here.

Tried with Slurm 22.05; the fields and reasons are those of `man squeue` (JOB REASON CODES, JOB STATE CODES).
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.core.base.errors import quoted
from workbench.core.base.settings import SettingError

# For squeue -o: number, state, reason, time left, time used, nodes, cores, their names, start.
COLUMNS = "%i|%T|%r|%L|%M|%D|%C|%N|%S"
NUMBER, STATE = r"\d[\w.+\[\],%-]*", r"[A-Z][A-Z_]+"  # of a job, as Slurm writes them
TIME = r"(?:\d{1,9}-)?\d{1,9}(?::\d{1,2}){0,2}"  # minutes, hours:minutes:seconds, days-hours, ...
# What the script sets. sbatch takes any beginning of an option's name that is clear, so those are refused as well.
OURS = (
    *("account", "array", "chdir", "error", "export", "help", "input", "job-name", "nodes", "no-requeue"),
    *("ntasks", "ntasks-per-node", "output", "parsable", "partition", "requeue", "test-only", "time"),
    *("version", "wait", "wrap"),
)
NEVER = {  # reasons that no waiting takes away -> the field that would
    "AccountNotAllowed": "account",
    "BadConstraints": "directives",
    "DependencyNeverSatisfied": "directives",
    "InvalidAccount": "account",
    "InvalidQOS": "directives",
    "PartitionConfig": "partition, nodes, tasks_per_node or time",
    "PartitionNodeLimit": "nodes",
    "PartitionTimeLimit": "time",
    "QOSNotAllowed": "directives",
}
REFUSALS = (  # what sbatch says -> the field that it means
    (r"account", "account"),
    (r"partition", "partition"),
    (r"time limit|--time|time specification", "time"),
    (r"node count|node configuration|more processors|too many tasks|cpu count", "nodes"),
    (r"option|qos|feature|gres|generic resource|constraint|reservation|licen|memory|depend", "directives"),
)
ENDINGS = {  # a job's last state -> what happened to it
    "BOOT_FAIL": "a node did not start",
    "CANCELLED": "it was cancelled",
    "COMPLETED": "it had ended by itself",
    "DEADLINE": "it reached its deadline",
    "FAILED": "its script failed",
    "FORGOTTEN": "it is over, and Slurm no longer knows why",
    "NODE_FAIL": "a node failed",
    "OUT_OF_MEMORY": "a process took more memory than the job may (ask for more by a directive, e.g. --mem=8G)",
    "PREEMPTED": "a job of higher priority took its nodes",
    "TIMEOUT": "it reached its time limit (raise time)",
}
_WAITS = ("PENDING", "CONFIGURING", "SPECIAL_EXIT", "RESV_DEL_HOLD")  # and all that begins with REQUEUE
_GOES = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")


@dataclass(frozen=True)
class JobSpec:
    """What a job asks for. `folder`: where its log goes, a path on the shared file system."""

    name: str
    folder: str
    command: tuple[str, ...]
    time: str
    nodes: int
    tasks: int  # on each node
    partition: str | None = None
    account: str | None = None
    modules: tuple[str, ...] = ()
    directives: tuple[str, ...] = ()
    path: str = ""  # folder with the package, where the job's Python does not have it


def script(spec: JobSpec) -> str:
    """Text of the job's script.

    A job that lost a node is not put into the queue again: its ranks are gone, and the run goes on from its checkpoint
    elsewhere.

    >>> print(script(JobSpec("pool", "/shared/pool", ("python3", "-m", "this"), "1:00:00", 2, 4)))
    #!/bin/bash
    #SBATCH --job-name=pool
    #SBATCH --nodes=2
    #SBATCH --ntasks-per-node=4
    #SBATCH --time=1:00:00
    #SBATCH --output=/shared/pool/log.txt
    #SBATCH --open-mode=append
    #SBATCH --no-requeue
    set -euo pipefail
    exec python3 -m this
    <BLANKLINE>
    """
    options = {"job-name": spec.name, "partition": spec.partition, "account": spec.account}
    options |= {"nodes": str(spec.nodes), "ntasks-per-node": str(spec.tasks), "time": spec.time}
    options |= {"output": f"{spec.folder}/log.txt", "open-mode": "append"}
    lines = [f"--{name}={value}" for name, value in options.items() if value is not None]
    lines = [f"#SBATCH {line}" for line in (*lines, "--no-requeue", *spec.directives)]
    lines = ["#!/bin/bash", *lines, "set -euo pipefail", *_loading(spec.modules)]
    if spec.path:
        lines.append(f"export PYTHONPATH={shlex.quote(spec.path)}${{PYTHONPATH:+:$PYTHONPATH}}")
    return "\n".join([*lines, f"exec {shlex.join(spec.command)}", ""])


def _loading(modules: Sequence[str]) -> list[str]:
    """Lines that load modules: files of the system that define `module` may use variables that are not set."""
    if not modules:
        return []
    loads = [f"module load {shlex.quote(name)}" for name in modules]
    return ["set +eu", "type module >/dev/null 2>&1 || source /etc/profile", "set -e", *loads, "set -u"]


def check_directive(text: str) -> str:
    """A further line for sbatch, as it is; raises ValueError with a reason for one that cannot be."""
    if not re.fullmatch(r"--[a-z][a-z0-9-]*([= ][^\x00-\x1f\x7f#]+)?", text):
        wanted = "write one option of sbatch, in one line that begins with --, e.g. '--qos=high'"
        raise ValueError(f"{text!r}: {wanted}")
    name = re.split("[= ]", text[2:])[0]
    if ours := [own for own in OURS if own.startswith(name)]:
        why = f"--{ours[0]} is set by the workbench; use the cluster's fields, or leave it"
        raise ValueError(f"{text!r}: {why}")
    return text


def seconds(time: str) -> float:
    """Slurm's way to write a time, in seconds; infinite for UNLIMITED and the like.

    >>> seconds("90"), seconds("1:30"), seconds("2:00:00"), seconds("1-12"), seconds("1-0:30")
    (5400.0, 90.0, 7200.0, 129600.0, 88200.0)
    """
    if not re.fullmatch(TIME, time, re.ASCII):
        return float("inf")
    days, dash, rest = time.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return 86400.0 * int(days or 0) + sum(n * unit for n, unit in zip(parts, units, strict=False))


@dataclass(frozen=True)
class Job:
    """What squeue tells of one job."""

    number: str
    state: str  # RUNNING, PENDING, ...
    why: str = ""  # Slurm's reason: Resources, Priority, ...
    left: float = float("inf")  # s until its time limit
    used: float = 0.0  # s that it has run
    nodes: int = 0
    cores: int = 0  # on all nodes
    names: str = ""  # of its nodes, as Slurm writes them: n[1-3]
    start: str = ""  # when it began or is expected to, if known

    @property
    def waits(self) -> bool:
        """Is it in the queue?"""
        return self.state in _WAITS or self.state.startswith("REQUEUE")

    @property
    def over(self) -> bool:
        """Can it do nothing any more?"""
        return not self.waits and self.state not in _GOES

    @property
    def final(self) -> bool:
        """Has it left its nodes?"""
        return self.over and self.state != "COMPLETING"

    def waiting(self) -> str:
        """What it waits for, in a few words."""
        when = f", expected to start at {self.start.replace('T', ' ')}" if self.start else ""
        return f"job {self.number} waits in the queue ({self.why or 'no reason given'}{when})"

    def never(self) -> str | None:
        """One sentence if no waiting will help."""
        if not self.waits or self.why not in NEVER:
            return None
        return f"{NEVER[self.why]}: job {self.number} could never start ({self.why}); ask for what the partition offers"

    def ending(self) -> str:
        """One sentence: why the job is over."""
        return f"job {self.number}: {ENDINGS.get(self.state, f'it ended ({self.state})')}"


def queue(text: str) -> list[Job]:
    """The jobs in what `squeue -h -o COLUMNS` printed.

    >>> queue("7|PENDING|Resources|1:00:00|0:00|2|8||N/A")[0].waiting()
    'job 7 waits in the queue (Resources)'
    """
    found = [line.strip().split("|") for line in text.splitlines()]
    rows = [words for words in found if len(words) == COLUMNS.count("|") + 1]
    return [
        _job(*words) for words in rows if re.fullmatch(NUMBER, words[0]) and re.fullmatch(STATE, words[1])
    ]


def _job(number: str, state: str, why: str, left: str, used: str, *more: str) -> Job:
    nodes, cores = (int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0 for text in more[:2])
    names, start = more[2], "" if more[3] in ("N/A", "Unknown") else more[3]
    reason = "" if why == "None" else why
    return Job(number, state, reason, seconds(left), seconds(used), nodes, cores, names, start)


def submitted(text: str) -> str | None:
    r"""The job's number in what `sbatch --parsable` printed (number, or number;cluster), None if there is none.

    >>> submitted("sbatch: some notice\n123;alps\n")
    '123'
    """
    found = re.findall(r"^(\d+)(?:;\S+)?\s*$", text, re.MULTILINE)
    return found[-1] if found else None


def refusal(text: str, fields: dict[str, object]) -> SettingError:
    """What sbatch said no to, as one sentence with the field that it means."""
    lines = [line.partition("error: ")[2] or line.removeprefix("sbatch: ") for line in text.splitlines()]
    lines = [line.strip(" .") for line in lines if line.strip() and not line.startswith("Try ")]
    said = lines[0] if lines else "it gave no reason"
    for pattern, field in REFUSALS:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                where = f"{field} = {fields.get(field)!r}"
                return SettingError(f"{where}: Slurm refuses the job ({quoted(line.lower(), 200)})")
    return SettingError(f"Slurm refuses the job ({quoted(said, 200)})")

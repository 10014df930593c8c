"""Clusters with Slurm's queue: its options, the answers of sbatch, squeue, sacct and scontrol.

Tried with Slurm 22.05. The fields and reasons are those of `man squeue` (JOB REASON CODES, JOB STATE CODES).
"""

import os
import re
from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator
from typing_extensions import override

from workbench.core.base.errors import ClusterError
from workbench.core.base.settings import setting
from workbench.mpi.clusters.batch.job import FORGOTTEN, Job, JobSpec, seconds
from workbench.mpi.clusters.batch.kind import BatchCluster, Name
from workbench.mpi.clusters.batch.queue import CommandRejected, UnknownOutput, call

# Columns of squeue -o: number, state, reason, time left, time used, nodes, cores, names of nodes, start.
COLUMNS = "%i|%T|%r|%L|%M|%D|%C|%N|%S"
# Patterns of a job's number and state, as Slurm writes them.
NUMBER_PATTERN, STATE_PATTERN = r"\d[\w.+\[\],%-]*", r"[A-Z][A-Z_]+"
# Options that the script itself sets, which the user may not. sbatch accepts unambiguous prefixes of names, so these
# are refused, too.
OWN_OPTIONS = (
    *("account", "array", "chdir", "error", "export", "help", "input", "job-name", "nodes", "no-requeue"),
    *("ntasks", "ntasks-per-node", "output", "parsable", "partition", "requeue", "test-only", "time"),
    *("version", "wait", "wrap"),
)
FINAL_REASONS = {  # reason that waiting does not remove -> field to change
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


def check_directive(text: str) -> str:
    """Return a further line for sbatch unchanged. Raises ValueError with the reason for one that is not allowed."""
    if not re.fullmatch(r"--[a-z][a-z0-9-]*([= ][^\x00-\x1f\x7f#]+)?", text):
        wanted = "write one option of sbatch, in one line that begins with --, e.g. '--qos=high'"
        raise ValueError(f"{text!r}: {wanted}")
    name = re.split("[= ]", text[2:])[0]
    if ours := [option for option in OWN_OPTIONS if option.startswith(name)]:
        why = f"--{ours[0]} is set by the workbench; use the cluster's fields, or leave it"
        raise ValueError(f"{text!r}: {why}")
    return text


class Slurm(BatchCluster):
    """Cluster with Slurm's queue. Nodes are allocated when a run starts, and not before."""

    kind = "slurm"
    partition: Name | None = setting(None, "partition; by default Slurm's own choice")
    directives: tuple[Annotated[str, AfterValidator(check_directive)], ...] = setting(
        (), "further options of sbatch, e.g. '--qos=high'"
    )

    system: ClassVar[str] = "Slurm"
    submit_command: ClassVar[tuple[str, ...]] = ("sbatch", "--parsable")
    trial_options: ClassVar[tuple[str, ...]] = ("--test-only",)
    cancel_command: ClassVar[str] = "scancel"
    refusals: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"account", "account"),
        (r"partition", "partition"),
        (r"time limit|--time|time specification", "time"),
        (r"node count|node configuration|more processors|too many tasks|cpu count", "nodes"),
        (
            r"option|qos|feature|gres|generic resource|constraint|reservation|licen|memory|depend",
            "directives",
        ),
    )

    @override
    def options(self, spec: JobSpec) -> list[str]:
        """Return the lines for sbatch. A job that lost a node is not requeued, because its ranks are gone."""
        values = {"job-name": spec.name, "partition": self.partition, "account": self.account}
        values |= {"nodes": str(spec.nodes), "ntasks-per-node": str(spec.tasks), "time": self.time}
        values |= {"output": f"{spec.folder}/log.txt", "open-mode": "append"}
        found = [f"--{name}={value}" for name, value in values.items() if value is not None]
        return [f"#SBATCH {line}" for line in (*found, "--no-requeue", *self.directives)]

    @override
    def number_in(self, output: str) -> str | None:
        r"""Return the number in the output of sbatch --parsable: the number, or number;cluster.

        >>> Slurm(folder="/shared", tasks_per_node=8).number_in("sbatch: some notice\n123;alps\n")
        '123'
        """
        found = re.findall(r"^(\d+)(?:;\S+)?\s*$", output, re.MULTILINE)
        return found[-1] if found else None

    @override
    def look_up(self, number: str) -> Job:
        try:
            found = jobs("-t", "all", "-j", number)
        except CommandRejected as refused:
            if "Invalid job id" not in refused.answer:
                raise
            found = []
        return found[0] if found else from_accounting(number)

    @override
    def listed(self) -> list[Job]:
        return [job for job in jobs("-u", str(os.getuid()), "-n", self.label) if not job.final]

    @override
    def node_names(self, job: Job) -> list[str]:
        """Return the names of a job's nodes: n[1-3] is n1, n2, n3. Raises `CommandRejected` for other output."""
        names = (answer := call("scontrol", "show", "hostnames", job.names)).split() if job.names else []
        if job.names and not (names and all(re.fullmatch(r"[\w.-]+", name) for name in names)):
            raise UnknownOutput("scontrol", self.system, answer)
        return names


def jobs(*which: str) -> list[Job]:
    """Return the jobs that squeue lists. `which`: options of squeue. Raises `CommandRejected` for other output."""
    if (found := queue(answer := call("squeue", "-h", "-o", COLUMNS, *which))) or not answer.strip():
        return found
    raise UnknownOutput("squeue", "Slurm", answer)


def queue(text: str) -> list[Job]:
    """Return the jobs in the output of `squeue -h -o COLUMNS`.

    >>> queue("7|PENDING|Resources|1:00:00|0:00|2|8||N/A")[0].waiting()
    'job 7 waits in the queue (Resources)'
    """
    found = [line.strip().split("|") for line in text.splitlines()]
    rows = [columns for columns in found if len(columns) == COLUMNS.count("|") + 1]
    return [
        _job(*columns)
        for columns in rows
        if re.fullmatch(NUMBER_PATTERN, columns[0]) and re.fullmatch(STATE_PATTERN, columns[1])
    ]


def _job(number: str, state: str, why: str, left: str, used: str, *more: str) -> Job:
    nodes, cores = (int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0 for text in more[:2])
    start = "" if more[3] in ("N/A", "Unknown") else more[3].replace("T", " ")
    reason = "" if why == "None" else why
    known = partial(Job, number, state, reason, seconds(left), seconds(used), nodes, cores)
    return known(more[2], start, FINAL_REASONS.get(why, ""))


def from_accounting(number: str) -> Job:
    """Return a job that squeue no longer lists, some minutes after its end, from sacct if accounting is on."""
    try:
        states = call("sacct", "-n", "-X", "-P", "-o", "State", "-j", number).split()
    except ClusterError:  # accounting is off
        states = []
    # only the first word is the state, as in "CANCELLED by 1000"
    known = states and re.fullmatch(STATE_PATTERN, states[0])
    return Job(number, states[0] if known else FORGOTTEN)

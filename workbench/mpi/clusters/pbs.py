"""Clusters with PBS's queue (PBS Pro, OpenPBS, Torque): its options, and the answers of qsub, qstat and qdel.

Written after the output of PBS Pro 2022 and Torque 6, and tried against a stand-in that prints both.
"""

import re
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import Annotated, ClassVar

from typing_extensions import override

from workbench.core.base.settings import setting
from workbench.mpi.clusters.base import Word, matching
from workbench.mpi.clusters.batch.job import FORGOTTEN, Job, JobSpec, clock, seconds
from workbench.mpi.clusters.batch.kind import BatchCluster, Folder, Name
from workbench.mpi.clusters.batch.queue import CommandRejected, UnknownOutput, call

STATES = {  # letter that qstat prints -> name of the state in Slurm; "" for ended jobs, see `_ended`
    **dict.fromkeys("QHWTM", "PENDING"),
    **dict.fromkeys("RB", "RUNNING"),
    **dict.fromkeys("SU", "SUSPENDED"),
    **dict.fromkeys("CFX", ""),
    "E": "COMPLETING",
}
EXITS = {  # exit status (of PBS Pro, then of Torque) -> state; 256 plus a signal means killed by a signal
    **dict.fromkeys(("-29", "-11"), "TIMEOUT"),
    **dict.fromkeys(("-26", "-27", "-10"), "OUT_OF_MEMORY"),
    **dict.fromkeys(("143", "265", "271"), "CANCELLED"),
    "0": "COMPLETED",
}
_ASK = "write one option of qsub that no field sets, in one line, e.g. '-l mem=8gb' or '-W group_list=maths'"
_OPTION = r"-(?:[apuMm] ?|W ?|l ?(?!select|nodes|ncpus|walltime|place))[^\s#-][^\x00-\x1f\x7f#]*"
_EXAMPLE = "write one word with {nodes} and {tasks}, e.g. 'select={nodes}:ncpus={tasks}:mpiprocs={tasks}'"
_RESOURCES = r"(?=.*\{nodes\})(?=.*\{tasks\})([\w.:=+-]|\{nodes\}|\{tasks\})+"


class Pbs(BatchCluster):
    """Cluster with PBS's queue. Nodes are allocated when a run starts, and not before."""

    kind = "pbs"
    folder: Annotated[Folder, matching("[^:]+", "PBS reads a host before a colon; take a path without")] = (
        setting(
            ..., "folder on a file system that all nodes share; jobs and their users exchange files there"
        )
    )
    queue: Name | None = setting(None, "queue; by default PBS's own choice")
    resources: Annotated[str, matching(_RESOURCES, _EXAMPLE)] = setting(
        "nodes={nodes}:ppn={tasks}", "nodes of a job as qsub -l takes them; {nodes} and {tasks} are replaced"
    )
    directives: tuple[Annotated[str, matching(_OPTION, _ASK)], ...] = setting(
        (), "further options of qsub, e.g. '-l mem=8gb'"
    )
    rsh: Word = setting("ssh", "program that starts MPI on a job's other nodes, e.g. pbs_tmrsh")

    system: ClassVar[str] = "PBS"
    submit_command: ClassVar[tuple[str, ...]] = ("qsub",)
    cancel_command: ClassVar[str] = "qdel"
    longest_name: ClassVar[int] = 15
    refusals: ClassVar[tuple[tuple[str, str], ...]] = (
        (r"queue (name|does)|unknown queue|access to queue|route", "queue"),
        (r"account|project", "account"),
        (r"walltime|time limit", "time"),
        (r"nodes|ncpus|select|node count|cpus", "resources"),
        (r"option|resource|attribute|usage|illegal|group", "directives"),
    )

    @override
    def options(self, spec: JobSpec) -> list[str]:
        """Return the lines for qsub. PBS Pro takes ``nodes=2:ppn=4`` as Torque does."""
        nodes = self.resources.replace("{nodes}", str(spec.nodes)).replace("{tasks}", str(spec.tasks))
        found = [f"-N {spec.name}", f"-l {nodes}", f"-l walltime={clock(seconds(self.time))}", "-r n"]
        # PBS writes its own output file (-o) only when the job ends
        found += ["-S /bin/bash", "-j oe", f"-o {spec.folder}/pbs.txt"]
        found += [f"-q {self.queue}"] if self.queue else []
        found += [f"-A {self.account}"] if self.account else []
        return [f"#PBS {line}" for line in (*found, *self.directives)]

    @override
    def number_in(self, output: str) -> str | None:
        r"""Return the number in the output of qsub.

        >>> Pbs(folder="/shared", tasks_per_node=8).number_in("some notice\n123.server\n")
        '123.server'
        """
        found = re.findall(r"^(\d+(?:\.[\w.-]+)?)\s*$", output, re.MULTILINE)
        return found[-1] if found else None

    @override
    def try_submit(self, path: Path) -> None:
        """Submit the job on hold, and cancel it at once, since qsub has no trial mode."""
        self.cancel(self.submit(path, "-h"))

    @override
    def look_up(self, number: str) -> Job:
        fields = described(number)
        return _job(fields) if fields else Job(number, FORGOTTEN)

    @override
    def listed(self) -> list[Job]:
        numbers = re.findall(r"^(\d+)[.[ ]", answer := call("qstat", "-u", getuser()), re.MULTILINE)
        if not numbers and answer.strip() and "Job ID" not in answer:
            raise UnknownOutput("qstat", self.system, answer)
        found = (described(number) for number in numbers)
        jobs = [_job(fields) for fields in found if fields.get("job_name") == self.label]
        return [job for job in jobs if not job.final]

    @override
    def launch_settings(self) -> dict[str, str]:
        return {"PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": self.rsh}


def described(number: str, *options: str) -> dict[str, str]:
    """Return the fields of a job that ``qstat -f`` prints, or {} if the job is not listed."""
    try:
        fields = fields_of(output := call("qstat", *options, "-f", number))
    except CommandRejected as refused:
        if "has finished" in refused.answer and not options:
            return described(number, "-x")  # ended jobs are in the history of PBS Pro
        if re.search("unknown job|has finished", refused.answer, re.IGNORECASE):
            return {}
        raise
    if fields.get("job_state") not in STATES or "number" not in fields:
        raise UnknownOutput("qstat", Pbs.system, output)
    return fields


def fields_of(output: str) -> dict[str, str]:
    """Return the fields of a job in the output of ``qstat -f``, with lower-case names, and its number."""
    text = re.sub(r"\r?\n\t", "", output)  # a long value is continued on the next line
    text = re.sub(r"^Job Id: *(\d[\w.-]*)", r" number = \1", text, flags=re.MULTILINE)
    found = re.findall(r"^ +([\w.]+) = (.*?)\s*$", text, re.MULTILINE)
    return {key.lower(): value for key, value in found}


def _job(fields: dict[str, str]) -> Job:
    """Return the job that fields of qstat describe."""
    limit = seconds(fields.get("resource_list.walltime", ""))
    used = seconds(fields.get("resources_used.walltime", ""))
    used = 0.0 if used == float("inf") else used
    names = list(dict.fromkeys(re.findall(r"(?:^|\+)([\w.-]+)/", fields.get("exec_host", ""))))
    total = re.fullmatch(r"[0-9]{1,6}", fields.get("resource_list.ncpus", ""))  # PBS Pro
    each = re.search(r":ppn=([0-9]{1,6})", fields.get("resource_list.nodes", ""))  # Torque
    cores = int(total[0]) if total else int(each[1]) * len(names) if each else 0
    why = fields.get("comment", "").removeprefix("Not Running: ")
    state, start = STATES[fields["job_state"]] or _ended(fields, used >= limit), "estimated.start_time"
    job = Job(fields["number"], state, why, max(limit - used, 0.0), used, len(names), cores, ",".join(names))
    hopeless = "queue, nodes, tasks_per_node or time" if why.startswith("Can Never Run") else ""
    return replace(job, start=fields.get(start, ""), hopeless=hopeless)


def _ended(fields: dict[str, str], late: bool) -> str:
    """Return the state of an ended job. `late`: it had used all its time."""
    exit = fields.get("exit_status", "")
    # without an exit status, the job was cancelled in the queue
    state = EXITS.get(exit, "FAILED") if exit else "CANCELLED"
    if state == "COMPLETED":  # PBS Pro marks cancelled jobs by substate 91
        return "CANCELLED" if fields.get("substate") == "91" else state
    return "TIMEOUT" if late and state != "OUT_OF_MEMORY" else state

"""Stand-ins for qsub, qstat and qdel: `python pbs_commands.py FOLDER COMMAND ...`.

Jobs are processes on this machine, each in a UTS namespace with the name of its first node. For each job, a process
(`run`) waits for free nodes, starts the script, ends it at its time limit, and writes how it ended. The output is that
of PBS Pro, or of Torque if FOLDER/flavour says so.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil

NODES, TASKS = 3, 3  # virtual nodes, and tasks on each
QUEUES = {"workq": 3600, "short": 60}  # name -> max time of a job, s
KILL_DELAY_S = 2.0  # s between TERM and KILL
ON_NODE = 'hostname "$0" && exec "$@"'  # sets the name of the host, in a UTS namespace
Fields = dict[str, Any]


class Server:
    """The jobs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.torque = folder, (folder / "flavour").read_text() == "torque"
        self.host = "master.example.org" if self.torque else "pbs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def jobs(self) -> list[Fields]:
        found = [json.loads(path.read_text()) for path in (self.folder / "jobs").glob("*.json")]
        return sorted(found, key=lambda job: int(job["number"]))

    def write(self, job: Fields) -> None:
        path = self.folder / "jobs" / f"{job['number']}.json"
        path.with_suffix(".new").write_text(json.dumps(job))
        path.with_suffix(".new").replace(path)

    def find(self, word: str) -> Fields | None:
        number = word.partition(".")[0]
        return next((job for job in self.jobs() if job["number"] == number), None)

    # --- qsub ---

    def qsub(self, argv: list[str]) -> None:
        script = Path(argv[-1])
        lines = [
            line.removeprefix("#PBS ") for line in script.read_text().splitlines() if line.startswith("#PBS ")
        ]
        options = [line.split(" ", 1) for line in [*lines, *argv[:-1]]]
        job: Fields = {
            "name": "STDIN",
            "queue": "workq",
            "state": "Q",
            "script": script.read_text(),
            "used": 0,
        }
        for option, *value in options:
            self._option(job, option, "".join(value))
        if job["limit"] > QUEUES[job["queue"]]:
            if self.torque:
                refuse("qsub: submit error (Job exceeds queue resource limits MSG=cannot satisfy queue max walltime"
                       " requirement)")  # fmt: skip
            job["comment"] = "Can Never Run: Job would exceed the queue's walltime limit"
        with self.locked():
            job["number"] = str(max((int(other["number"]) for other in self.jobs()), default=100) + 1)
            self.write(job)
        command = [sys.executable, __file__, str(self.folder), "run", job["number"]]
        streams: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        subprocess.Popen(command, start_new_session=True, **streams)
        print(f"{job['number']}.{self.host}")

    def _option(self, job: Fields, option: str, value: str) -> None:
        if option == "-N":
            job["name"] = value if len(value) <= 15 else refuse("qsub: illegal -N value")
        elif option == "-q":
            unknown = (
                "submit error (Unknown queue MSG=cannot locate queue)" if self.torque else "Unknown queue"
            )
            job["queue"] = value if value in QUEUES else refuse(f"qsub: {unknown}")
        elif option == "-h":
            job["state"] = "H"
        elif option == "-l" and (found := re.fullmatch(r"walltime=(\d+):(\d+):(\d+)", value)):
            job["limit"] = int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3])
        elif option == "-l" and (found := re.fullmatch(r"nodes=(\d+):ppn=(\d+)", value)):
            job["nodes"], job["tasks"] = int(found[1]), int(found[2])
            if job["nodes"] > NODES or job["tasks"] > TASKS:
                refuse("qsub: Job violates queue and/or server resource limits: nodes")
        elif option == "-l":
            refuse(f"qsub: Unknown resource: {value.partition('=')[0]}")
        elif option not in ("-r", "-S", "-j", "-o", "-A"):
            refuse(f"qsub: invalid option -- '{option[1:]}'\nusage: qsub [-a date_time] ...")

    # --- the process of a job ---

    def run(self, number: str) -> None:
        job, deleted = self._started(number)
        while job is None and not deleted:
            time.sleep(0.05)
            job, deleted = self._started(number)
        if job is None:
            return
        nodes, began = [f"n{i + 1}" for i in job["on"]], time.time()
        nodefile = self.folder / "jobs" / f"{number}.nodes"
        nodefile.write_text("".join(f"{node}\n" for node in nodes for _ in range(job["tasks"])))
        fields = {
            "PBS_JOBID": f"{number}.{self.host}",
            "PBS_NODEFILE": str(nodefile),
            "PBS_ENVIRONMENT": "PBS_BATCH",
        }
        script = nodefile.with_suffix(".sh")
        script.write_text(job["script"])
        command = ["unshare", "--uts", "sh", "-c", ON_NODE, nodes[0], "bash", str(script)]
        kept = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME", "PATH") if name in os.environ}
        process = subprocess.Popen(
            command, env=kept | fields, cwd=kept.get("HOME", "/"), start_new_session=True
        )
        while process.poll() is None and not deleted and time.time() - began < job["limit"]:
            time.sleep(0.05)
            deleted = nodefile.with_suffix(".delete").exists()
        late = process.poll() is None and not deleted
        self._end(number, process)
        code = process.returncode if process.returncode >= 0 else 256 - process.returncode
        if late:
            code = -11 if self.torque else -29
        with self.locked():
            state = "C" if self.torque else "F"
            substate = "91" if deleted else "92"
            self.write(
                {**job, "state": state, "exit": code, "substate": substate, "used": int(time.time() - began)}
            )

    def _started(self, number: str) -> tuple[Fields | None, bool]:
        """Give nodes to the job if enough of them are free. Return the job, or None, and whether it was deleted."""
        with self.locked():
            job = self.find(number)
            assert job is not None
            if (self.folder / "jobs" / f"{number}.delete").exists():
                if self.torque:
                    self.write({**job, "state": "C", "exit": 271})
                else:
                    self.write({**job, "state": "F", "substate": "91"})
                return None, True
            taken = {node for other in self.jobs() if other["state"] in "RE" for node in other["on"]}
            free = [node for node in range(NODES) if node not in taken]
            if job["state"] == "H" or "comment" in job or len(free) < job["nodes"]:
                return None, False
            job |= {"state": "R", "on": free[: job["nodes"]], "began": time.time()}
            self.write(job)
            return job, False

    def _end(self, number: str, process: subprocess.Popen[bytes]) -> None:
        """End all processes of a job with TERM and KILL, also those that its daemons have started on other nodes."""
        for sig, patience in ((signal.SIGTERM, KILL_DELAY_S), (signal.SIGKILL, 10.0)):
            found = [p for p in psutil.process_iter(["environ"]) if self._of(p, number)]
            for p in found:
                with suppress(psutil.Error):
                    p.send_signal(sig)
            until = time.monotonic() + patience
            while time.monotonic() < until and (
                process.poll() is None or any(self._of(p, number) for p in found)
            ):
                time.sleep(0.05)

    def _of(self, process: psutil.Process, number: str) -> bool:
        with suppress(psutil.Error):
            mine = process.environ().get("PBS_JOBID") == f"{number}.{self.host}"
            return mine and process.status() != psutil.STATUS_ZOMBIE
        return False

    # --- qdel ---

    def qdel(self, argv: list[str]) -> None:
        job = self.find(argv[0])
        if job is None:
            refuse(f"qdel: Unknown Job Id {argv[0]}", 153)
        if job["state"] in "CF":
            refuse(f"qdel: Request invalid for state of job {argv[0]}" if self.torque else
                   f"qdel: Job has finished {argv[0]}", 35)  # fmt: skip
        (self.folder / "jobs" / f"{job['number']}.delete").touch()

    # --- qstat ---

    def qstat(self, argv: list[str]) -> None:
        history = "-x" in argv
        if history and self.torque:
            print("<Data><Job></Job></Data>")
            return
        if "-u" in argv:
            self._of_user()
            return
        job = self.find(argv[-1])
        if job is None:
            refuse(f"qstat: Unknown Job Id {'Error ' if self.torque else ''}{argv[-1]}", 153)
        if job["state"] == "F" and not history:
            refuse(
                f"qstat: {argv[-1]} Job has finished, use -x or -H to obtain historical job information", 35
            )
        print(self._full(job))

    def _of_user(self) -> None:
        found = [job for job in self.jobs() if job["state"] != "F"]
        if not found:
            return
        print(f"\n{self.host}: \n{'Req' + chr(39) + 'd':>65}  Req'd   Elap")
        print("Job ID          Username Queue    Jobname    SessID NDS TSK Memory Time  S Time")
        print("--------------- -------- -------- ---------- ------ --- --- ------ ----- - -----")
        for job in found:
            id, name = f"{job['number']}.{self.host}"[:15], job["name"][:10]
            user, size = getpass.getuser()[:8], f"{job['nodes']:3} {job['tasks']:3}"
            print(
                f"{id:15} {user:8} {job['queue']:8} {name:10}    --  {size}    --  01:00 {job['state']} 00:00"
            )

    def _full(self, job: Fields) -> str:
        used = int(time.time() - job["began"]) if job["state"] == "R" else job["used"]
        cores, exit = job["nodes"] * job["tasks"], "exit_status" if self.torque else "Exit_status"
        fields: Fields = {"Job_Name": job["name"], "Job_Owner": f"{getpass.getuser()}@login.example.org"}
        if "on" in job:
            fields |= {"resources_used.cput": clock(0), "resources_used.walltime": clock(used)}
        fields |= {"job_state": job["state"], "queue": job["queue"], "server": self.host}
        if "on" in job:
            each = ([f"n{i + 1}/{k}" for i in job["on"] for k in range(job["tasks"])] if self.torque else
                    [f"n{i + 1}/0*{job['tasks']}" for i in job["on"]])  # fmt: skip
            fields["exec_host"] = "+".join(each)
        if not self.torque:
            fields |= {"Resource_List.ncpus": cores, "Resource_List.nodect": job["nodes"]}
        fields |= {"Resource_List.nodes": f"{job['nodes']}:ppn={job['tasks']}",
                   "Resource_List.walltime": clock(job["limit"]),
                   "Variable_List": f"PBS_O_HOME=/root,PBS_O_PATH={'/usr/local/bin:' * 9}/bin"}  # fmt: skip
        if not self.torque and job["state"] in "QH":
            fields["comment"] = job.get("comment", "Not Running: Insufficient amount of resource: ncpus")
        fields |= {exit: job["exit"]} if "exit" in job else {}
        fields |= {"substate": job["substate"]} if "substate" in job and not self.torque else {}
        lines = [wrapped(f"    {name} = {value}") for name, value in fields.items()]
        return "\n".join([f"Job Id: {job['number']}.{self.host}", *lines, ""])


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def wrapped(line: str) -> str:
    """Wrap lines as qstat does: at most 79 characters, continued after a tab."""
    parts = [line[:79], *(line[i : i + 71] for i in range(79, len(line), 71))]
    return "\n\t".join(parts)


def refuse(why: str, code: int = 1) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    server, (name, *given) = Server(Path(sys.argv[1])), sys.argv[2:]
    if name == "run":
        server.run(given[0])
    else:
        {"qsub": server.qsub, "qstat": server.qstat, "qdel": server.qdel}[name](given)

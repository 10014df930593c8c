"""Jobs of torchrun for tests: `job_script.py` with a scheme, and what its ranks reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("job_script.py")
ROOT = Path(__file__).resolve().parents[3]
JOB_TIMEOUT_S = 600.0


@dataclass
class Done:
    """An ended job: exit status, output of all its processes, and the reports by rank."""

    status: int
    text: str
    ranks: dict[int, dict[str, Any]]

    def losses(self) -> list[float]:
        """Return the losses in order of the steps, each from a rank that was not late then."""
        found = {int(step): loss for report in self.ranks.values() for step, loss in report["losses"].items()}
        return [found[step] for step in sorted(found)]


def environment(**more: str) -> dict[str, str]:
    """Return environment variables for jobs whose processes have one thread."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def torchrun(
    out: Path,
    *options: str,
    ranks: int = 4,
    fault: str = "",
    steps: int = 12,
    status: int = 0,
    restarts: int = 0,
) -> Done:
    """Run a job until its end.

    `options`: options of the launcher. `fault`: see `job_script.py`. `status`: expected exit status. `restarts`: max
    number of restarts of the whole job.
    """
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [f"--max-restarts={restarts}"]
    command += ["-m", "workbench.ddp", *options, str(SCRIPT)]
    variables = environment(OUT=str(out), FAULT=fault, STEPS=str(steps))
    done = subprocess.run(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=JOB_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == status, done.stdout
    reports = {int(path.stem[5:]): json.loads(path.read_text()) for path in out.glob("rank-*.json")}
    return Done(done.returncode, done.stdout, reports)


def one_process(out: Path, fault: str = "", steps: int = 12) -> Done:
    """Run the script without torchrun."""
    out.mkdir(exist_ok=True)
    variables = environment(OUT=str(out), FAULT=fault, STEPS=str(steps))
    subprocess.run([sys.executable, str(SCRIPT)], env=variables, timeout=JOB_TIMEOUT_S, check=True)
    return Done(0, "", {0: json.loads((out / "rank-0.json").read_text())})

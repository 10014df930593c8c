"""The start of ranks on this machine, for any batch job in the environment.

Each run is a separate process with its own variables, limits, or file systems.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.sampled_cases import rotated
from workbench.mpi.launch import mpiexec

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]

RUN = [sys.executable, "-m", "workbench", "run", "--scheme", "UMW", "--workers", "3", "--rounds", "3"]
REAL = [*RUN, "--engine", "mpi"]
ENGINES = """
import workbench as wb
try:
    with wb.interactive(1, progress=False) as engines:
        run = engines.start(wb.Experiment(scheme="UMW", workers=1, rounds=3)).result()
        print("hosts", len({place.host for place in engines.places}), "rounds", len(run.rounds))
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""
SLURM = {
    "SLURM_JOBID": "77",
    "SLURM_JOB_ID": "77",
    "SLURM_NODELIST": "node01",
    "SLURM_JOB_NODELIST": "node01",
    "SLURM_NNODES": "1",
    "SLURM_TASKS_PER_NODE": "1",
    "SLURM_CONF": "/none/slurm.conf",
}
JOBS = {  # batch system or launcher -> its variables
    "slurm": SLURM,
    "slurm of MCA's choice": {**SLURM, "PRTE_MCA_ras": "slurm", "PRTE_MCA_plm": "slurm"},
    "pbs": {"PBS_JOBID": "77.head", "PBS_ENVIRONMENT": "PBS_INTERACTIVE", "PBS_NODEFILE": "nodes"},
    "pbs that has ended": {"PBS_JOBID": "77.head", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": "/none"},
    "cobalt": {"COBALT_JOBID": "77", "COBALT_NODEFILE": "/none"},
    "lsf": {
        "LSB_JOBID": "7",
        "LSB_DJOB_HOSTFILE": "/none",
        "LSB_AFFINITY_HOSTFILE": "/none",
        "LSB_HOSTS": "a b",
    },
    "sge": {"SGE_ROOT": "/none", "ARC": "lx-amd64", "JOB_ID": "7", "PE_HOSTFILE": "/none", "NSLOTS": "9"},
    "flux": {"FLUX_JOB_ID": "7", "FLUX_URI": "local:///none"},
    "a rank of Open MPI": {"PRTE_LAUNCHED": "1", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "9"},
    "a rank of PMIx": {
        "PMIX_RANK": "3",
        "PMIX_NAMESPACE": "x@1",
        "PMIX_SERVER_URI41": "x@0.0;tcp4://127.0.0.1:1",
    },
    "a rank of MPICH": {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9"},
}


def call(command: list[str], folder: Path, before: str = "", **variables: str) -> tuple[int, str]:
    """Run a command in a folder, after a line for the shell. Return its exit status, and its last line."""
    env = {**os.environ, **variables}
    shell = ["bash", "-c", f'{before}\n"$@"', "shell", *command]
    done = subprocess.run(shell, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    text = (done.stderr if done.returncode else done.stdout).replace("\r", "\n")
    return done.returncode, text.strip().splitlines()[-1]


@rotated
@pytest.mark.parametrize(
    "job",
    [
        "all",
        *(
            pytest.param(job, marks=pytest.mark.slow)
            for job in ("slurm of MCA's choice", "pbs that has ended")
        ),
    ],
)
def test_mpiexec_ignores_a_surrounding_job(tmp_path: Path, job: str) -> None:
    (tmp_path / "nodes").write_text("node01\n")
    every = {name: value for fields in JOBS.values() for name, value in fields.items()}
    code, text = call([*REAL, "-o", "out"], tmp_path, **(every if job == "all" else JOBS[job]))
    assert (code, text) == (0, "written to out")


@rotated
def test_mpiexec_of_engines_ignores_a_surrounding_job(tmp_path: Path) -> None:
    every = {name: value for fields in JOBS.values() for name, value in fields.items()}
    assert call([sys.executable, "-c", ENGINES], tmp_path, **every) == (0, "hosts 1 rounds 3")


@given(st.sampled_from(mpiexec.JOB_PREFIXES), st.from_regex(r"[A-Z_0-9]{1,20}", fullmatch=True))
def test_mpiexec_environment_omits_variables_of_jobs(prefix: str, rest: str) -> None:
    name = f"{prefix}{rest}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, "1")
        patch.setenv("OMPI_MCA_btl_tcp_if_include", "eth0")
        patch.setenv("PMIX_PREFIX", "/opt/openmpi")
        found = mpiexec.environment()
    kept = mpiexec.USER_CHOICES.fullmatch(name) or name in mpiexec.settings()
    assert (name in found) == bool(kept)
    assert found["OMPI_MCA_btl_tcp_if_include"] == "eth0"  # a setting of the user
    assert found["PMIX_PREFIX"] == "/opt/openmpi"


@rotated
def test_mpiexec_error_log_is_kept(tmp_path: Path) -> None:
    """A setting of the user prevents mpiexec from starting."""
    code, text = call(
        REAL, tmp_path, PRTE_MCA_rmaps_default_mapping_policy="nonsense", PRTE_MCA_plm_ssh_agent="/none"
    )
    if code == 0:  # mpiexec may have ignored these settings
        code, text = call(REAL, tmp_path, PRTE_MCA_prte_tmpdir_base="/none", PMIX_MCA_gds="none")
    assert code == 2
    match = re.search(r"; see (\S+)$", text)
    assert match, text
    log = Path(match[1])
    assert log.read_text()
    assert log.parent.stat().st_mode & 0o077 == 0


@rotated
@pytest.mark.parametrize("limit", [24, 36])
def test_mpiexec_reports_too_few_open_files(tmp_path: Path, limit: int) -> None:
    code, text = call(REAL, tmp_path, f"ulimit -n {limit}")
    assert code == 2
    assert re.search(
        rf"^workbench: workers = 3: \d+ files have to be open .*, and {limit} may be; raise the", text
    )


@rotated
def test_mpiexec_raises_the_soft_limit_of_open_files(tmp_path: Path) -> None:
    assert call([*REAL, "-o", "out"], tmp_path, "ulimit -Sn 36") == (0, "written to out")


def test_mpiexec_counts_the_open_files_it_needs() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        mpiexec.check_open_files(2)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
        assert mpiexec.files_needed(157) < 1024
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


in_a_namespace = pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="mounting needs root and unshare"
)


def mounted(folder: Path, mount: str, command: list[str], **variables: str) -> tuple[int, str]:
    """Run a command as `call` does, with something mounted for this process alone."""
    inside = ["unshare", "-m", "bash", "-c", f'{mount} && shift && "$@"', "mount", str(folder), *command]
    return call(inside, folder, **variables)


READ_ONLY = 'mkdir -p "$1/ro" && mount -t tmpfs -o ro tmpfs "$1/ro"'


@in_a_namespace
@pytest.mark.parametrize("command", [REAL, [sys.executable, "-c", ENGINES]], ids=["ranks", "engines"])
def test_mpiexec_reports_an_unwritable_cache(tmp_path: Path, command: list[str]) -> None:
    home = {"HOME": str(tmp_path / "ro"), "XDG_CACHE_HOME": "", "WORKBENCH_CACHE": str(tmp_path)}
    _, text = mounted(tmp_path, READ_ONLY, command, **home)
    assert (
        "/ro/.cache/straggler-workbench/runs: cannot be written (Read-only file system); set XDG_CACHE_HOME"
        in text
    )


@in_a_namespace
def test_mpiexec_names_both_variables_of_an_unwritable_folder(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "ro"), "XDG_CACHE_HOME": "", "WORKBENCH_CACHE": ""}
    _, text = mounted(tmp_path, READ_ONLY, RUN, **home)
    assert "cannot be made (Read-only file system); set WORKBENCH_CACHE, or XDG_CACHE_HOME" in text


@in_a_namespace
def test_mpiexec_names_a_file_system_without_inodes(tmp_path: Path) -> None:
    few = 'mkdir -p "$1/few" && mount -t tmpfs -o nr_inodes=20,size=64m tmpfs "$1/few"'
    code, text = mounted(tmp_path, few, REAL, XDG_CACHE_HOME=str(tmp_path / "few"))
    assert code == 2
    assert re.search(
        r"cannot be written \(No space left on device: \d+ inodes are left, remove some files\)", text
    )


@in_a_namespace
def test_mpiexec_reports_a_machine_without_proc(tmp_path: Path) -> None:
    for command in (REAL, [sys.executable, "-c", ENGINES]):
        _, text = mounted(tmp_path, "mount -t tmpfs tmpfs /proc", command)
        assert (
            "the memory of this machine cannot be read (/proc/meminfo: No such file or directory); mount /proc"
            in text
        )


@pytest.mark.parametrize("name", ["workbench", "numpy"])
def test_mpiexec_ranks_ignore_modules_in_the_current_folder(tmp_path: Path, name: str) -> None:
    for each in (name, "types", "random", "struct", "psutil", "mpi4py"):
        (tmp_path / f"{each}.py").write_text("raise SystemExit('the wrong file')\n")
    script = str(Path(sys.executable).with_name("workbench"))
    assert call([script, *REAL[3:], "-o", "out"], tmp_path) == (0, "written to out")

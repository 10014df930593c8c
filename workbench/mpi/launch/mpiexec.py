"""Call of mpiexec on this machine. Every setting was measured, see docs/decisions/0007-ranks.md.

Open MPI 5 with ULFM continues after the death of a rank. Ranks poll and sleep, so no setting here makes MPI calls
yield the core: if calls yielded by nanosleep, even MPI_Test would take a millisecond. Each rank has one BLAS thread,
since hundreds of threads would compete for the cores.
"""

import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from workbench.core.base.errors import ClusterError, sentence_of
from workbench.core.base.files import cache_folder, is_own, private_folder
from workbench.mpi.launch.package import python_path
from workbench.mpi.launch.poolfolder import SHARED_MEMORY_FOLDER
from workbench.mpi.launch.processes import RANKS_MODULE

STUB = str(Path(__file__).with_name("rank") / "stub.py")
MEGABYTES_PER_RANK = 45  # measured memory of a rank without shared pages, MB
FILES_PER_RANK, FILES_OF_MPIEXEC = 4, 26  # measured numbers of open files of mpiexec: per rank, and fixed
# shared memory that Open MPI needs, MB: fixed, and for each rank; it makes files of 16 MB, and uses little of them
SHARED_MEGABYTES, SHARED_MEGABYTES_PER_RANK = 17.0, 0.15
# Variables with which batch systems and other launchers describe their own jobs: Slurm, PBS, LSF, Grid Engine, Cobalt,
# LoadLeveler, Flux, OAR, ALPS, PALS, and the launcher that has started this process as a rank.
_JOBS = (
    "SLURM SALLOC_ SBATCH_ SRUN_ PBS_ LSB_ LSF_ SGE_ PE_HOSTFILE COBALT_ LOADL_ FLUX_ OAR_ ALPS_ BASIL_ PALS_"
)
JOB_PREFIXES = (*_JOBS.split(), "HYDRA_", "PMI_", "PMI2_", "PMIX_", "PRTE_", "OMPI_")
# Variables with similar names that do not belong to a job.
USER_CHOICES = re.compile(r".*(_MCA_.*|_PREFIX|_ALLOW_RUN_AS_ROOT(_CONFIRM)?)")
# Variables for the number of threads of linear algebra.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def find_mpiexec() -> str:
    """Return the path of the environment's own mpiexec, or of the first on the PATH. Raises `ClusterError`."""
    beside_python = Path(sys.executable).parent / "mpiexec"
    found = str(beside_python) if beside_python.is_file() else shutil.which("mpiexec")
    if found is None:
        raise ClusterError(
            "mpiexec: not found; pip install 'straggler-workbench[mpi]' into this environment, or take engine = 'sim'"
        )
    return found


def command(ranks: int, folder: str) -> list[str]:
    """Return the command line that starts the ranks of a pool's folder on this machine.

    It declares slots for all ranks. With more ranks than declared cores, Open MPI would yield the core in every call
    that finds nothing, whatever its settings. A poll would then take 1.4 ms instead of 1 us.
    """
    start = [find_mpiexec(), "--host", f"localhost:{ranks}", "--with-ft", "ulfm", "-n", str(ranks)]
    rank = [sys.executable, "-P", "-m", RANKS_MODULE, folder]
    if sys.platform == "linux":  # mpiexec starts stubs, and the ranks are forked
        return [*rank, *start, sys.executable, "-I", "-S", STUB, folder]
    return [*start, *rank]


def settings(btl: str = "self,sm") -> dict[str, str]:
    """Return the variables for mpiexec and the ranks. `btl`: MPI's transports, with "tcp" for several hosts."""
    found = {
        **dict.fromkeys(THREADS, "1"),
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": btl,  # "sm" needs no ports; "ofi" is excluded, because it delays the start by a second
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "PYTHONUNBUFFERED": "1",
    }
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return found


def job_variables() -> list[str]:
    """Return the names of this process's variables that describe the job of a batch system or another launcher.

    With them, mpiexec would start ranks in that job's allocation, on other hosts, even if the job has ended.
    """
    return [name for name in os.environ if name.startswith(JOB_PREFIXES) and not USER_CHOICES.fullmatch(name)]


def outside_jobs() -> list[str]:
    """Return a command line prefix that runs a program without `job_variables`."""
    return ["env", *(argument for name in job_variables() for argument in ("-u", name))]


def environment() -> dict[str, str]:
    """Return the environment of mpiexec and the ranks on this machine.

    It has no variables of batch jobs, so that ranks are started here. Compiled modules are cached, since without the
    cache every rank takes twice as long to start.
    """
    job = set(job_variables())
    found = {name: value for name, value in os.environ.items() if name not in job}
    if found.pop("PYTHONDONTWRITEBYTECODE", None) and "PYTHONPYCACHEPREFIX" not in found:
        found["PYTHONPYCACHEPREFIX"] = str(compiled_folder())
    return found | python_path() | settings()


def compiled_folder() -> Path:
    """Return the folder of compiled modules, which only this user may write into. An unsafe one is emptied first.

    Raises `SettingError` if it belongs to another user, because Python would run its files.
    """
    folder = cache_folder("compiled")
    if folder.is_dir() and not is_own(folder):
        with suppress(OSError):
            shutil.rmtree(folder)
    return private_folder(folder)


def check_room(ranks: int, each: int | None = None, files: int = 0) -> None:
    """Raise `ClusterError` if this machine's memory, shared memory, open files or processes do not suffice.

    `ranks`: number of processes. `each`: megabytes of each one. `files`: number of files that have to be open.
    """
    import psutil

    each = each or MEGABYTES_PER_RANK
    try:
        free = psutil.virtual_memory().available / 2**20
    except OSError as error:
        why = f"the memory of this machine cannot be read ({sentence_of(error)})"
        raise ClusterError(f"{why}; mount /proc, or take engine = 'sim'") from None
    need = ranks * each
    if need > free:
        fit = max(int(free // each) - 1, 0)
        raise ClusterError(
            f"workers = {ranks - 1}: {ranks} processes need about {need / 1024:.1f} GiB and {free / 1024:.1f} GiB are"
            f" free; take up to {fit} workers here, engine = 'sim', or a larger cluster"
        )
    # with less shared memory, ranks would wait for each other until the start fails
    if SHARED_MEMORY_FOLDER.is_dir():
        free = shutil.disk_usage(SHARED_MEMORY_FOLDER).free / 2**20
        megabytes = SHARED_MEGABYTES + SHARED_MEGABYTES_PER_RANK * ranks
        if megabytes > free:
            raise ClusterError(
                f"{SHARED_MEMORY_FOLDER}: {free:.0f} MB of shared memory are free and {ranks} processes"
                f" need {megabytes:.0f}; make it"
                " larger (docker run --shm-size=256m, or mount -o remount,size=256m), or take engine = 'sim'"
            )
    check_open_files(ranks, files)
    limit = _process_limit()
    if 2 * ranks > limit:  # each rank has a stub, or a process that watches its engine
        raise ClusterError(
            f"workers = {ranks - 1}: this machine lets you start {limit} processes, two for each; take fewer workers,"
            " engine = 'sim', or a larger cluster"
        )


def files_needed(ranks: int, daemons: int = 0) -> int:
    """Return the number of files that mpiexec opens for ranks on its host, and for daemons on other hosts."""
    return FILES_OF_MPIEXEC + FILES_PER_RANK * (ranks + daemons)


def system_limit(name: str = "RLIMIT_NOFILE") -> int | None:
    """Return a limit of this process, or None if it is unknown. Default: number of open files (ulimit -n)."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft


def check_open_files(ranks: int, least: int = 0) -> None:
    """Increase this process's limit of open files, if needed to start `ranks` ranks here.

    `least`: number of files that another process than mpiexec opens. Raises `ClusterError` if the system forbids it.
    """
    need, limit = max(files_needed(ranks), least), system_limit()
    if limit is None or need <= limit:
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or need <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
        return
    raise ClusterError(
        f"workers = {ranks - 1}: {need} files have to be open at the same time to start {ranks} processes, and {hard}"
        f" may be; raise the limit (ulimit -n {max(need, 1024)}), take fewer workers, or engine = 'sim'"
    )


def _process_limit() -> int:
    pid_max, limit = Path("/proc/sys/kernel/pid_max"), system_limit("RLIMIT_NPROC")
    most = int(pid_max.read_text()) // 2 if pid_max.is_file() else 10**6
    return most if limit is None else min(limit, most)

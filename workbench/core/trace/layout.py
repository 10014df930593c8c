"""File names in run folders and sweep folders."""

from pathlib import Path

from workbench.core.base.files import WRITER

# Files of the run folders of all engines. `base.files` adds SHA256SUMS.
SPEC, RUN = "spec.json", WRITER  # file of the experiment; file of engine, versions and results, written last
ROUNDS, EVENTS, MODEL = "rounds.parquet", "events.parquet", "model.npy"
FILES = (SPEC, RUN, ROUNDS, EVENTS, MODEL)
OWN_SOURCE = "own-{}.py"  # source of a user-defined class, by its name
ABOUT = "about.json"  # name, note and tags that the user has given
# Signature of the code and the cluster that the folder names, see `trust`; also in a sweep's folder.
SIGNATURE = "signature.json"

# Additional files of a run on real processes, written at its start.
TASK, OWNER = "task.json", "owner.json"  # file of the run's arguments; file of the process that has its lock
OWNER_1_0 = "holder.json"  # the name of OWNER in version 1.0
# Two locks, because one lock cannot be passed on without a gap. The first is that of the process that started or
# resumed the run, the second that of the master's rank.
RUN_LOCK, RANKS_LOCK = ".lock", ".ranks"
STOP = "stop"  # file that requests the end of a run, or of a sweep
# Additional files of a run on real processes, written during the run.
# changes of scheme in an adaptive run, with the state for the next segment
CHANGES = "changes.json"
# rounds and ledgers of earlier segments that did not end with a change of scheme
SEGMENTS = "stretches.json"
ROWS, MODELS, GRADIENTS = "live.f64", "models.f64", "gradients.f64"  # one row of numbers per round
CHECKPOINT = "checkpoint.npz"
# Folder with a file RANK.i64 for each rank that gathers: (round, rank, number) of answers, in order of arrival.
ARRIVALS = "arrivals"
# Folder that a reader makes to follow the run, with live events of each rank in RANK.f64. Removed at the end of the
# run.
STREAM = "stream"
# additional files of a run on real processes, written after its end
LEDGERS, ENDED = "ledgers.npz", "ended.json"
LEDGERS_1_0 = "books.npz"  # the name of LEDGERS in version 1.0

# Files of the folder of a sweep: its description with its runs, in order; lock of the process that works on it
PLAN, SWEEP_LOCK = "sweep.json", ".lock"
# file with the state of a search; file with the output of a sweep in a separate process
SEARCH_STATE, SWEEP_LOG = "found.json", "sweep.log"
SCRIPT = "plotly.min.js"  # library that draws the figures of every page without a network
# Folder with the attempts of the executor's processes, each in a folder of its own until it is complete. It also has
# the owner's token, the address of the executor's dashboard, and the number of ended runs on each host.
ATTEMPTS, ATTEMPTS_OWNER, LINK, HOSTS = ".attempts", "owner", "link", "hosts.json"
# Folder in a sweep without notebooks: Parquet files with one row for each run, with its settings, results and rounds.
SHARDS = "shards"
# A sweep has one folder for each run, with the name of the run. It contains the executed notebook, the notebook's page,
# the status, the run folder, and a log of the kernel's other output. The status "done" means that all files are
# complete.
NOTEBOOK, PAGE, STATUS, TRACE, LOG = "run.ipynb", "run.html", "status.json", "trace", "kernel.log"


def ledgers_path(folder: Path) -> Path:
    """Return the path of the ranks' ledgers, which version 1.0 called books.npz."""
    old = folder / LEDGERS_1_0
    return old if old.is_file() else folder / LEDGERS

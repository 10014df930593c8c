"""The names of all files of a run folder, and of a sweep's."""

from pathlib import Path

from workbench.core.base.files import WRITER

# A run folder, of whichever engine; base/files adds SHA256SUMS.
SPEC, RUN = "spec.json", WRITER  # the experiment; engine, versions and the like, written last
ROUNDS, EVENTS, MODEL = "rounds.parquet", "events.parquet", "model.npy"
FILES = (SPEC, RUN, ROUNDS, EVENTS, MODEL)
OWN_SOURCE = "own-{}.py"  # source of a class of the user's own, by its name
ABOUT = "about.json"  # what the user says of it: name, note, tags
SIGNATURE = (
    "signature.json"  # of the code and the cluster that it names, see `trust`; in a sweep's folder as well
)

# What a run on real processes has besides, from its start ...
TASK, OWNER = "task.json", "owner.json"  # how it is run, and who has it
OWNER_1_0 = "holder.json"  # the name of OWNER in version 1.0
# Not one lock that both share: from one alone to one of several there is no way without a gap.
RUN_LOCK, RANKS_LOCK = ".lock", ".ranks"  # of who has begun the run, or goes on with it; of the master's rank
STOP = "stop"  # somebody asks it to end; in a sweep's folder as well
# ... while it goes on ...
CHANGES = (
    "changes.json"  # of scheme, where scheme selection is adaptive, and what the next stretch has to know
)
SEGMENTS = "stretches.json"  # of a run that was resumed: the rounds, and the ledgers, of each part before
ROWS, MODELS, GRADIENTS = "live.f64", "models.f64", "gradients.f64"  # a row of numbers each round
CHECKPOINT = "checkpoint.npz"
# A folder: RANK.i64 of (round, rank, number) for each rank that gathers, in order of arrival.
ARRIVALS = "arrivals"
# A folder, made by who watches: RANK.f64, events of that rank as they happen; gone with the run.
STREAM = "stream"
# ... and once it is over.
LEDGERS, ENDED = "ledgers.npz", "ended.json"
LEDGERS_1_0 = "books.npz"  # the name of LEDGERS in version 1.0

# The folder of a sweep ...
PLAN, SWEEP_LOCK = "sweep.json", ".lock"  # the sweep and its runs, in order; of who works in it
# what a search knows; what a sweep in a process of its own says
SEARCH_STATE, SWEEP_LOG = "found.json", "sweep.log"
SCRIPT = "plotly.min.js"  # draws the figures of every page, no network needed
# ... and in it, for each run, a folder of its name: the executed notebook, its page, how it stands (done means that all
# is there), the run folder, and what the kernel wrote past the notebook, if anything.
NOTEBOOK, PAGE, STATUS, TRACE, LOG = "run.ipynb", "run.html", "status.json", "trace", "kernel.log"


def ledgers_path(folder: Path) -> Path:
    """Return the path of the ranks' ledgers, which version 1.0 called books.npz."""
    old = folder / LEDGERS_1_0
    return old if old.is_file() else folder / LEDGERS

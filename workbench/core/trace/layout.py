"""The names of all files of a run folder, and of a sweep's."""

# A run folder, of whichever engine; base/files adds SHA256SUMS.
SPEC, RUN = "spec.json", "run.json"  # the experiment; engine, versions and the like, written last
ROUNDS, EVENTS, MODEL = "rounds.parquet", "events.parquet", "model.npy"
FILES = (SPEC, RUN, ROUNDS, EVENTS, MODEL)
OWN = "own-{}.py"  # source of a class of the user's own, by its name
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
STRETCHES = "stretches.json"  # of a run that was resumed: the rounds, and the books, of each part before
ROWS, MODELS, GRADIENTS = "live.f64", "models.f64", "gradients.f64"  # a row of numbers each round
CHECKPOINT = "checkpoint.npz"
# A folder: RANK.i64 of (round, rank, number) for each rank that gathers, in order of arrival.
ARRIVALS = "arrivals"
# A folder, made by who watches: RANK.f64, events of that rank as they happen; gone with the run.
STREAM = "stream"
# ... and once it is over.
LEDGERS, ENDED = "books.npz", "ended.json"

# The folder of a sweep ...
PLAN, SWEEP_LOCK = "sweep.json", ".lock"  # the sweep and its runs, in order; of who works in it
FOUND, SWEEP_LOG = "found.json", "sweep.log"  # what a search knows; what a sweep in a process of its own says
SCRIPT = "plotly.min.js"  # draws the figures of every page, no network needed
# ... and in it, for each run, a folder of its name: the executed notebook, its page, how it stands (done means that all
# is there), the run folder, and what the kernel wrote past the notebook, if anything.
NOTEBOOK, PAGE, STATUS, TRACE, LOG = "run.ipynb", "run.html", "status.json", "trace", "kernel.log"

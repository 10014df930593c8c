"""How long ranks sleep between two looks at what has come."""

from typing import NamedTuple


class PollInterval(NamedTuple):
    """How long a rank sleeps between looks, s; every look costs some 50 us of a core, and there are many ranks."""

    min_s: float
    max_s: float


COLLECTIVE = PollInterval(
    2e-5, 3e-4
)  # the MPI library goes on only while it is looked at; others need the cores, too
GATHER = PollInterval(5e-5, 5e-4)  # the round waits for this node
IDLE = PollInterval(1e-4, 4e-3)  # for a model
TIMER = PollInterval(5e-3, 5e-3)  # until the drawn time is over: the last nap ends exactly then
# Who is rung need not look, but for what MPI does not move on by itself.
SPIN_BEFORE_SLEEP_S = (
    3e-4  # a rank with a core of its own polls so long before it sleeps: a wake-up takes 50 us
)
WAKEABLE = PollInterval(2e-3, 2.5e-1)
POLL_TTL_S = 5e-3  # s for which a look at what has come counts as new
# With emulated links, who notices a model late is not late, as long as that is before its work would be done.
IDLE_EMULATED, TIMER_EMULATED = PollInterval(1e-3, 1e-2), PollInterval(1.5e-2, 1.5e-2)

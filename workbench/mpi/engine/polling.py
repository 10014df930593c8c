"""Intervals between two polls of the transport, one for each thing that a rank waits for."""

from typing import NamedTuple


class PollInterval(NamedTuple):
    """Shortest and longest sleep between two polls, s."""

    min_s: float
    max_s: float


# One poll takes about 50 us of a core, and many ranks may share a few cores.
COLLECTIVE = PollInterval(2e-5, 3e-4)  # MPI advances a collective only while it is polled
# for waiting for answers; short, because the round cannot end before they arrive
GATHER = PollInterval(5e-5, 5e-4)
IDLE = PollInterval(1e-4, 4e-3)  # for waiting for a model
TIMER = PollInterval(5e-3, 5e-3)  # for waiting for a drawn time; the last sleep ends exactly at that time
# time that a rank with its own core polls before it sleeps, s, because a wake-up takes 50 us
SPIN_BEFORE_SLEEP_S = 3e-4
# A rank with a wake-up pipe need not poll, except to let MPI make progress. It sleeps `min_s` if the transport needs
# polling, or if it was woken and the message is not fully visible yet. Otherwise it sleeps `max_s`.
WAKEABLE = PollInterval(2e-3, 2.5e-1)
POLL_TTL_S = 5e-3  # s for which the result of a poll counts as current
# With emulated links the intervals are longer: a model may be noticed late, as long as the drawn time is not over.
IDLE_EMULATED, TIMER_EMULATED = PollInterval(1e-3, 1e-2), PollInterval(1.5e-2, 1.5e-2)

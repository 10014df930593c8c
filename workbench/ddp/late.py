"""Late ranks of a job: the ranks that wait for the state of another one, and for how long."""

from __future__ import annotations

from collections.abc import Collection

from workbench.ddp.record import State

# max number of exchanges that a rank waits for a state, if it was late again after it had taken earlier states
MAX_PAUSE_EXCHANGES = 8


class LateRanks:
    """Ranks that wait for a state.

    A rank that is late again after it took a state waits for more exchanges before it gets the next state. Each state
    costs time of the rank that sends it, and all other ranks wait for that rank.

    `period`: steps between two exchanges. `until`: rank -> least number of complete steps of the state that it takes.

    >>> late = LateRanks(period=1)
    >>> late.add(3, newest=10), late.add(3, newest=20), late.add(3, newest=30), late.until
    (None, None, None, {3: 34})
    """

    def __init__(self, period: int) -> None:
        self.period = period
        self.until: dict[int, int] = {}
        self._in_vain: dict[int, int] = {}  # rank -> number of states since its last answer in time
        self._ending = False  # whether a rank has done its last step

    def add(self, rank: int, newest: int) -> None:
        """Let a rank wait for a state. `newest`: steps that are complete after the newest exchange."""
        times = self._in_vain.get(rank, 0)
        self._in_vain[rank] = times + 1
        pause = 0 if times == 0 or self._ending else min(2**times, MAX_PAUSE_EXCHANGES)
        self.until[rank] = newest + pause * self.period

    def in_time(self, rank: int) -> None:
        """Count an answer in time, after which the rank's next wait is short."""
        self._in_vain.pop(rank, None)

    def due(self, event: int) -> bool:
        """Return whether any rank takes the state after the step `event`."""
        return any(step <= event for step in self.until.values())

    def waiting(self, state: State | None) -> set[int]:
        """Return the ranks that wait for a newer state than the given one. Other late ranks are about to take it."""
        return {rank for rank, step in self.until.items() if state is None or step > state.step}

    def stranded(self, ranks: Collection[int], state: State | None, newest: int) -> bool:
        """Return whether all ranks wait for a newer state than the given one, which no rank can send.

        If all wait, their pauses end: they take the state after `newest` steps.
        """
        if waits := bool(ranks) and self.waiting(state).issuperset(ranks):
            self.end_pauses(newest)
        return waits and (state is None or newest > state.step)

    def end_pauses(self, step: int, last: bool = False) -> None:
        """Let waiting ranks take the state after `step`: their answers are needed, or the step is the last."""
        self._ending = self._ending or last
        self.until = {rank: min(until, step) for rank, until in self.until.items()}

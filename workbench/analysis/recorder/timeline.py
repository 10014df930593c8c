"""Phases of the current step, derived from the calls that begin and end in a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.analysis.recorder.clock import Marks
from workbench.analysis.recorder.steps import EXCHANGE, FORWARD_EXCHANGE

DATA, FORWARD, BACKWARD, OPTIMISER, OTHER = "data", "forward", "backward", "optimiser", "other"
PROBE = "probe"  # not a phase of the step: its time is not recorded


class Timeline:
    """Phases of one rank's steps, in the training thread.

    The time between a batch and its backward pass, or the next batch, is the forward pass, with the loss. The time
    from the last backward pass of a step to the end of its optimiser belongs to the optimiser.

    >>> timeline = Timeline()
    >>> timeline.data_begins(), timeline.data_ends(), timeline.backward_begins(), timeline.gradients_are_done()
    (None, None, None, None)
    >>> timeline.backward_ends()
    >>> timeline.step_ends().phases
    ['other', 'data', 'forward', 'backward', 'exchange', 'optimiser', 'other']
    """

    def __init__(self, event: Callable[[], Any] = lambda: None) -> None:
        self._event = event  # returns an event of the device that is recorded now, or None
        self._marks = Marks()
        # stack of the phases around the current one, such as backward around an exchange
        self._outer: list[str] = []
        self._backward = False
        self.begin(OTHER)

    def begin(self, phase: str) -> None:
        """Begin a phase now."""
        self._marks.add(phase, self._event())

    @property
    def phase(self) -> str:
        """Current phase of the rank."""
        return self._marks.phases[-1]

    def data_begins(self) -> None:
        """Record that the rank begins to wait for its next batch."""
        if self.phase == OPTIMISER:  # the step has not ended: gradients are accumulated over several batches
            self._marks.phases[-1] = FORWARD
        self.begin(DATA)

    def data_ends(self) -> None:
        """Record that the batch has arrived."""
        self.begin(FORWARD)

    def backward_begins(self) -> None:
        """Record that the backward pass begins. The phase before it was the forward pass."""
        self._marks.phases[-1] = FORWARD
        self._backward = True
        self.begin(BACKWARD)

    def gradients_are_done(self) -> None:
        """Record that the rank has all its gradients, and waits only for the exchange."""
        if self._backward:
            self.begin(EXCHANGE)

    def backward_ends(self) -> None:
        """Record that the backward pass, and the exchange within it, have ended."""
        self._backward = False
        self.begin(OPTIMISER)

    def optimiser_begins(self) -> None:
        """Record that the optimiser begins. During a backward pass, its time counts as backward."""
        self.begin(BACKWARD if self._backward else OPTIMISER)

    def enter(self, phase: str) -> None:
        """Begin a phase within another one."""
        self._outer.append(self.phase)
        self.begin(phase)

    def exchange_begins(self) -> None:
        """Begin an exchange within another phase. In the forward pass, it has a name of its own."""
        self.enter(FORWARD_EXCHANGE if self.phase == FORWARD else EXCHANGE)

    def leave(self) -> None:
        """Return to the outer phase."""
        self.begin(self._outer.pop())

    def step_ends(self) -> Marks:
        """Return the marks of the step that ends now, and begin the next."""
        following = BACKWARD if self._backward else OTHER
        self.begin(following)
        ended, self._marks = self._marks, Marks()
        self._marks.moments.append(ended.moments[-1])
        self._marks.phases.append(following)
        self._marks.events.extend(ended.events[-1:])
        return ended

"""Base classes of faults: a worker, a round, and a change to the worker's program."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self, cast

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from workbench.core.base.plugins import Catalogue, KindFamily
from workbench.core.base.settings import SettingError, setting
from workbench.core.contract.protocol import Compute, Effect, Hold, Node, Program


class Fault(KindFamily):
    """Fault of one worker from a round on. Subclasses have a `kind`.

    >>> import workbench as wb
    >>> e = wb.Experiment(scheme="GC", workers=6, faults=[{"kind": "kill", "worker": 2, "round": 10}])
    >>> e.faults[0].kind
    'kill'
    """

    catalogue: ClassVar[Catalogue[Fault]] = Catalogue(
        "kind", "workbench.core.contract.faults", "workbench.faults"
    )
    for_good: ClassVar[bool] = False  # whether the worker never answers again
    changes_times: ClassVar[bool] = True  # whether it changes times; forecasts refuse such faults
    # whether it changes answers; simulated messages then carry real vectors
    changes_answers: ClassVar[bool] = False

    worker: int = setting(description="rank of the worker, from 1", ge=1)
    round: int = setting(description="first round with the fault, from 0", ge=0)

    def active(self, round: int) -> bool:
        """Return whether the worker has the fault in a round."""
        return round >= self.round

    def begin(self, round: int) -> Program:
        """Yield effects once, before the first computation of the worker in a round with the fault."""
        yield from ()

    def change(self, effect: Effect) -> Effect:
        """Return the effect that replaces an effect of the worker's program in a round with the fault."""
        return effect

    def program(self, program: Program, node: Node) -> Program:
        """Return a worker's program with this fault."""
        answer, noted = None, -1
        # so that a resumed run does not repeat a pause that is over
        pending = self.for_good or node.first <= self.round
        while True:
            try:
                effect = program.send(answer)
            except StopIteration:
                return
            if pending and isinstance(effect, Compute) and self.active(effect.round):
                pending = False
                yield from self.begin(effect.round)
            round = getattr(effect, "round", None)
            if round is not None and self.active(round):
                changed = self.change(effect)
                if changed is not effect and round > noted:
                    noted = round
                    yield Hold(0.0, round)
                effect = changed
            answer = yield effect


class Lasting(Fault):
    """Base of faults that may end before the run does."""

    last: int | None = setting(None, "last round with the fault; empty = to the end of the run", ge=0)

    def active(self, round: int) -> bool:
        """Return whether a round is between the fault's first and last round."""
        return self.round <= round and (self.last is None or round <= self.last)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.last is not None and self.last < self.round:
            raise SettingError(
                f"last = {self.last}: is before round = {self.round}; take {self.round} or more"
            )
        return self


def fault_from(value: Any) -> Fault:
    """Build a fault from fields, which include its kind (default: kill). A fault is returned unchanged."""
    return cast(Fault, Fault.from_fields(value, "kill"))


# type of a field that accepts every fault
Faults = Annotated[SerializeAsAny[Fault], BeforeValidator(fault_from)]


def with_faults(program: Program, node: Node, faults: Iterable[Fault]) -> Program:
    """Return the program of one node with the faults of its worker."""
    for fault in faults:
        if fault.worker == node.rank:
            program = fault.program(program, node)
    return program

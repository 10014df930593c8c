"""A delay model that becomes another one in the middle of a run: the case that adaptive selection is for."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from workbench.core.base.settings import SettingError, setting, within
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, DelayModel, Delays
from workbench.core.contract.delays.independent import ShiftedExponential


class Changing(DelayModel):
    """One delay model up to a round, another from then on, for all workers or for one; either may change again.

    >>> from workbench.core.contract.delays import Constant
    >>> law = Changing(before=Constant(), after=Constant(shift=2e-4), at=3, worker=2)
    >>> [law.compute(law.draw(CounterRNG(0), r, 3, 0, None), np.full(3, 10)).round(6).tolist() for r in (2, 3)]
    [[0.0005, 0.0005, 0.0005], [0.0005, 0.002, 0.0005]]
    """

    markovian: ClassVar[bool] = True  # the delay models may have one
    per_run: ClassVar[bool] = True
    kind = "changing"
    before: Delays = setting(ShiftedExponential(), "law of the first rounds")
    after: Delays = setting(ShiftedExponential(shift=2e-4, rate=5e3), "law of the others")
    at: int = setting(50, "first round of the others", ge=0)
    worker: int | None = setting(None, "rank of the only worker that changes, from 1; empty = all do", ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, delay_model in (("before", self.before), ("after", self.after)):
            if getattr(delay_model, "as_recorded", False) or getattr(delay_model, "per", "worker") == "part":
                raise SettingError(
                    f"{name}: times as they were recorded, or a draw for each part, cannot change; take another law"
                )
        return self

    def check(self, workers: int) -> None:
        if self.worker is not None and self.worker > workers:
            raise SettingError(f"worker = {self.worker}: {there_are('worker', 1, workers)}")
        for name, delay_model in (("before", self.before), ("after", self.after)):
            with within(name):
                delay_model.check(workers)

    def check_loads(self, loads: NDArray[Any]) -> None:
        for delay_model in (self.before, self.after):
            delay_model.check_loads(loads)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Draws of both delay models, one above the other, and in the first row which of them counts for whom."""
        _, *own = (None, None, None) if before is None else self._each(before)
        one = self.before.draw(keyed, round, workers, slot, own[0])
        other = self.after.draw(keyed, round, workers, slot, own[1])
        changed = np.full(workers, float(round >= self.at))
        if self.worker is not None:
            changed *= np.arange(1, workers + 1) == self.worker
        return np.vstack([changed, np.full(workers, float(len(one))), one, other])

    def _each(self, draw: Array) -> tuple[Array, Array, Array]:
        split = int(draw[1, 0]) if draw.shape[1] else 0
        return draw[0] > 0, draw[2 : 2 + split], draw[2 + split :]

    def compute(self, draw: Array, samples: NDArray[Any]) -> Array:
        changed, one, other = self._each(draw)
        return np.where(changed, self.after.compute(other, samples), self.before.compute(one, samples))

    def sending(self, draw: Array, share: float) -> Array | None:
        """Likewise; a delay model without a sending time has none."""
        changed, one, other = self._each(draw)
        before, after = self.before.sending(one, share), self.after.sending(other, share)
        if before is None and after is None:
            return None
        none = np.zeros(draw.shape[1])
        return np.where(changed, none if after is None else after, none if before is None else before)

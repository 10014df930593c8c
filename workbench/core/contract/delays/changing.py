"""Delay model that is replaced by another one during a run: the use case of adaptive selection."""

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
    """One delay model before a round, and another one from that round on, for all workers or for one.

    Each of the two may be `changing` itself.

    >>> from workbench.core.contract.delays import Constant
    >>> law = Changing(before=Constant(), after=Constant(shift=2e-4), at=3, worker=2)
    >>> [law.compute(law.draw(CounterRNG(0), r, 3, 0, None), np.full(3, 10)).round(6).tolist() for r in (2, 3)]
    [[0.0005, 0.0005, 0.0005], [0.0005, 0.002, 0.0005]]
    """

    markovian: ClassVar[bool] = True  # either delay model may be markovian
    per_run: ClassVar[bool] = True
    kind = "changing"
    before: Delays = setting(ShiftedExponential(), "delay model of the rounds before `at`")
    after: Delays = setting(ShiftedExponential(shift=2e-4, rate=5e3), "delay model from round `at` on")
    at: int = setting(50, "first round with the delay model `after`", ge=0)
    worker: int | None = setting(
        None, "rank of the only worker that changes, from 1; empty = all workers", ge=1
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, delay_model in (("before", self.before), ("after", self.after)):
            if getattr(delay_model, "as_recorded", False) or getattr(delay_model, "per", "worker") == "part":
                raise SettingError(
                    f"{name}: times as they were recorded, or a draw for each part, cannot change; take another"
                    " delay model"
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
        """Return the draws of both delay models, stacked.

        The first row is 1 for workers that have changed, the second is the number of rows of the first delay model.
        """
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
        """Return each worker's sending time, s: 0 if its delay model has none. Return None if neither model has any."""
        changed, one, other = self._each(draw)
        before, after = self.before.sending(one, share), self.after.sending(other, share)
        if before is None and after is None:
            return None
        none = np.zeros(draw.shape[1])
        return np.where(changed, none if after is None else after, none if before is None else before)

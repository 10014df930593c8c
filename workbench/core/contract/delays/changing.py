"""Delay model that is replaced by another one during a run, for which adaptive selection is made."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from workbench.core.base.settings import SettingError, setting
from workbench.core.base.type_checks import there_are
from workbench.core.base.types import Array
from workbench.core.contract.delays.base import CounterRNG, DelayModel, Delays
from workbench.core.contract.delays.combined import Combined
from workbench.core.contract.delays.independent import ShiftedExponential


class Changing(Combined):
    """One delay model before a round, and another one from that round on, for all workers or for one.

    Each of the two may be `changing` itself.

    >>> from workbench.core.contract.delays import Constant
    >>> model = Changing(before=Constant(), after=Constant(shift=2e-4), at=3, worker=2)
    >>> [model.compute(model.draw(CounterRNG(0), r, 3, 0, None), np.full(3, 10)).round(6).tolist() for r in (2, 3)]
    [[0.0005, 0.0005, 0.0005], [0.0005, 0.002, 0.0005]]
    """

    kind = "changing"
    branches: ClassVar[bool] = False
    before: Delays = setting(ShiftedExponential(), "delay model of the rounds before `at`")
    after: Delays = setting(ShiftedExponential(shift=2e-4, rate=5e3), "delay model from round `at` on")
    at: int = setting(50, "first round with the delay model `after`", ge=0)
    worker: int | None = setting(None, "rank of the only changing worker, from 1; empty = all workers", ge=1)

    @property
    def parts(self) -> Mapping[str, DelayModel]:
        """Both delay models by their field."""
        return {"before": self.before, "after": self.after}

    def check(self, workers: int) -> None:
        if self.worker is not None and self.worker > workers:
            raise SettingError(f"worker = {self.worker}: {there_are('worker', 1, workers)}")
        super().check(workers)

    def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
        """Return the draws of both delay models, stacked. The first row is 1 for workers that have changed."""
        each = zip(self.parts.values(), self.before_of(before), strict=True)
        draws = [part.draw(keyed, round, workers, slot, own) for part, own in each]
        changed = np.full(workers, float(round >= self.at))
        if self.worker is not None:
            changed *= np.arange(1, workers + 1) == self.worker
        return self.stacked(changed, draws)

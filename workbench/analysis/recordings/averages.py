"""Diagnosis from averages alone, as in the summaries of other tools: which workers are slow.

A summary has no times of single steps. So there are no bands, no significance tests and no predicted savings. The
result is the workers whose average is clearly above the median, and the phase that differs most.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from workbench.analysis.recordings.card import LATE_RATIO
from workbench.analysis.recordings.recording import LAYER_PREFIX, Recording
from workbench.core.base.settings import SettingError

AVERAGED = "averaged"  # key of a recording's source: number of averaged steps, as text; "" if it is unknown


class SlowAverage(NamedTuple):
    """Worker whose average own time is clearly above the median (in s), and the phase that exceeds its median most."""

    who: str
    seconds: float
    median: float
    phase: str
    phase_seconds: float
    phase_median: float

    @property
    def ratio(self) -> float:
        """Ratio of its time to the median."""
        return self.seconds / self.median

    def __str__(self) -> str:
        own = f"{self.who}: {self.ratio:.2f} times the median ({self.seconds:.4g} s, not {self.median:.4g} s)"
        return (
            f"{own}, most of it in {self.phase} ({self.phase_seconds:.4g} s, not {self.phase_median:.4g} s)"
        )


@dataclass(frozen=True)
class Averages:
    """Workers with slow averages, the slowest first. `seconds`: own average of every worker, s, by name."""

    name: str
    steps: str
    culprits: tuple[SlowAverage, ...]
    seconds: Mapping[str, float]
    left_out: str

    @classmethod
    def of(cls, job: Recording) -> Self:
        """Compare the averages of one job. Raise `SettingError` for a single worker, or if the median is 0."""
        own = job.table().iloc[0]
        name, median = job.names[0], float(own.median())
        if len(own) < 2:
            raise SettingError(f"recording = {name!r}: has one worker, which cannot be compared with others")
        if not median > 0:
            raise SettingError(f"recording = {name!r}: has times of 0 {job.units}; was a step traced?")
        phases = job.frame.pivot_table(index="worker", columns="phase", values="seconds", fill_value=0.0)
        phases = phases[[each for each in phases if each != "exchange"]]
        over = phases - phases.median()
        slow = [
            worker for worker in own.sort_values(ascending=False).index if own[worker] > LATE_RATIO * median
        ]
        found = []
        for worker in slow:
            phase = str(over.loc[worker].idxmax())
            mine = float(phases.loc[worker, phase]), float(phases[phase].median())
            shown = phase.removeprefix(LAYER_PREFIX)
            found.append(SlowAverage(f"worker {worker}", float(own[worker]), median, shown, *mine))
        times = dict(zip(map("worker {}".format, own.index), np.asarray(own, float).tolist(), strict=True))
        left_out = job.source.get("left_out", "")
        return cls(name, job.source.get(AVERAGED, ""), tuple(found), times, left_out)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        steps = f"{self.steps} steps" if self.steps else "its steps"
        yield f"{self.name}: averages of {steps} for {len(self.seconds)} workers"
        yield from map(str, self.culprits)
        if not self.culprits:
            yield f"no worker stands out: each average is at most {LATE_RATIO} times the median"
        test = "a test against chance, and what would help, as single steps were not recorded"
        yield f"left out: {'; '.join(filter(None, [self.left_out, test]))}"

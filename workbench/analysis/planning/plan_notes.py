"""Notes for the reader of a plan: step sizes that the user chose, sizes that were not measured, fewer samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.analysis.planning.profile import ClusterProfile
from workbench.analysis.planning.targets import Target, leaves_step_open
from workbench.core.experiment import Experiment


def step_notes(base: Experiment, effort: float) -> Iterator[str]:
    """Yield a note if the step sizes were not chosen by the planner."""
    if not leaves_step_open(base):
        yield (
            f"optimiser_args = {base.optimiser_args}: all schemes are compared at these, as asked for; leave them out,"
            " and each is compared at the step that suits it"
        )
    elif not effort:
        yield "effort = 0: no step was chosen, all take the automatic one"


def notes(cluster: ClusterProfile, base: Experiment, aim: Target) -> Iterator[str]:
    """Yield notes for readers of a plan, about its measurement, its sizes and its simulations."""
    yield from cluster.notes()
    chances = cluster.slow_for_good() if cluster.same_machines else None
    if chances is not None and (slow := (np.flatnonzero(chances[: base.workers] > 0.5) + 1).tolist()):
        who = f"worker {slow[0]} of" if len(slow) == 1 else f"workers {', '.join(map(str, slow))} of"
        yield (
            f"for the very machines that were measured: {who} {base.workers} {'is' if len(slow) == 1 else 'are'} slow"
            " for good; machines = 'new' plans for others of their kind"
        )
    if base.workers != cluster.workers:
        yield (
            f"measured with {cluster.workers} workers, planned for {base.workers}: workers that share a core or a"
            " network slow one another down; measure with as many"
        )
    samples, floats = base.shape()
    if aim.samples and aim.samples < samples:
        yield f"rounds were simulated on {aim.samples} of {samples} samples"
    longest = max(each.typical for each in cluster.recorded)
    share = cluster.fitted.work.seconds(samples / base.workers, floats) / longest
    if share > 4:
        yield (
            f"a worker's task takes {share:.1f} times as long as the longest that was measured:"
            " measure with `like` this experiment"
        )
    if base.problem != cluster.problem:
        yield f"measured with problem {cluster.problem}, planned for {base.problem}: a sample may cost more or less"

"""Steps of a pipelined job, compared with counting by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from workbench.analysis.recordings.pipeline import Pipeline
from workbench.core.base.settings import SettingError


def job(
    stages: int, batches: int, forward: float = 1.0, backward: float = 2.0, replicas: int = 2
) -> pd.DataFrame:
    """Make a job in which all forward computations precede all backward ones, without transfers."""
    rows = []
    for step in range(2):
        for replica in range(replicas):
            for stage in range(stages):
                for b in range(batches):
                    start = (stage + b) * forward
                    rows.append((step, replica, stage, "forward-compute", b, start, start + forward))
                    turn = (stages + batches - 1) * forward + (stages - 1 - stage + b) * backward
                    rows.append((step, replica, stage, "backward-compute", b, turn, turn + backward))
    return pd.DataFrame(rows, columns=["step", "dp_rank", "stage", "optype", "seq_id", "start", "end"])


@pytest.mark.parametrize(("stages", "batches"), [(1, 1), (1, 4), (3, 1), (4, 8)])
def test_pipeline_time_of_equal_stages(stages: int, batches: int) -> None:
    """In GPipe, m + p - 1 forward computations precede as many backward ones."""
    made = Pipeline.of(job(stages, batches))
    np.testing.assert_allclose(made.seconds(made.durations), (batches + stages - 1) * 3.0)
    np.testing.assert_allclose(made.seconds(made.even()), (batches + stages - 1) * 3.0)


def test_pipeline_is_limited_by_a_slow_replica_or_a_long_stage() -> None:
    made = Pipeline.of(job(2, 4))
    slow = {k: d.copy() for k, d in made.durations.items()}
    for key in slow:
        slow[key][:, 1] *= 2.0
    np.testing.assert_allclose(made.seconds(slow), 30.0)
    long = {k: d * (2.0 if k[2] == 1 else 1.0) for k, d in made.durations.items()}
    np.testing.assert_allclose(made.seconds(long), 1 + 4 * 2 + 4 * 4 + 2)


def test_pipeline_waiting_is_not_a_transfer() -> None:
    rows = job(1, 1)
    ends = [(s, r, 0, "grads-reduce-scatter", 0, 3.0 + r, 6.0) for s in range(2) for r in range(2)]
    made = Pipeline.of(pd.concat([rows, pd.DataFrame(ends, columns=rows.columns)]))
    np.testing.assert_allclose(made.durations["grads-reduce-scatter", 0, 0], 2.0)


def test_pipeline_refuses_unsupported_schedules() -> None:
    with pytest.raises(SettingError, match="stages hold several chunks"):
        Pipeline.of(job(2, 2).assign(mc=1))
    with pytest.raises(SettingError, match="every step has to have it once"):
        Pipeline.of(job(2, 2)[1:])


def test_pipeline_work_is_even_where_forward_and_backward_correlate() -> None:
    made, rng = Pipeline.of(job(2, 4)), np.random.default_rng(0)
    length = {
        (k[1], step, replica): rng.uniform(0.5, 2)
        for k in made.durations
        for step in range(2)
        for replica in range(2)
    }
    uneven = {
        k: d * [[length[k[1], step, replica] for replica in range(2)] for step in range(2)]
        for k, d in made.durations.items()
    }
    even = replace(made, durations=uneven).even_work()
    assert even is not None
    for kind, long in (("forward-compute", 1.0), ("backward-compute", 2.0)):
        for replica in range(2):
            own = np.mean([length[n, step, replica] for n in range(4) for step in range(2)])
            np.testing.assert_allclose(even[kind, 0, 0][:, replica], long * own)
    noise = {k: d * rng.uniform(0.5, 2, d.shape) for k, d in made.durations.items()}
    assert replace(made, durations=noise).even_work() is None
    assert made.even_work() is None  # all equal

"""Memory is checked before a run: a refusal is one sentence, and unneeded vectors are not kept."""

from __future__ import annotations

import tracemalloc
from typing import Any

import psutil
import pytest
from hypothesis import given

import workbench as wb
from tests.support.strategies import CASES, experiments
from workbench.core.base.settings import SettingError
from workbench.core.engine.virtual.arithmetic import Numbers
from workbench.core.running.memory import LEARNING_VECTORS, check_memory, vectors_held
from workbench.core.running.simulated import timeline

WIDEST = 10**8  # parameters of a model


def wide(scheme: str = "UMW", workers: int = 8, features: int = 4, **fields: Any) -> wb.Experiment:
    args = {"samples": 5 * workers, "features": features}
    return wb.Experiment(scheme=scheme, workers=workers, problem="least_squares", problem_args=args, **fields)


@given(experiments(list(CASES), rounds=3))
def test_vectors_held_cover_an_answer_of_each_worker(spec: dict[str, Any]) -> None:
    e = wb.Experiment(**spec)
    held = vectors_held(e)
    assert held.master >= LEARNING_VECTORS + e.workers
    assert held.worker >= 4


def too_wide() -> wb.Experiment:
    """Return an experiment that needs twice the available memory."""
    workers = int(2 * psutil.virtual_memory().available // (8 * WIDEST))
    return wide(workers=workers, features=WIDEST)


def test_check_memory_names_what_would_fit() -> None:
    e = too_wide()
    with pytest.raises(
        SettingError, match=f"^workers = {e.workers}: UMW holds about {e.workers + 8} vectors"
    ) as raised:
        check_memory(e)
    words = str(raised.value)
    assert "GB of memory are free; take " in words
    fewer, most = (int(words.split(before)[1].split()[0]) for before in ("take ", "at most "))
    assert 0 < fewer < 0.6 * e.workers
    check_memory(e, carried=False)  # coefficients only
    for fits in (
        wide(workers=int(0.8 * fewer), features=WIDEST),
        wide(workers=e.workers, features=most // 2),
    ):
        check_memory(fits)


@pytest.mark.parametrize("engine", ["sim", pytest.param("mpi", marks=pytest.mark.mpi)])
@pytest.mark.xdist_group("mpi")
def test_runs_without_room_are_refused(engine: str) -> None:
    options = {"numeric": True} if engine == "sim" else {}
    with pytest.raises(SettingError, match=r"^workers = \d+: UMW holds about \d+ vectors of"):
        wb.run(too_wide(), engine=engine, **options)


def test_numbers_without_keep_hold_two_models() -> None:
    e = wide("GC", rounds=40)
    kept, few = (Numbers(e.plan, e.build_problem(), e.build_optimiser(), keep=keep) for keep in (True, False))
    for numbers in (kept, few):
        timeline(e, numbers, events=False)
    assert (len(kept.models), len(kept.gradients)) == (41, 40)
    assert (len(few.models), len(few.gradients)) == (2, 0)
    assert (few.models[-1] == kept.models[-1]).all()


def test_a_longer_numeric_run_holds_no_more_vectors() -> None:
    floats = 20_000
    peaks = []
    for rounds in (4, 40):
        e = wide(features=floats, rounds=rounds, optimiser_args={"step": 1e-9})
        wb.run(e.replace(rounds=2), numeric=True, events=False)  # load data and modules first
        tracemalloc.start()
        wb.run(e, numeric=True, events=False)
        peaks.append(tracemalloc.get_traced_memory()[1] / 8 / floats)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 4
    assert peaks[1] < vectors_held(e).master + e.shape()[0]  # and a row of the data

"""Sweeps whose engines are killed and paused at random moments, 50 or 10 times, equal undisturbed ones."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.support.disturbances import DEAD_AFTER_BEATS, Disturber, assert_same, engines
from tests.support.sweep_runs import QUICK
from workbench.core.trace.layout import ATTEMPTS
from workbench.lab.batch import Sweep, sweep
from workbench.lab.batch import engines as module
from workbench.mpi.launch.processes import awaited

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
DISTURBANCES = 50
PLAN = Sweep(base={**QUICK, "rounds": 400}, seeds=16)
SHARDED = Sweep(base={**QUICK, "workers": 40, "rounds": 100}, seeds=400, notebooks=False)


def rounds_of(plan: Sweep, undisturbed: Path, folder: Path, times: int, kills: float) -> None:
    """Repeat a sweep until `times` disturbances were made in all. Compare each repetition with `undisturbed`."""
    done, hits = list[str](), 0
    for seed in count():

        def in_a_run(pid: int, attempts: Path = folder / str(seed) / ATTEMPTS) -> bool:
            """Return whether an engine has an attempt, or any has a task of many runs."""
            return any(attempts.glob(f"*-{pid}-*")) or any(attempts.glob("?" * 16))

        with Disturber(engines, times - len(done), seed, kills, in_a_run) as disturber:
            summary = sweep(
                plan, folder / str(seed), executor={"kind": "ipyparallel", "engines": 2}, progress=False
            )
        done += disturber.done
        hits += disturber.hits
        print(f"seed {seed}: {', '.join(disturber.done)}; {summary}", flush=True)
        assert not summary.failed
        assert_same(undisturbed, folder / str(seed))
        assert awaited(lambda: not engines(), 60.0)
        if len(done) >= times:
            assert hits >= times // 2  # the others hit engines that were starting, or between two runs
            return


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep(PLAN, folder := tmp_path_factory.mktemp("undisturbed") / "sweep", jobs=2, progress=False)
    return folder


@pytest.fixture(scope="module")
def undisturbed_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sweep(SHARDED, folder := tmp_path_factory.mktemp("shards") / "sweep", jobs=2, progress=False)
    return folder


@pytest.fixture(autouse=True)
def soon_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a paused engine as dead after a few missed heartbeats, so that another engine repeats its run."""
    monkeypatch.setattr(module, "MAX_MISSED_BEATS", DEAD_AFTER_BEATS)


def test_notebooks_on_engines_that_are_killed_and_paused(undisturbed: Path, tmp_path: Path) -> None:
    rounds_of(PLAN, undisturbed, tmp_path, DISTURBANCES, kills=0.5)


def test_shards_on_engines_that_are_killed_and_paused(undisturbed_shards: Path, tmp_path: Path) -> None:
    rounds_of(SHARDED, undisturbed_shards, tmp_path, DISTURBANCES // 5, kills=0.5)

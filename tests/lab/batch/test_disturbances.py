"""Sweeps whose engines are killed and paused at random moments, 50 times, equal undisturbed ones."""

from __future__ import annotations

import threading
from itertools import count
from pathlib import Path

import psutil
import pytest

from tests.support.disturbances import DEAD_AFTER_BEATS, Disturber, assert_same, engines, files_of, workers
from tests.support.sweep_runs import QUICK, SLOW_ROUNDS, computes, wait_for
from workbench.core.trace.layout import ATTEMPTS
from workbench.lab.batch import Sweep, sweep
from workbench.lab.batch import engines as module
from workbench.mpi.launch.processes import awaited

pytestmark = [pytest.mark.mpi, pytest.mark.slow]
DISTURBANCES, KILLS = 50, 0.5  # number, and share of kills among them
MIN_HITS = DISTURBANCES // 2  # min disturbances during runs
PROCESSES = {"ipyparallel": engines, "processes": workers}  # by kind of the executor
PLAN = Sweep(base={**QUICK, "rounds": 400}, seeds=16)
SHARDED = Sweep(base={**QUICK, "workers": 40, "rounds": 100}, seeds=400, notebooks=False)


def rounds_of(plan: Sweep, undisturbed: Path, folder: Path, kind: str = "ipyparallel") -> None:
    """Repeat a sweep until `DISTURBANCES` were made, `MIN_HITS` of them during runs. Compare each repetition."""
    done, hits, processes = list[str](), 0, PROCESSES[kind]
    for seed in count():

        def in_a_run(pid: int, attempts: Path = folder / str(seed) / ATTEMPTS) -> bool:
            """Return whether an engine has an attempt, or any has a task of many runs."""
            return any(attempts.glob(f"*-{pid}-*")) or any(attempts.glob("?" * 16))

        left = max(DISTURBANCES - len(done), MIN_HITS - hits)
        with Disturber(processes, left, seed, KILLS, in_a_run) as disturber:
            summary = sweep(plan, folder / str(seed), executor={"kind": kind, "engines": 2}, progress=False)
        done += disturber.done
        hits += disturber.hits
        print(f"seed {seed}: {', '.join(disturber.done)}; {summary}", flush=True)
        assert not summary.failed
        assert_same(undisturbed, folder / str(seed))
        assert awaited(lambda: not processes(), 60.0)
        # the others hit processes that were starting, or between two runs
        if len(done) >= DISTURBANCES and hits >= MIN_HITS:
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


@pytest.mark.parametrize("kind", PROCESSES)
def test_notebooks_on_engines_that_are_killed_and_paused(
    kind: str, undisturbed: Path, tmp_path: Path
) -> None:
    rounds_of(PLAN, undisturbed, tmp_path, kind)


def test_shards_on_engines_that_are_killed_and_paused(undisturbed_shards: Path, tmp_path: Path) -> None:
    rounds_of(SHARDED, undisturbed_shards, tmp_path)


def test_paused_host_that_goes_on_after_the_sweep_leaves_no_file(tmp_path: Path) -> None:
    """The engine, its fork server and its kernel are paused in a run. The kernel goes on before the engine does."""
    plan, paused = Sweep(base={**QUICK, "rounds": 4 * SLOW_ROUNDS}, seeds=2), list[psutil.Process]()

    def computing() -> list[psutil.Process]:
        """Return an engine, its fork server and its kernel that computes a run."""
        trees = ([engine, *engine.children(recursive=True)] for engine in engines())
        return next((tree for tree in trees if computes(tree[-1]) and tree[-1].cpu_times().user > 0.5), [])

    def pause() -> None:
        paused.extend(wait_for(computing))
        for process in paused:
            process.suspend()

    def names() -> list[Path]:
        return sorted(tmp_path.rglob("*"))

    with module.started("local", 2) as running:
        executor = running.client.executor()
        assert awaited(lambda: len(running.client.ids) == 2, 60.0)
        thread = threading.Thread(target=pause)
        thread.start()
        summary = sweep(plan, tmp_path, executor=executor, progress=False)
        thread.join()
        assert len(summary.named("done")) == 2
        before, content = names(), files_of(tmp_path)
        for process in paused[1:]:
            process.resume()
        assert awaited(lambda: names() != before or paused[-1].cpu_percent(2.0) < 10, 120.0)
        assert names() == before
        paused[0].resume()
        assert executor.submit(int, "7").result(60) == 7
        assert not awaited(lambda: names() != before, 3.0)
        assert files_of(tmp_path) == content

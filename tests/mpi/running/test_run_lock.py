"""The lock of a run folder: one run at a time. The second one is refused, and nothing is written twice."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.sampled_cases import sampled_cases
from tests.support.specs import quick
from workbench.core.base.locks import Lock
from workbench.core.trace import records
from workbench.core.trace.layout import RUN_LOCK
from workbench.mpi.running.ownership import locked_again
from workbench.mpi.running.real import RealRun, attach, resume, start_real

COMMAND = "from workbench.cli.main import main; main()"
mpi = [pytest.mark.mpi, pytest.mark.xdist_group("mpi")]
SPEC = quick("UMW", rounds=300, samples=120, features=20)


def going(run: RealRun, rounds: int = 5) -> RealRun:
    while len(run.rows()["round"]) < rounds:
        assert not run.wait(0.01), run
    return run


def both(work: Any) -> tuple[list[RealRun], list[str]]:
    """Call `work` in two threads at once. Return the runs that began, and the errors of the other calls."""
    together = Barrier(2)

    def one(_: int) -> RealRun | str:
        together.wait(60)
        try:
            run: RealRun = work()
        except wb.SettingError as error:
            return str(error)
        return run

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(one, range(2)))
    return [r for r in found if not isinstance(r, str)], [r for r in found if isinstance(r, str)]


def rounds_written(home: Path) -> list[int]:
    return [int(k) for k in records.read_rows(home)[:, 0]]


@pytest.mark.usefixtures("cache")
class TestReal:
    pytestmark = mpi

    @pytest.mark.parametrize("turn", sampled_cases("two starts", 1, range(3)))
    def test_run_lock_of_two_starts_in_one_folder(self, tmp_path: Path, turn: int) -> None:
        e = wb.Experiment(**{**SPEC, "rounds": 30})
        runs, errors = both(lambda: start_real(e, folder=tmp_path / "run"))
        assert len(runs) == 1, errors
        assert "exists already" in errors[0]
        assert len(runs[0].result().rounds) == 30
        assert rounds_written(tmp_path / "run") == list(range(30))

    def test_run_lock_of_two_resumes(self, tmp_path: Path) -> None:
        run = going(start_real(wb.Experiment(**SPEC), folder=tmp_path / "run"))
        run.stop()
        run.result()
        runs, errors = both(lambda: resume(run.home))
        assert len(runs) == 1, errors
        assert "still under way" in errors[0]
        assert len(runs[0].result().rounds) == 300
        assert rounds_written(run.home) == list(range(300))
        assert len(attach(run.home).result().rounds) == 300

    def test_run_lock_refuses_a_second_process(self, tmp_path: Path) -> None:
        run = going(start_real(wb.Experiment(**{**SPEC, "rounds": 100_000}), folder=tmp_path / "run"))
        text = [
            subprocess.run([sys.executable, "-c", COMMAND, *text], capture_output=True, text=True)
            for text in (
                ["resume", str(run.home)],
                ["run", "--engine", "mpi", "-o", str(run.home)],
            )
        ]
        assert [done.returncode for done in text] == [2, 2]
        assert "still under way" in text[0].stderr
        assert "exists already" in text[1].stderr
        run.stop()
        run.result()
        assert rounds_written(run.home) == list(range(len(run.rows()["round"])))

    def test_run_lock_is_kept_by_ranks_without_a_client(self, tmp_path: Path) -> None:
        """There may be no record of the owner, because owner.json is written shortly after the run is submitted."""
        run = going(start_real(wb.Experiment(**{**SPEC, "rounds": 100_000}), folder=tmp_path / "run"))
        assert run.lock is not None
        run.lock.release()
        (run.home / "owner.json").unlink()
        with pytest.raises(wb.SettingError, match="still under way"):
            resume(run.home)
        run.stop()
        run.result()
        assert Lock(run.home / RUN_LOCK).take()

    def test_attach_neither_writes_nor_locks(self, tmp_path: Path) -> None:
        run = start_real(wb.Experiment(**{**SPEC, "rounds": 30}), folder=tmp_path / "run")
        followers = [attach(run.home) for _ in range(3)]
        assert len({len(each.result().rounds) for each in (run, *followers)}) == 1
        assert wb.Trace.load(run.home).same(run.result())
        assert not Lock(run.home / RUN_LOCK).locked


def test_run_lock_of_a_dead_holder_can_be_taken(tmp_path: Path) -> None:
    first = Lock(tmp_path / RUN_LOCK)
    assert first.take()
    with pytest.raises(wb.SettingError, match="still under way"):
        locked_again(tmp_path)
    first.release()
    locked_again(tmp_path).release()


def test_run_lock_of_two_runs_saved_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs find the name free. The second run must not overwrite the trace of the first one silently."""
    traces = [wb.run(wb.Experiment(rounds=3, workers=12, seed=seed)) for seed in range(2)]
    writing, write = Barrier(2), wb.Trace.write_into

    def together(trace: wb.Trace, folder: Path, *more: Any) -> None:
        write(trace, folder, *more)
        writing.wait(60)

    monkeypatch.setattr(wb.Trace, "write_into", together)

    def save(trace: wb.Trace) -> str:
        try:
            trace.save(tmp_path / "run")
        except wb.SettingError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as threads:
        text = list(threads.map(save, traces))
    assert sorted(map(bool, text)) == [False, True]
    assert "exists already" in max(text)
    kept = wb.Trace.load(tmp_path / "run")
    np.testing.assert_array_equal(kept.rounds["time"], traces[text.index("")].rounds["time"])

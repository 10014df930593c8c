"""Sweeps on executors under adverse conditions: runs and clients that die, full disks, other folders and versions."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from subprocess import DEVNULL, Popen
from types import SimpleNamespace
from typing import Any

import joblib.externals.loky
import psutil
import pytest

import workbench as wb
from tests.support.sweep_runs import QUICK, SLOW_ROUNDS, computes, wait_for
from workbench.analysis.tables.status import Status, attempts
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.trace.layout import ATTEMPTS, SEARCH_STATE
from workbench.lab.batch import Sweep, dispatch, sweep, task
from workbench.lab.batch import run as running
from workbench.lab.batch.dispatch import Dispatcher, NotebookTask
from workbench.lab.batch.executors import Connection, size
from workbench.lab.batch.task import Order

USER_FILE = """
import os, signal
import psutil
from workbench.core.schemes.uncoded import UMW

class Mine(UMW):
    name = "Mine"

class Deadly(UMW):
    name = "Deadly"

    def program(self, node):
        chain = [psutil.Process(), *psutil.Process().parents()]
        pids = [one.pid for one in chain]
        if (client := int(os.environ["CLIENT"])) in pids[1:]:
            os.kill(pids[pids.index(client) - 1], signal.SIGKILL)  # the process of the executor
            signal.pause()
        return super().program(node)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a user file, whose scheme `Deadly` kills the process of the executor that runs it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLIENT", str(os.getpid()))
    Path("mine.py").write_text(USER_FILE)
    return tmp_path


def forked(**options: Any) -> Executor:
    return ProcessPoolExecutor(2, mp_context=get_context("fork"), **options)


def loky() -> Executor:
    return joblib.externals.loky.ProcessPoolExecutor(2)  # type: ignore[no-any-return]


@pytest.mark.parametrize("notebooks", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("pool", [forked, pytest.param(loky, marks=pytest.mark.slow)])
def test_run_that_kills_its_process_fails_and_all_others_are_done(
    here: Path, pool: Callable[[], Executor], notebooks: bool
) -> None:
    cases = [{}, {"scheme": "mine.py:Deadly"}]
    plan = Sweep(base=QUICK, cases=cases, seeds=5, notebooks=notebooks)
    deadly = [item.name for item in plan.items() if item.experiment.scheme != "UMW"]
    only = [item.name for item in plan.items() if item.name not in deadly[1:]]
    summary = sweep(plan, "s", executor=pool, only=only, progress=False)
    assert summary.failed == deadly[:1]
    table = wb.runs("s").table
    assert Counter(table["state"]) == {"done": 5, "failed": 1}
    failed = table[table["state"] == "failed"]
    assert failed["run"].tolist() == deadly[:1]
    assert failed["error"].iloc[0].startswith(f"was lost {dispatch.MAX_LOSSES} times")
    assert not Path("s", ATTEMPTS).exists()


def test_several_runs_that_kill_their_process_end_no_sweep(here: Path) -> None:
    cases = [{"scheme": "mine.py:Deadly"}, {}]
    plan = Sweep(base=QUICK, cases=cases, seeds=4, notebooks=False)
    sweep(plan, "s", executor=forked, progress=False)
    assert Counter(wb.runs("s").table["state"]) == {"done": 4, "failed": 4}


def test_executor_whose_processes_die_before_any_run_ends_the_sweep_soon(here: Path) -> None:
    made: list[Executor] = []

    def pool() -> Executor:
        made.append(forked(initializer=os._exit, initargs=(1,)))
        return made[-1]

    with pytest.raises(RunError, match="the executor is broken again and again"):
        sweep(Sweep(base=QUICK, seeds=3, notebooks=False), "s", executor=pool, progress=False)
    assert len(made) == dispatch.MAX_BROKEN // dispatch.MAX_LOSSES
    assert not len(wb.runs("s"))


def full(*args: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("threads", [1, 3])
def test_full_disk_ends_a_sweep_on_an_executor_of_the_user(
    threads: int, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pauses are bounded, and their number is that of `MAX_HOST_ERRORS` for each process."""
    monkeypatch.setattr("workbench.lab.batch.chunk.write_file", full)
    monkeypatch.setattr(task, "FIRST_PAUSE_S", 1e-3)
    notes: list[str] = []
    monkeypatch.setattr("workbench.core.base.bar.Bar.note", lambda bar, text: notes.append(text))
    plan = Sweep(base=QUICK, seeds=40, notebooks=False)
    with (
        ThreadPoolExecutor(threads) as executor,
        pytest.raises(RunError, match=r"no engine can do its runs \(.*No space left on device.* resumes it"),
    ):
        sweep(plan, "s", executor=executor)
    assert any("No space left on device" in note for note in notes)


def test_pauses_of_a_full_host_are_bounded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("workbench.lab.batch.task.time.monotonic", lambda: now[0])
    monkeypatch.setattr("workbench.lab.batch.task.time.sleep", sleep)
    order = Order(str(here), "bounded", str(here))
    order.took(600.0)
    for _ in range(40):
        waited.clear()
        task.lost(order, "OSError: [Errno 28] No space left on device")
        assert sum(waited) <= task.MAX_PAUSE_S + task.POLL_INTERVAL_S


def test_host_with_a_full_disk_ends_no_sweep_while_another_computes(here: Path) -> None:
    """One of two threads answers with errors of its host, until the other has done a run."""
    order = Order(str(here), "t", str(here))
    dispatcher = Dispatcher(order, Connection(lambda: None), progress=False)  # type: ignore[arg-type,return-value]
    dispatcher._executor = ThreadPoolExecutor(2)
    other: Future[Any] = Future()
    item = Sweep(base=QUICK).items()[0]
    dispatcher._running[other] = NotebookTask(item, here, {}, [0.0])
    answer = {"lost": "w1: [Errno 28]", "host_error": True, "engine": "w1-1"}
    assert all(dispatcher._is_host_error(answer) for _ in range(1000))
    with pytest.raises(RunError, match="no engine can do its runs"):
        dispatcher._is_host_error({**answer, "engine": "w2-1"})


def test_full_disk_of_the_client_is_one_sentence(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.lab.batch.sharded.write_file", full)
    away = property(lambda order: False)
    monkeypatch.setattr(Order, "shared", away)
    plan = Sweep(base=QUICK, seeds=2, notebooks=False)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(RunError, match=r"this machine cannot keep a run \(.*No space left on device\)"),
    ):
        sweep(plan, "s", executor=executor, progress=False)


@pytest.mark.parametrize("notebooks", [False, True])
def test_user_file_is_found_by_engines_that_work_elsewhere(here: Path, notebooks: bool) -> None:
    plan = Sweep(base={**QUICK, "scheme": "mine.py:Mine"}, seeds=2, notebooks=notebooks)
    elsewhere = forked(initializer=os.chdir, initargs=("/",))
    with elsewhere:
        summary = sweep(plan, "s", executor=elsewhere, progress=False)
        assert elsewhere.submit(os.getcwd).result(60) == "/"  # as the user left it
    assert not summary.failed
    assert list(wb.runs("s").table["state"]) == ["done", "done"]


@pytest.mark.parametrize("notebooks", [False, True])
def test_engine_without_the_user_file_is_one_sentence(
    here: Path, notebooks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Sweep(base={**QUICK, "scheme": "mine.py:Mine"}, seeds=2, notebooks=notebooks)
    real = running.Batch.order
    monkeypatch.setattr(running.Batch, "order", lambda batch, own: replace(real(batch, own), home="/nowhere"))
    elsewhere = forked(initializer=os.chdir, initargs=("/",))
    with elsewhere, pytest.raises(RunError, match=r"^engine on .*there is no file 'mine.py'"):
        sweep(plan, here / "s", executor=elsewhere, progress=False)


@pytest.mark.parametrize("notebooks", [False, True])
def test_engine_with_other_versions_ends_the_sweep_before_its_first_run(
    here: Path, notebooks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = {**task.versions(), "numpy": "0.1"}
    real = running.Batch.order
    monkeypatch.setattr(running.Batch, "order", lambda batch, own: replace(real(batch, own), versions=mine))
    plan = Sweep(base=QUICK, seeds=3, notebooks=notebooks)
    with forked() as pool, pytest.raises(RunError, match=r"instead of 0\.1; install the client's versions"):
        sweep(plan, "s", executor=pool, progress=False)
    assert not len(wb.runs("s"))


class Engines(ThreadPoolExecutor):
    """Executor that says it has `number` processes, and begins no task."""

    def __init__(self, number: int) -> None:
        super().__init__(1)
        self._max_workers = number
        self.given = 0

    def submit(self, *args: Any, **options: Any) -> Any:
        self.given += 1
        return Future[Any]()


@pytest.mark.parametrize(("number", "most"), [(1, dispatch.MIN_SUBMITTED), (400, 800)])
def test_submitted_tasks_scale_with_the_engines(number: int, most: int, here: Path) -> None:
    executor = Engines(number)
    order = Order(str(here), "t", str(here))
    dispatcher = Dispatcher(order, Connection(lambda: executor), progress=False)
    (here / ATTEMPTS).mkdir()
    item = Sweep(base=QUICK).items()[0]
    dispatcher._todo = iter([NotebookTask(item, here, {}, [0.0]) for _ in range(1000)])
    dispatcher._fill()  # connects
    dispatcher._fill()
    assert executor.given == most


class Scheduler:
    """Client of Dask with three workers, one of which has two threads."""

    scheduler = SimpleNamespace(ncores=lambda: {"tcp://a": 1, "tcp://b": 2, "tcp://c": 1})

    def sync(self, request: Callable[[], dict[str, int]], callback_timeout: float) -> dict[str, int]:
        assert callback_timeout < 10
        return request()


def test_number_of_engines_is_that_of_the_executor() -> None:
    dask = ThreadPoolExecutor(1)
    dask._client = Scheduler()  # type: ignore[attr-defined]
    assert size(dask) == 4
    assert size(ThreadPoolExecutor(3)) == size(ProcessPoolExecutor(3)) == 3
    assert size(Executor()) is None


def test_number_of_engines_is_asked_for_every_few_seconds(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler may be slow to answer, and tasks are submitted after each answer of an engine."""
    now, sizes = [0.0], iter([2, 5, 1])
    monkeypatch.setattr(dispatch, "size", lambda executor: next(sizes))
    monkeypatch.setattr(dispatch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    dispatcher = Dispatcher(Order(str(here), "t", str(here)), Connection(Executor), progress=False)
    dispatcher._executor = Executor()
    assert [dispatcher._engines() for _ in range(100)] == [2] * 100
    now[0] += dispatch.SIZE_INTERVAL_S
    assert [dispatcher._engines() for _ in range(100)] == [5] * 100
    dispatcher._executor = Executor()
    assert dispatcher._engines() == 1


def finished(here: Path, **fields: Any) -> tuple[NotebookTask, Path]:
    """Return a task whose run another attempt has completed, and the folder of the run."""
    item = Sweep(base=QUICK).items()[0]
    (here / item.name).mkdir()
    Status("done", seconds=1.0).write(here / item.name)
    return NotebookTask(item, here, {}, [0.0], **fields), here / item.name


def test_run_that_another_attempt_has_completed_stays_done(here: Path) -> None:
    task, final = finished(here, losses=dispatch.MAX_LOSSES - 1)
    assert list(task.lost("the engine died", True)) == []
    assert task.states[task.name].state == Status.read(final).state == "done"  # type: ignore[union-attr]
    ended = here / ATTEMPTS / "w1" / task.name
    ended.mkdir(parents=True)
    task.ended({"status": vars(Status("failed", error="timeout")), "folder": str(ended)})
    assert task.states[task.name].state == "done"
    task.interrupted()
    assert task.states[task.name].state == "done"


def test_lost_attempt_does_not_count_as_under_way(here: Path) -> None:
    """Else the run would be lost again with the next executor that breaks, while it waits in the queue."""
    tasks = [NotebookTask(item, here, {}, [0.0]) for item in Sweep(base=QUICK, seeds=2).items()]
    for host, of in zip(("w1.lab-1-a", "w1.lab-2-b"), tasks, strict=True):
        (here / ATTEMPTS / host / of.name).mkdir(parents=True)
        Status("running").write(here / ATTEMPTS / host / of.name)
    assert list(tasks[0].lost("the engine died", True)) == [tasks[0]]
    assert list(attempts(here)) == [tasks[1].name]


def test_run_that_is_renamed_while_attempts_are_removed_stays_whole(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of the executor may have been paused until now."""
    attempt, real = here / ATTEMPTS / "w1" / "run", os.unlink
    attempt.mkdir(parents=True)
    for name in "abc":
        (attempt / name).touch()

    def unlink(path: Any, **options: Any) -> None:
        if attempt.exists():
            task.publish(attempt, here / "run")
        real(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    Dispatcher(Order(str(here), "t", str(here)), Connection(Executor), progress=False)._clear()
    assert not (here / "run").exists() or len(list((here / "run").iterdir())) == 3
    assert not (here / ATTEMPTS).exists()


def test_file_server_that_does_not_answer_ends_no_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(path: Path) -> str:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(task, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(task, "read_text", stale)
    order = Order(str(here), "stale", str(here))
    assert not order.stopped
    assert not order.abandoned
    item = Sweep(base=QUICK).items()[0]
    fields = {
        "name": item.name,
        "engine": "sim",
        "cluster": "",
        "spec": item.experiment.model_dump(mode="json"),
    }
    assert task.run_notebook(json.dumps(asdict(order)), json.dumps(fields))["host_error"]


SEARCH = {
    "kind": "crossing",
    "field": "delays.active_straggles",
    "span": {"low": 0.001, "high": 0.12, "scale": "log"},
    "sides": [{"scheme": "UMW"}, {"scheme": "GC", "scheme_args": {"stragglers": 1}}],
    "budget": 12,
}


@pytest.mark.parametrize("executor", [None, pytest.param({"kind": "processes"}, marks=pytest.mark.slow)])
def test_search_on_an_executor_equals_the_local_one(executor: Any, here: Path) -> None:
    plan = Sweep(
        base={**QUICK, "delays": {"kind": "heterogeneous", "slow": 0.0, "factor": 10.0}}, search=SEARCH
    )
    local = sweep(plan, "local", jobs=2, progress=False)
    with ThreadPoolExecutor(2) as threads:
        found = sweep(plan, "s", executor=executor or threads, progress=False)
    assert found.found == local.found
    assert "over" in json.loads(Path("s", SEARCH_STATE).read_text())
    assert sorted(found.states) == sorted(local.states)
    assert not found.failed


def test_kernel_that_dies_inside_an_engine_fails_its_run_only(here: Path) -> None:
    """The kernel of a run is a grandchild of the executor's process."""
    plan = Sweep(base={**QUICK, "rounds": 60 * SLOW_ROUNDS}, seeds=1)
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: attempts(here / "s"))
        kernel = wait_for(lambda: next(filter(computes, psutil.Process().children(recursive=True)), None))
        killed.append(kernel.pid)
        kernel.kill()

    with forked() as pool:
        thread = threading.Thread(target=kill)
        thread.start()
        summary = sweep(plan, "s", executor=pool, progress=False)
        thread.join()
        assert killed
        assert summary.failed == [plan.items()[0].name]
        short = Sweep(base=QUICK, seeds=3)
        assert len(sweep(short, "t", executor=pool, progress=False).named("done")) == 3


CLIENT = """
from concurrent.futures import ProcessPoolExecutor
from workbench.lab.batch import Sweep, sweep
plan = Sweep(base={base!r}, seeds=16, notebooks={notebooks})
if __name__ == "__main__":
    sweep(plan, "s", executor=lambda: ProcessPoolExecutor(2), progress=False)
"""


@pytest.mark.parametrize("notebooks", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sweep_whose_client_was_killed_is_resumed(notebooks: bool, here: Path) -> None:
    base = {**QUICK, "rounds": SLOW_ROUNDS // 2}
    Path("client.py").write_text(CLIENT.format(base=base, notebooks=notebooks))
    client = Popen([sys.executable, "client.py"], stdout=DEVNULL, stderr=DEVNULL)
    wait_for(lambda: attempts(here / "s") or any((here / "s").glob(f"{ATTEMPTS}/????????????????")))
    engines = psutil.Process(client.pid).children(recursive=True)
    client.send_signal(signal.SIGKILL)
    client.wait()
    assert (here / "s" / ATTEMPTS).exists()  # it was killed during the sweep
    plan = Sweep(base=base, seeds=16, notebooks=notebooks)
    with ThreadPoolExecutor(2) as executor:
        sweep(plan, "s", executor=executor, progress=False)
    psutil.wait_procs(engines, 60)
    table = wb.runs("s").table
    assert sorted(table["run"]) == sorted(item.name for item in plan.items())
    assert set(table["state"]) == {"done"}
    traces = wb.runs("s").traces()
    assert all(trace.rounds.equals(wb.run(trace.experiment).rounds) for trace in traces)


def test_processes_of_a_host_map_one_copy_of_their_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(here / "cache"))
    base = {
        "scheme": "UMW",
        "workers": 4,
        "rounds": 100,
        "problem": "softmax",
        "problem_args": {"data": "digits"},
    }
    plan = Sweep(base=base, seeds=24, notebooks=False)
    with forked() as pool:
        sweep(plan, "s", executor=pool, progress=False)
        engines = psutil.Process().children()
        maps = [{one.path for one in engine.memory_maps()} for engine in engines]
    assert set(wb.runs("s").table["state"]) == {"done"}
    (prepared,) = (path for path in (here / "cache" / "data").iterdir() if path.is_dir())
    holding = [found for found in maps if any(path.endswith("X.npy") for path in found)]
    assert len(holding) == 2  # another child of this process may track resources
    assert all(str(prepared / "X.npy") in found for found in holding)


@pytest.mark.parametrize("given", [{1: 2}, {"kind": "processes", 3: "x"}])
def test_executor_with_odd_keys_is_one_sentence(given: Any, here: Path) -> None:
    for refused in (
        lambda: sweep(Sweep(base=QUICK), "s", executor=given),
        lambda: Sweep(base=QUICK, executor=given),
    ):
        with pytest.raises(SettingError, match=r"executor = |ExecutorSettings"):
            refused()


def test_host_with_a_full_disk_ends_no_sweep_on_an_executor_of_unknown_size(here: Path) -> None:
    order = Order(str(here), "t", str(here))
    dispatcher = Dispatcher(order, Connection(lambda: None), progress=False)  # type: ignore[arg-type,return-value]
    dispatcher._executor = Executor()
    item = Sweep(base=QUICK).items()[0]
    dispatcher._running = {Future[Any](): NotebookTask(item, here, {}, [0.0]) for _ in range(15)}
    answer = {"lost": "w1: [Errno 28]", "host_error": True, "engine": "w1-1"}
    assert all(dispatcher._is_host_error(answer) for _ in range(100))


def test_full_disk_in_a_setting_error_is_an_error_of_the_host(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(task, "POLL_INTERVAL_S", 0.0)
    order = Order(str(here), "setting", str(here))
    for text in ("No space left on device", "Disk quota exceeded"):
        error = SettingError(f"folder = 'r': cannot be written ({text})")
        assert task.failure(order, error, str(error))["host_error"]
    assert "refused" in task.failure(order, SettingError("workers = 0: take 1 or more"), "workers = 0")
    task._host_errors[order.token] = 5000
    assert task.lost(order, "[Errno 28]")["host_error"]  # the pause does not overflow


def test_working_folder_is_restored_after_code_that_cannot_be_registered(here: Path) -> None:
    order = Order(str(here), "t", str(here), own="damaged")
    (here / "elsewhere").mkdir()
    os.chdir(here / "elsewhere")
    for _ in range(2):
        with pytest.raises(Exception), task.code_of(order):  # noqa: B017, PT011 - any error of the code
            pass
        assert Path.cwd() == here / "elsewhere"

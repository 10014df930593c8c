"""Sweeps on executors: the same runs as locally, complete and only once, also if engines fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import joblib.externals.loky
import psutil
import pytest

import workbench as wb
from tests.support.sampled_cases import rotated, sampled_cases, sampled_test
from tests.support.sweep_runs import MAIN, QUICK, SLOW_ROUNDS, wait_for
from workbench.analysis.tables.status import Status, attempts, read_plan
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.trace.layout import ATTEMPTS, ATTEMPTS_OWNER, NOTEBOOK, PAGE, STOP
from workbench.lab.batch import ExecutorSettings, Summary, Sweep, sweep, task
from workbench.lab.batch import run as running
from workbench.lab.batch.background import attach, start
from workbench.lab.batch.executors import executor_of
from workbench.lab.batch.folders import noted, opened
from workbench.lab.batch.kernels import CAN_FORK
from workbench.lab.batch.task import Order, lost, publish, run_notebook, unpack

PLAN = Sweep(base=QUICK, seeds=4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return sweep(PLAN, tmp_path_factory.mktemp("local") / "sweep", jobs=2, progress=False)


def same(one: Path, other: Path) -> None:
    """Compare the table and the traces of two sweeps."""
    left, right = wb.runs(one), wb.runs(other)
    columns = [name for name in left.table if name not in ("folder", "when")]
    assert list(left.table["run"]) == list(right.table["run"])
    assert left.table[columns].equals(right.table[columns])
    assert all(a.same(b) for a, b in zip(left.traces(), right.traces(), strict=True))
    assert not (other / ATTEMPTS).exists()


@rotated
def test_sweep_on_threads_equals_the_local_one(undisturbed: Summary, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as executor:
        summary = sweep(PLAN, tmp_path / "s", executor=executor, progress=False)
        assert str(summary).endswith("4 done")
        same(undisturbed.folder, tmp_path / "s")
        again = sweep(PLAN, tmp_path / "s", executor=executor, progress=False)
    assert again.before == 4
    for name in summary.named("done"):
        home = tmp_path / "s" / name
        assert ATTEMPTS not in (home / NOTEBOOK).read_text() + (home / PAGE).read_text()
        assert str(home / "trace") in (home / NOTEBOOK).read_text()


@sampled_test("sweeps on executors", 0, 6, 2)
def test_sweep_file_names_processes_and_resume_uses_them(undisturbed: Summary, tmp_path: Path) -> None:
    plan = PLAN.replace(executor={"kind": "processes", "engines": 2})
    first = sweep(plan, tmp_path / "s", only=PLAN.items()[0].name, progress=False)
    assert first.named("done") == [PLAN.items()[0].name]
    again = sweep(tmp_path / "s", progress=False)
    assert (again.before, len(again.named("done"))) == (1, 3)
    same(undisturbed.folder, tmp_path / "s")


@pytest.fixture
def killed() -> Iterator[list[int]]:
    """Kill two worker processes of this process, each as soon as its run has begun."""
    found: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05) and len(found) < 2:
            for child in psutil.Process().children():
                with suppress(psutil.Error):
                    busy = [one for one in child.children() for _ in one.children()]
                    if "loky" in " ".join(child.cmdline()) and busy and child.pid not in found:
                        found.append(child.pid)
                        child.send_signal(signal.SIGKILL)
                        break

    thread = threading.Thread(target=kill)
    thread.start()
    yield found
    over.set()
    thread.join()


@sampled_test("sweeps on executors", 1, 6, 2)
def test_sweep_runs_again_what_a_killed_worker_had(killed: list[int], tmp_path: Path) -> None:
    plan = Sweep(base={**QUICK, "rounds": SLOW_ROUNDS}, seeds=4)
    summary = sweep(plan, tmp_path / "s", executor={"kind": "processes", "engines": 2}, progress=False)
    assert killed
    assert len(summary.named("done")) == 4
    assert len(wb.runs(tmp_path / "s")) == 4
    assert all(trace.replay().same(trace) for trace in wb.runs(tmp_path / "s").traces())


class Dying(ThreadPoolExecutor):
    """Executor that is shut down before its first task."""

    def submit(self, *args: Any, **options: Any) -> Any:
        self.shutdown()
        return super().submit(*args, **options)


def test_sweep_asks_for_another_executor_where_one_is_broken(tmp_path: Path) -> None:
    made: list[Executor] = []

    def connect() -> Executor:
        made.append(Dying(1) if len(made) < 2 else ThreadPoolExecutor(1))
        return made[-1]

    summary = sweep(Sweep(base=QUICK, seeds=2), tmp_path / "s", executor=connect, progress=False)
    assert (len(made), len(summary.named("done"))) == (3, 2)
    with pytest.raises(RunError, match="resumes it"):
        sweep(Sweep(base=QUICK, seeds=3), tmp_path / "s", executor=Dying(1), progress=False)
    assert len(wb.runs(tmp_path / "s").done) == 2


class Full(ThreadPoolExecutor):
    """Executor with a host on which every task ends by an error of the host."""

    def submit(self, *args: Any, **options: Any) -> Any:
        return super().submit(lambda: {"lost": "w2: [Errno 28] No space left on device", "host_error": True})


def test_errors_of_a_host_end_a_sweep_only_if_no_engine_does_its_runs(tmp_path: Path) -> None:
    executors = iter([Full(1)])
    with pytest.raises(RunError, match=r"no engine can do its runs \(w2: \[Errno 28\].* resumes it"):
        sweep(Sweep(base=QUICK, seeds=2), tmp_path / "s", executor=lambda: next(executors), progress=False)
    assert not list((tmp_path / "s").glob("seed*"))
    with ThreadPoolExecutor(1) as executor:
        assert len(sweep(tmp_path / "s", executor=executor, progress=False).named("done")) == 2


def test_engine_with_a_full_disk_answers_after_a_pause_that_doubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.lab.batch.task.FIRST_PAUSE_S", 1e-3)
    waited: list[float] = []
    clock = iter(range(1000))
    monkeypatch.setattr("workbench.lab.batch.task.time.monotonic", lambda: next(clock) * 1e-3)
    monkeypatch.setattr("workbench.lab.batch.task.time.sleep", waited.append)
    counts = []
    for _ in range(4):
        answer = lost(order(tmp_path), "OSError: [Errno 28] No space left on device")
        assert answer["host_error"]
        counts.append(len(waited))
    pauses = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]
    assert not lost(order(tmp_path), "RunError: the kernel died")["host_error"]


def test_stop_file_ends_runs_under_way_and_resume_does_them(tmp_path: Path) -> None:
    plan = Sweep(base={**QUICK, "rounds": 200 * SLOW_ROUNDS}, seeds=2)
    with ThreadPoolExecutor(1) as executor:
        stop = threading.Thread(target=_stop_once_begun, args=(tmp_path / "s",))
        stop.start()
        with pytest.raises(KeyboardInterrupt):
            sweep(plan, tmp_path / "s", executor=executor, progress=False)
        stop.join()
    states = [Status.read(tmp_path / "s" / item.name) for item in plan.items()]
    assert [state.state for state in states if state] == ["interrupted"]
    short = Sweep(base=QUICK, seeds=2)
    with ThreadPoolExecutor(1) as executor:
        assert len(sweep(short, tmp_path / "t", executor=executor, progress=False).named("done")) == 2


def _stop_once_begun(folder: Path) -> None:
    wait_for(lambda: attempts(folder))
    (folder / STOP).write_text("")


@sampled_test("sweeps on executors", 2, 6, 2)
def test_background_sweep_shows_its_hosts(tmp_path: Path) -> None:
    plan = Sweep(base={**QUICK, "rounds": 20 * SLOW_ROUNDS}, seeds=1, executor={"kind": "processes"})
    begun = start(plan, tmp_path / "s", pictures=False)
    hosts = wait_for(lambda: attach(tmp_path / "s").progress().hosts)
    assert list(hosts.values()) == [[plan.items()[0].name]]
    begun.stop()
    assert begun.wait(120)
    assert begun.state == "stopped"


def order(folder: Path, **more: Any) -> Order:
    notebook = running.NOTEBOOK.read_text()
    return Order(str(folder), "token", str(folder), notebook, **more)


def asked(order: Order, **more: Any) -> dict[str, Any]:
    item = PLAN.items()[0]
    spec = item.experiment.model_dump(mode="json")
    fields = {"name": item.name, "engine": "sim", "cluster": "", "spec": spec, **more}
    return run_notebook(json.dumps(asdict(order)), json.dumps(fields))


def test_engine_without_the_folder_returns_files_that_are_checked(tmp_path: Path) -> None:
    answer = asked(order(tmp_path / "elsewhere"))
    assert answer["status"]["state"] == "done"
    unpack(answer, tmp_path / "here")
    trace = wb.Trace.load(tmp_path / "here" / "trace")
    assert trace.replay().same(trace)
    answer["files"]["trace/model.npy"] += b"0"
    with pytest.raises(RunError, match=r"trace/model.npy: has changed on its way"):
        unpack(answer, tmp_path / "damaged")
    outside = {**answer, "files": {"../../x": b""}}
    with pytest.raises(RunError, match="is not a file of the run"):
        unpack(outside, tmp_path / "outside")


def test_engine_with_other_versions_refuses(tmp_path: Path) -> None:
    answer = asked(order(tmp_path, versions={"numpy": "0.1"}))
    assert "instead of 0.1; install the client's versions there" in answer["refused"]


def test_engine_begins_no_run_that_would_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = order(tmp_path, until=time.time() + 60)
    assert "missing" in asked(late, expected=90.0)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60))
    assert "missing" in asked(replace(late, until=None), expected=90.0)
    late.took(90.0)
    assert late.too_late()


@pytest.mark.parametrize("executor", [None, {"kind": "processes"}])
def test_walltime_leaves_runs_missing(executor: Any, tmp_path: Path) -> None:
    summary = sweep(PLAN, tmp_path / "s", executor=executor, walltime=1e-6, progress=False)
    assert len(summary.named("missing")) == 4
    assert "resume: workbench sweep" in str(summary)


@sampled_test("sweeps on executors", 3, 6, 2)
@pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="another host name needs root"
)
@pytest.mark.parametrize("notebooks", [True, False])
def test_copied_folder_is_resumed_on_another_machine(
    undisturbed: Summary, notebooks: bool, tmp_path: Path
) -> None:
    plan = PLAN.replace(notebooks=notebooks, executor={"kind": "processes", "engines": 2})
    sweep(plan, tmp_path / "s", only=PLAN.items()[1].name, progress=False)
    if notebooks:
        (tmp_path / "s" / PLAN.items()[2].name).mkdir()  # empty folder of an interrupted run
    (tmp_path / "home").mkdir()
    (tmp_path / "s").rename(tmp_path / "home" / "copy")
    code = f"hostname other; exec {sys.executable} -c '{MAIN}' sweep copy --quiet"
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(Path(__file__).parents[3])}
    command = ["unshare", "--uts", "sh", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path / "home", env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "3 done, 1 done before" in done.stdout
    table = wb.runs(tmp_path / "home" / "copy").table
    assert sorted(table["run"]) == sorted(wb.runs(undisturbed.folder).table["run"])
    rounds = [
        {trace.experiment.seed: trace.rounds for trace in runs.traces()}
        for runs in (undisturbed.runs(), wb.runs(tmp_path / "home" / "copy"))
    ]
    assert all(rounds[1].pop(seed).equals(one) for seed, one in rounds[0].items())
    assert not rounds[1]


def test_first_rename_wins(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "who").write_text(name)
    assert publish(tmp_path / "first" / "run", tmp_path / "run")
    assert not publish(tmp_path / "second" / "run", tmp_path / "run")
    assert (tmp_path / "run" / "who").read_text() == "first"
    assert not (tmp_path / "second" / "run").exists()


def test_engine_keeps_to_a_run_that_another_has_done(tmp_path: Path) -> None:
    home = tmp_path / PLAN.items()[0].name
    (tmp_path / ATTEMPTS).mkdir()
    (tmp_path / ATTEMPTS / ATTEMPTS_OWNER).write_text("token")
    assert asked(order(tmp_path))["status"]["state"] == "done"
    before = (home / NOTEBOOK).stat().st_mtime_ns
    assert asked(order(tmp_path))["status"]["state"] == "done"
    assert (home / NOTEBOOK).stat().st_mtime_ns == before


def test_attempts_are_not_in_the_table(undisturbed: Summary, tmp_path: Path) -> None:
    Status("running", host={"name": "n1"}).write(_made(undisturbed.folder / ATTEMPTS / "n1-1" / "lost"))
    assert len(wb.runs(undisturbed.folder)) == 4
    assert attempts(undisturbed.folder)["lost"].host == {"name": "n1"}
    shutil.rmtree(undisturbed.folder / ATTEMPTS)


def _made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"kind": "processes", "cluster": "lab"}, "cluster: belongs to kind: ipyparallel"),
        ({"kind": "ipyparallel", "address": "tcp://x"}, "address: belongs to kind: dask"),
        ({"engines": 0}, "engines = 0"),
    ],
)
def test_executor_settings_are_checked(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(SettingError, match=error):
        ExecutorSettings(**fields)


def test_executor_that_is_none_is_refused() -> None:
    with pytest.raises(SettingError, match=r"give a concurrent.futures.Executor"):
        executor_of(7)
    assert executor_of({"kind": "local"}) == executor_of(None) == ExecutorSettings()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda: None, r"executor = <function .* returned None: give a concurrent.futures.Executor"),
        (print, r"executor = <built-in function print> returned None: give a concurrent.futures.Executor"),
        ({"kind": "ipyparallel", "cluster": "no-such"}, "no-such"),
        ({"kind": "dask"}, r"executor.kind = 'dask'.* distributed"),
    ],
)
@pytest.mark.parametrize("notebooks", [True, False])
def test_executor_that_cannot_work_is_refused_before_anything_is_written(
    given: Any, error: str, notebooks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    plan = PLAN.replace(notebooks=notebooks)
    with pytest.raises(SettingError, match=error):
        sweep(plan, tmp_path / "s", executor=given, progress=False)
    if isinstance(given, dict):
        with pytest.raises(SettingError, match=error):
            start(plan.replace(executor=given), tmp_path / "s", pictures=False)
    assert not (tmp_path / "s").exists()


def test_engines_of_the_local_executor_are_its_jobs(tmp_path: Path) -> None:
    plan = PLAN.replace(executor={"kind": "local", "engines": 3})
    sweep(plan, tmp_path / "s", only=PLAN.items()[0].name, progress=False)
    assert read_plan(tmp_path / "s")["jobs"] == 3


def test_remote_engines_need_no_open_files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.lab.batch.run.system_limit", lambda: 1024)
    begun: list[int] = []
    monkeypatch.setattr(
        "workbench.lab.batch.background._begin", lambda order, folder: begun.append(order["options"]["jobs"])
    )
    plan = PLAN.replace(executor={"kind": "ipyparallel", "engines": 64})
    start(plan, tmp_path / "s", jobs=64, pictures=False)
    attach(tmp_path / "s").resume(pictures=False)
    assert begun == [64, 64]
    with pytest.raises(SettingError, match="jobs = 64: needs"):
        start(PLAN, tmp_path / "t", jobs=64, pictures=False)


def test_cluster_option_keeps_the_other_fields_of_ipyparallel() -> None:
    known = {"kind": "ipyparallel", "listen": "10.0.0.5", "engines": 4}
    assert PLAN.replace(executor=known).on("local").executor == ExecutorSettings(**known, cluster="local")
    other = PLAN.replace(executor={"kind": "processes", "engines": 4}).on("local").executor
    assert other == ExecutorSettings(kind="ipyparallel", cluster="local")


@pytest.mark.parametrize("value", ["1h", -5, 0, float("nan")])
def test_walltime_is_checked(value: Any, tmp_path: Path) -> None:
    for begin in (sweep, start):
        with pytest.raises(SettingError, match="walltime = "):
            begin(PLAN, tmp_path / "s", walltime=value)
    assert not (tmp_path / "s").exists()


class Damaging(ThreadPoolExecutor):
    """Executor without the sweep's folder, whose first answer has other hashes than its files."""

    damaged = 0

    def submit(self, task: Any, order: str, *args: Any) -> Any:  # type: ignore[override]
        away = json.dumps({**json.loads(order), "folder": "/nowhere"})
        return super().submit(self._damage, task(away, *args))

    def _damage(self, answer: dict[str, Any]) -> dict[str, Any]:
        self.damaged += 1
        return {**answer, "sum": "", "sums": {}} if self.damaged == 1 else answer


@pytest.mark.parametrize("notebooks", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_answer_that_was_damaged_on_its_way_is_computed_again(notebooks: bool, tmp_path: Path) -> None:
    plan = Sweep(base=QUICK, seeds=2, notebooks=notebooks)
    with Damaging(1) as executor:
        summary = sweep(plan, tmp_path / "s", executor=executor, progress=False)
    assert str(summary).endswith("2 done")
    assert executor.damaged == 3
    assert list(wb.runs(tmp_path / "s").table["state"]) == ["done", "done"]


def _work_in_child(folder: Path) -> None:
    raise SystemExit(asked(order(folder))["status"]["state"] != "done")


@pytest.mark.skipif(not CAN_FORK, reason="kernels are forked on Linux only")
def test_forked_process_has_kernels_of_its_own(tmp_path: Path) -> None:
    assert asked(order(tmp_path))["status"]["state"] == "done"
    child = get_context("fork").Process(target=_work_in_child, args=(tmp_path,))
    with task._lock:  # as if another thread started kernels at the moment of the fork
        child.start()
    child.join(60)
    child.kill()
    child.join()
    assert child.exitcode == 0
    assert asked(order(tmp_path))["status"]["state"] == "done"


def _loky() -> Executor:
    return joblib.externals.loky.ProcessPoolExecutor(2)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "pool", sampled_cases("pools of the user", 1, [lambda: ProcessPoolExecutor(2), _loky])
)
@pytest.mark.parametrize("notebooks", [True, False])
def test_sweep_on_a_pool_of_the_user(
    undisturbed: Summary, pool: Callable[[], Executor], notebooks: bool, tmp_path: Path
) -> None:
    with pool() as executor:
        sweep(PLAN.replace(notebooks=notebooks), tmp_path / "s", executor=executor, progress=False)
        assert executor.submit(int, "7").result(60) == 7  # it stays open
    found, known = wb.runs(tmp_path / "s"), undisturbed.runs()
    order = [list(runs.table["run"]) for runs in (found, known)]
    assert sorted(order[0]) == order[1]
    rounds = [
        {name: t.rounds for name, t in zip(names, runs.traces(), strict=True)}
        for names, runs in zip(order, (found, known), strict=True)
    ]
    assert all(rounds[0][name].equals(rounds[1][name]) for name in order[1])


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"listen": "0.0.0.0"}, "executor.listen = '0.0.0.0'"), ({"listen": "10.0.0.5"}, "executor.listen")],
)
def test_folder_of_another_user_cannot_listen_on_the_network(
    fields: dict[str, Any], error: str, tmp_path: Path
) -> None:
    plan = Sweep(base=QUICK, executor={"kind": "ipyparallel", **fields})
    (tmp_path / "sweep.json").write_text(json.dumps({"sweep": noted(plan), "runs": []}))
    with pytest.raises(SettingError, match=error), opened(tmp_path, None):
        pass
    with opened(tmp_path, None, trust=True) as (chosen, _):
        assert chosen == plan
    running.note(plan, _made(tmp_path / "own"), [], 1)
    with opened(tmp_path / "own", None) as (chosen, _):
        assert chosen == plan


def test_folder_of_another_user_cannot_connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"base": QUICK, "executor": {"kind": "dask", "address": "tcp://10.0.0.1:8786"}}
    (tmp_path / "sweep.json").write_text(json.dumps({"sweep": plan, "runs": []}))
    with pytest.raises(SettingError, match=r"executor.address = 'tcp://10.0.0.1:8786'"):
        sweep(tmp_path, progress=False)

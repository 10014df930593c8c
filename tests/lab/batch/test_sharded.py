"""Sweeps without notebooks: shards of rows and curves, the same table as with notebooks, and later run folders."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import workbench as wb
from tests.support.sweep_runs import DEATHS, QUICK
from workbench.analysis.tables import shards
from workbench.analysis.tables.status import alone
from workbench.cli.report import report
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.trace.layout import ATTEMPTS, PAGE, SHARDS, STOP
from workbench.lab.batch import ExecutorSettings, Summary, Sweep, chunk, dispatch, restore, sharded, sweep
from workbench.lab.batch.background import attach, start
from workbench.lab.batch.chunk import run_chunk, unpack_shard
from workbench.lab.batch.executors import connected
from workbench.lab.batch.run import note
from workbench.lab.batch.sharded import Tally
from workbench.lab.batch.task import Order

CASES = [{"scheme": "UMW"}, {"scheme": "GC", "scheme_args": {"stragglers": 1}}]
PLAN = Sweep(base=QUICK, cases=CASES, seeds=3, notebooks=False)


def swept(plan: Sweep, folder: Path, **options: Any) -> Summary:
    """Run a sweep in two threads of this process."""
    with ThreadPoolExecutor(2) as executor:
        return sweep(plan, folder, executor=executor, progress=False, **options)


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    return swept(PLAN, tmp_path_factory.mktemp("shards") / "sweep")


def test_table_of_shards_equals_that_of_folders(summary: Summary, tmp_path: Path) -> None:
    assert str(summary).endswith("6 done")
    folders = sweep(PLAN.replace(notebooks=True), tmp_path / "s", jobs=2, progress=False).runs()
    found = summary.runs()
    assert found.settings
    assert set(found.settings) == set(folders.settings)
    one, other = (runs.table.sort_values("run", ignore_index=True) for runs in (found, folders))
    assert set(other) <= set(one)
    for name in set(other) - {"folder"}:
        left, right = (table[name].astype(object).where(table[name].notna(), None) for table in (one, other))
        assert left.tolist() == right.tolist(), name
    assert found.mean("time").equals(folders.mean("time"))
    for name in ("seed", "scheme"):
        value = one[name][0]
        assert len(found.where({name: value})) == len(folders.where({name: value})) > 0
    assert {p.name for p in summary.folder.iterdir()} == {".lock", "sweep.json", SHARDS}


def test_table_of_shards_has_targets_and_curves(summary: Summary) -> None:
    table = wb.runs(summary.folder, target=0.68)
    trace = next(t for t in table.traces() if t.experiment.seed == 1 and t.experiment.scheme == "UMW")
    row = table.where(seed=1, scheme="UMW").table.iloc[0]
    assert row["time_to"] == trace.time_to(0.68)
    whole = wb.run(trace.experiment)
    assert trace.rounds.equals(whole.rounds)


def test_resume_runs_only_what_is_missing(summary: Summary, tmp_path: Path) -> None:
    first = swept(PLAN, tmp_path / "s", only=[PLAN.items()[0].name])
    assert first.counts["done"] == 1
    more = swept(PLAN, tmp_path / "s")
    assert (more.before, more.counts["done"]) == (1, 5)
    assert attach(tmp_path / "s").progress().counts == {"done": 6}
    assert attach(tmp_path / "s").state == "done"
    again = swept(PLAN, tmp_path / "s")
    assert (again.before, again.counts.get("done")) == (6, 0)


@pytest.mark.parametrize("notebooks", [False, True])
def test_folder_of_another_sweep_is_refused(notebooks: bool, tmp_path: Path) -> None:
    swept(PLAN, tmp_path / "s", only=[PLAN.items()[0].name])
    other = Sweep(base={**QUICK, "rounds": 7}, seeds=2, notebooks=notebooks)
    with pytest.raises(SettingError, match="holds another sweep"):
        swept(other, tmp_path / "s")
    with pytest.raises(SettingError, match="holds another sweep"):
        start(other, tmp_path / "s", pictures=False)
    assert attach(tmp_path / "s").runs().table["run"].tolist() == [PLAN.items()[0].name]
    assert swept(PLAN.replace(seeds=1), tmp_path / "s").before == 1


def test_folder_of_failed_runs_of_another_sweep_is_refused(tmp_path: Path) -> None:
    swept(Sweep(base={**QUICK, "faults": DEATHS}, notebooks=False), tmp_path)
    with pytest.raises(SettingError, match="holds another sweep"):
        swept(PLAN, tmp_path)


def test_sweep_under_way_has_its_missing_runs_and_its_time(tmp_path: Path) -> None:
    swept(PLAN, tmp_path, only=[PLAN.items()[0].name])
    note(PLAN, tmp_path, [], 1, 0, 6)
    with alone(tmp_path):
        found = attach(tmp_path).progress()
    assert found.state == "running"
    assert found.counts == {"done": 1, "missing": 5}
    assert found.left > 0


def test_report_of_a_run_in_shards_restores_it(tmp_path: Path) -> None:
    swept(PLAN, tmp_path / "s")
    name, page = PLAN.items()[4].name, tmp_path / "page.html"
    known = shards.trace_of(tmp_path / "s", name)
    done = CliRunner().invoke(report, [str(tmp_path / "s" / name), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert f"GC: {len(known.rounds)} rounds" in page.read_text()
    assert (tmp_path / "s" / name / PAGE).is_file()
    assert wb.Trace.load(tmp_path / "s" / name / "trace").rounds.equals(known.rounds)
    unknown = CliRunner().invoke(report, [str(tmp_path / "s" / "seed=9-0123456789"), "-o", str(page)])
    assert "is not a run of a sweep without notebooks" in str(unknown.exception)


def test_run_in_two_shards_counts_once(tmp_path: Path) -> None:
    swept(PLAN, tmp_path)
    path = shards.files(tmp_path)[0]
    (path.parent / f"9{path.name}").write_bytes(path.read_bytes())
    assert len(wb.runs(tmp_path)) == 6
    assert len(shards.states(tmp_path)) == 6


def test_failed_runs_are_rows_with_their_error_and_are_run_again(tmp_path: Path) -> None:
    plan = Sweep(base=QUICK, cases=[{}, {"faults": DEATHS}], seeds=2, notebooks=False)
    found = swept(plan, tmp_path)
    assert (found.counts["done"], len(found.failed)) == (2, 2)
    table = wb.runs(tmp_path).table
    assert sorted(table["state"]) == ["done", "done", "failed", "failed"]
    assert table["error"].str.contains("the master lost worker 1").sum() == 2
    assert attach(tmp_path).progress().failures.keys() == set(found.failed)
    assert swept(plan, tmp_path).before == 2
    assert len(wb.runs(tmp_path)) == 4


def test_merged_shards_hold_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.lab.batch.sharded.FIRST_CHUNK", 1)
    monkeypatch.setattr(Tally, "chunk", lambda self: 1)
    swept(PLAN, tmp_path)
    before = wb.runs(tmp_path)
    assert len(shards.files(tmp_path)) == 6
    monkeypatch.setattr(shards, "MIN_MERGED", 2)
    monkeypatch.setattr(shards, "MAX_MERGED_ROWS", 4)
    shards.merge(tmp_path)
    assert [pq.read_metadata(path).num_rows for path in shards.files(tmp_path)] == [4, 2]
    after = wb.runs(tmp_path)
    assert after.table.equals(before.table)
    assert all(
        np.array_equal(a.columns["time"], b.columns["time"])
        for a, b in zip(before.traces(), after.traces(), strict=True)
    )


def one_run_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each task have one run, and merge any number of shards."""
    monkeypatch.setattr(Tally, "chunk", lambda tally: 1)
    monkeypatch.setattr(shards, "MIN_MERGED", 2)


def test_folders_of_a_long_sweep_have_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_run_each(monkeypatch)
    monkeypatch.setattr(sharded, "TASKS_PER_MERGE", 4)
    found: list[tuple[int, int]] = []

    def look(number: int) -> None:
        marks = list((tmp_path / ATTEMPTS).glob("?" * 16))
        found.append((len(marks), len(shards.files(tmp_path))))

    computed(monkeypatch, 0.0, look)
    with ThreadPoolExecutor(1) as executor:
        sweep(Sweep(base=QUICK, seeds=30, notebooks=False), tmp_path, executor=executor, progress=False)
    assert max(marks for marks, _ in found) <= sharded.TASKS_PER_ENGINE
    assert max(files for _, files in found) <= 4 + 1 + sharded.TASKS_PER_ENGINE
    assert len(wb.runs(tmp_path).done) == 30
    assert len(shards.files(tmp_path)) == 1


def test_all_runs_are_read_while_shards_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merge puts all runs into a file that is not in the reader's list."""
    one_run_each(monkeypatch)
    plan = Sweep(base=QUICK, seeds=4, notebooks=False)
    monkeypatch.setattr(shards, "merge", lambda folder: None)
    swept(plan, tmp_path)
    monkeypatch.undo()
    names = [item.name for item in plan.items()]
    for number, read in enumerate(
        [shards.states, shards.counts, lambda folder: shards.find(folder, names[0])]
    ):
        real, first = shards.open_parquet, shards.files(tmp_path)[0]

        def merged(path: Path, real: Any = real, first: Path = first, number: int = number) -> Any:
            monkeypatch.setattr(shards, "open_parquet", real)
            later = first.with_name(f"9{number}{first.name}")
            later.write_bytes(first.read_bytes())
            shards._merged([*shards.files(tmp_path)])
            return real(path)

        monkeypatch.setattr(shards, "open_parquet", merged)
        found: Any = read(tmp_path)
        assert found is not None
        assert number == 2 or len(found if number == 0 else range(found[0]["done"])) == 4
        (tmp_path / SHARDS / "00.parquet").write_bytes(shards.files(tmp_path)[0].read_bytes())


def test_sweep_ends_well_if_its_shards_cannot_be_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> Any:
        raise OSError(28, "No space left on device")

    one_run_each(monkeypatch)
    monkeypatch.setattr(shards, "atomic_write", full)
    assert swept(PLAN, tmp_path).counts["done"] == 6
    assert len(shards.files(tmp_path)) == 6
    assert len(wb.runs(tmp_path).done) == 6


def test_row_groups_of_a_merged_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_run_each(monkeypatch)
    swept(PLAN, tmp_path / "one")
    assert pq.read_metadata(shards.files(tmp_path / "one")[0]).num_row_groups == 1
    monkeypatch.setattr(shards, "MAX_GROUP_BYTES", 1)
    swept(PLAN, tmp_path / "six")
    assert pq.read_metadata(shards.files(tmp_path / "six")[0]).num_row_groups == 6
    name = PLAN.items()[3].name
    assert shards.find(tmp_path / "six", name)["run"] == name  # type: ignore[index]


def test_restore_makes_a_run_folder_with_the_same_bits(tmp_path: Path) -> None:
    swept(PLAN, tmp_path)
    name = wb.runs(tmp_path).table["run"][4]
    known = shards.trace_of(tmp_path, name)
    home = restore(tmp_path / name)
    assert (home / PAGE).is_file()
    trace = wb.Trace.load(home / "trace")
    assert trace.rounds.equals(known.rounds)
    assert trace.replay().same(trace)
    assert len(wb.runs(tmp_path)) == 6
    assert restore(tmp_path / name) == tmp_path / name
    with pytest.raises(SettingError, match="is not a run of a sweep without notebooks"):
        restore(tmp_path / "other-0123456789")


@pytest.mark.parametrize(("field", "value"), [("engine", "mpi"), ("cluster", "evil.yaml")])
def test_restore_uses_the_engine_and_cluster_of_the_sweep_only(
    field: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are not signed, so their rows name nothing that is started."""
    swept(PLAN, tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    Path("evil.yaml").write_text("kind: ssh\nhosts: [nowhere]\n")
    path = shards.files(tmp_path / "s")[0]
    table = pq.read_table(path)
    name, values = shards.SETTING + field, pa.array([value] * len(table))
    others = table.drop_columns([name]) if name in table.column_names else table
    path.write_bytes(shards.encoded(others.append_column(name, values)))
    with pytest.raises(SettingError, match="its engine or cluster is not that of the sweep"):
        restore(tmp_path / "s" / table["run"][0].as_py())
    assert list(tmp_path.glob("s/*/trace")) == []


def test_restore_waits_for_no_sweep_and_leaves_no_attempt(tmp_path: Path) -> None:
    swept(PLAN, tmp_path)
    name = wb.runs(tmp_path).table["run"][0]
    with alone(tmp_path), pytest.raises(SettingError, match="a sweep is running in it"):
        restore(tmp_path / name)
    path = shards.files(tmp_path)[0]
    table = pq.read_table(path)
    at = table.column_names.index("curve.time")
    other = [[x + 1.0 for x in times] for times in table["curve.time"].to_pylist()]
    path.write_bytes(shards.encoded(table.set_column(at, "curve.time", pa.array(other))))
    with pytest.raises(RunError):
        restore(tmp_path / table["run"][0].as_py())
    assert list((tmp_path / ATTEMPTS).iterdir()) == []


def test_restore_says_where_bits_differ(tmp_path: Path) -> None:
    swept(PLAN, tmp_path)
    path = shards.files(tmp_path)[0]
    table = pq.read_table(path)
    at = table.column_names.index("curve.time")
    other = [[x + 1.0 for x in times] for times in table["curve.time"].to_pylist()]
    path.write_bytes(shards.encoded(table.set_column(at, "curve.time", pa.array(other))))
    with pytest.raises(RunError, match="time differs from the sweep's"):
        restore(tmp_path / table["run"][0].as_py())


def test_engine_without_the_folder_returns_its_shard(tmp_path: Path) -> None:
    order = {"folder": str(tmp_path / "elsewhere"), "token": "t", "home": str(tmp_path)}
    fields = {"base": QUICK, "engine": "sim", "cluster": "", "changes": [{"seed": 0}, {"seed": 1}]}
    answer = run_chunk(json.dumps(order), json.dumps(fields))
    assert (answer["done"], answer["failed"], answer["late"]) == (2, {}, False)
    name, content = unpack_shard(answer)
    (tmp_path / SHARDS).mkdir()
    (tmp_path / SHARDS / name).write_bytes(content)
    assert len(shards.states(tmp_path)) == 2
    with pytest.raises(RunError, match="has changed on its way"):
        unpack_shard({**answer, "shard": content[:-1]})


def test_chunk_begins_no_run_after_the_end_of_the_engine(tmp_path: Path) -> None:
    order = Order(str(tmp_path), "t", str(tmp_path), until=1.0)
    fields = {"base": QUICK, "engine": "sim", "cluster": "", "changes": [{"seed": 0}]}
    assert "missing" in run_chunk(json.dumps(vars(order)), json.dumps(fields))


def computed(monkeypatch: pytest.MonkeyPatch, seconds: float, before: Callable[[int], None]) -> list[float]:
    """Let each run take some seconds, after `before`, which gets the number of the run. Return the ends of runs."""
    real, begun, ends = chunk.run, count(1), list[float]()

    def slow(*given: Any, **options: Any) -> Any:
        before(next(begun))
        time.sleep(seconds)
        trace = real(*given, **options)
        ends.append(time.time())
        return trace

    monkeypatch.setattr(chunk, "run", slow)
    return ends


def test_stop_during_a_long_run_keeps_the_finished_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds here stand for minutes: the sweep waits shorter for its tasks than a run takes."""

    def stop(number: int) -> None:
        if number == 6:
            (tmp_path / STOP).write_text("")

    monkeypatch.setattr(chunk, "MAX_TASK_S", 0.5)
    monkeypatch.setattr(dispatch, "STOP_TIMEOUT_S", 0.3)
    computed(monkeypatch, 1.0, stop)
    plan = Sweep(base=QUICK, seeds=8, notebooks=False)
    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        sweep(plan, tmp_path, executor=executor, progress=False)
    assert len(wb.runs(tmp_path)) >= 5
    monkeypatch.undo()
    assert swept(plan, tmp_path).before >= 5
    assert len(wb.runs(tmp_path).done) == 8


def test_ctrl_c_in_a_task_keeps_its_finished_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    computed(monkeypatch, 0.0, interrupt)
    order = {"folder": str(tmp_path / "elsewhere"), "token": "t", "home": str(tmp_path)}
    task = {"base": QUICK, "engine": "sim", "cluster": "", "changes": [{"seed": seed} for seed in range(5)]}
    answer = run_chunk(json.dumps(order), json.dumps(task))
    assert (answer["done"], answer["late"]) == (2, False)
    assert pq.read_table(pa.BufferReader(unpack_shard(answer)[1])).num_rows == 2
    settings = ExecutorSettings(kind="processes", engines=1)
    with connected(settings, 1) as connection:  # its own processes are not interrupted at all
        handler = connection.connect().submit(signal.getsignal, signal.SIGINT).result(60)
    assert handler == signal.SIG_IGN


def test_long_tasks_end_early_and_their_other_runs_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "MAX_TASK_S", 0.3)
    monkeypatch.setattr("workbench.lab.batch.sharded.CHUNK_SECONDS", 1.0)
    computed(monkeypatch, 0.4, lambda number: None)
    assert swept(Sweep(base=QUICK, seeds=8, notebooks=False), tmp_path).counts["done"] == 8
    assert len(shards.files(tmp_path)) == 8
    assert len(wb.runs(tmp_path)) == 8


@pytest.mark.parametrize("size", [1, 8])
def test_walltime_begins_no_run_that_cannot_end(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of more than five seconds are one task each, so the expected time is that of earlier tasks."""
    monkeypatch.setattr(Tally, "chunk", lambda tally: size)
    ends = computed(monkeypatch, 1.0, lambda number: None)
    begun = time.time()
    with ThreadPoolExecutor(1) as executor:
        plan = Sweep(base=QUICK, seeds=9, notebooks=False)
        found = sweep(plan, tmp_path, executor=executor, walltime=3.7, progress=False)
    limit = begun + 3.7
    assert found.counts["missing"] == 9 - len(ends) > 0
    assert sum(end > limit + 0.7 for end in ends) == 0  # a run begun at the last moment would end later


def test_expected_time_is_that_of_all_engines(tmp_path: Path) -> None:
    order = Order(str(tmp_path), "expected", str(tmp_path), until=time.time() + 60)
    task = {"base": QUICK, "engine": "sim", "cluster": "", "changes": [{"seed": 0}], "expected": 90.0}
    assert "missing" in run_chunk(json.dumps(vars(order)), json.dumps(task))


def test_mixed_settings_become_text(tmp_path: Path) -> None:
    rows = [
        shards.ShardRow(f"r{i}", f"k{i}", "done", "", 0.1, "h", "{}", {"x": value}, {"time": 1.0})
        for i, value in enumerate([1, "two"])
    ]
    (tmp_path / SHARDS).mkdir()
    for i, row in enumerate(rows):
        (tmp_path / SHARDS / f"{i}.parquet").write_bytes(shards.encoded(shards.table_of([row])))
    table = shards.read(tmp_path, (), ("setting.",))
    assert table["setting.x"].to_pylist() == ["1", "two"]


@pytest.mark.parametrize(
    ("fields", "options", "error"),
    [
        (
            {
                "search": {
                    "kind": "crossing",
                    "field": "delays.alpha",
                    "span": {"low": 0, "high": 1},
                    "sides": CASES,
                }
            },
            {},
            "search",
        ),
        ({}, {"timeout": 3.0}, "timeout: is of notebooks"),
        ({}, {"pictures": True}, "pictures: is of notebooks"),
        ({}, {"only": ["none"]}, "the sweep has no such run"),
    ],
)
def test_what_needs_notebooks_is_refused(
    fields: dict[str, Any], options: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=error):
        swept(Sweep(base=QUICK, notebooks=False, **fields), tmp_path / "s", **options)


def test_damaged_shard_is_named(tmp_path: Path) -> None:
    swept(PLAN, tmp_path)
    path = shards.files(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SettingError, match="cannot be read"):
        wb.runs(tmp_path)

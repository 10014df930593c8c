"""Trust: folders are read without executing code that they name. Code is executed only if signed or trusted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.support import foreign_folders
from tests.support.sampled_cases import rotated
from tests.support.user_plugins import FILE
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Description, described
from workbench.core.trace.trust import code_names
from workbench.lab import batch
from workbench.mpi.running.replay import replay_arrivals

ROOT = Path(__file__).resolve().parents[3]
SMALL: dict[str, Any] = {"scheme": "UMW", "workers": 3, "rounds": 3}
MINE = """
from pathlib import Path
from workbench.core.schemes.uncoded import UMW
Path("ran").touch()

class Half(UMW):
    name = "Half"
"""
# A separate process, because this one remembers which code was run.
WRITTEN = """
import workbench as wb
from workbench.lab import batch
e = wb.Experiment(scheme="mine.py:Half", workers=3, rounds=3)
wb.run(e).save("run")
"""
PLAN = {"base": {"workers": 3, "rounds": 3}, "grid": {"scheme": ["mine.py:Half"]}}
SWEPT = f"batch.sweep({PLAN}, 'sweep', progress=False)"


def program(text: str, folder: Path, **more: str) -> str:
    """Run a program in a separate process, in a folder. Return its output."""
    texts = [sys.executable, "-c", text]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(texts, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a run and a sweep that name code, in another process of this user, with the user's key."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "mine.py").write_text(MINE)
    program(WRITTEN + SWEPT, folder, XDG_DATA_HOME=str(folder / "data"))
    for name in ("ran", "sweep/plotly.min.js"):
        (folder / name).unlink()
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.fixture
def run(home: Path, written: Path) -> Path:
    """Return the folder of a copy of the written run."""
    for name in ("run", "data"):
        shutil.copytree(written / name, home / name)
    return home / "run"


def refused(folder: Path) -> None:
    """Check that a folder can be read, and that running it is refused."""
    trace = wb.Trace.load(folder)
    assert (trace.label, trace.experiment.workers, len(trace.rounds)) == ("mine.py:Half", 3, 3)
    for use in (trace.replay, lambda: wb.run(trace.experiment), lambda: wb.forecast(trace.experiment)):
        with pytest.raises(SettingError, match=r"scheme = 'mine.py:Half': names code, .*trust=True"):
            use()
    assert not Path("ran").exists()


# ---------------------------------------------------------------- reading


def test_readers_execute_no_foreign_code_of_a_few_folders(tmp_path: Path) -> None:
    drawn(tmp_path, 3)


@pytest.mark.slow
def test_readers_execute_no_foreign_code(tmp_path: Path) -> None:
    drawn(tmp_path, 150)


def drawn(folder: Path, examples: int) -> None:
    texts = [sys.executable, "-m", foreign_folders.__name__, str(examples)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}
    (home := folder / "home").mkdir()
    done = subprocess.run(texts, cwd=home, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr


@pytest.mark.parametrize("place", foreign_folders.PLACES)
def test_load_shows_but_does_not_execute_a_name_in_a_spec(place: str, home: Path) -> None:
    wb.run(wb.Experiment(**SMALL)).save("plain")
    spec = json.loads(Path("plain/spec.json").read_text())
    what = foreign_folders.NAMES.get(place.partition(".")[0], "Half")
    Path("plain/spec.json").write_text(json.dumps(foreign_folders.put(spec, place, f"mine.py:{what}")))
    foreign_folders.forged(Path("plain"))
    if place in ("scheme_args.stragglers", "optimiser_args.step"):  # these fields require a number
        with pytest.raises(SettingError, match=f"{place} = 'mine.py:Half'|stragglers"):
            wb.Trace.load("plain")
        assert wb.runs(".", progress=False).table["state"].tolist() == ["damaged"]
    else:
        assert wb.Trace.load("plain").label in ("UMW", "mine.py:Half")
        assert wb.runs(".", progress=False).table["state"].tolist() == ["done"]
    assert not Path("ran").exists()


@rotated
def test_runs_table_shows_a_spec_without_executing_it(run: Path) -> None:
    for _ in range(2):  # the second time from the cache
        (row,) = wb.runs(run.parent, progress=False).table.to_dict("records")
        text = (row["state"], row["scheme"], row["workers"], row["delays.kind"], row["problem"])
        assert text == ("done", "mine.py:Half", 3, "shifted_exponential", "logistic")
    assert not Path("ran").exists()


def test_load_calls_no_function_of_this_kernel(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    def first() -> None:
        Path("ran").touch()

    first.__module__ = "__main__"
    monkeypatch.setattr(__main__, "first", first, raising=False)
    wb.run(wb.Experiment(**SMALL)).save("plain")
    spec = json.loads(Path("plain/spec.json").read_text())
    args = {"loss_and_gradient": "first", "first": "first"}
    Path("plain/spec.json").write_text(json.dumps({**spec, "problem": "numpy", "problem_args": args}))
    foreign_folders.forged(Path("plain"))
    assert wb.runs(".", progress=False).table["state"].tolist() == ["done"]
    trace = wb.Trace.load("plain")
    assert isinstance(trace.experiment, Description)
    uses = (trace.replay, lambda: wb.run(trace.experiment), lambda: replay_arrivals("plain"))
    for use in uses:
        with pytest.raises(SettingError, match=r"= 'first': names code, .*trust=True"):
            use()
    trace.save("copy")
    with pytest.raises(SettingError, match=r"= 'first': names code, .*trust=True"):
        wb.Trace.load("copy").replay()
    assert not Path("ran").exists()
    wb.Experiment(
        **SMALL, problem="numpy", problem_args={"loss_and_gradient": first, "first": first, "samples": 30}
    )
    assert not isinstance(wb.Trace.load("plain").experiment, Description)  # the user named the function


def test_sweep_folder_may_not_name_functions_of_this_kernel(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import __main__

    def cleanup(*args: Any) -> None:
        Path("ran").touch()

    cleanup.__module__ = "__main__"
    monkeypatch.setattr(__main__, "cleanup", cleanup, raising=False)
    base = {**SMALL, "problem": "numpy", "problem_args": {"loss_and_gradient": "cleanup", "first": "cleanup"}}
    Path("sweep").mkdir()
    Path("sweep/sweep.json").write_text(json.dumps({"sweep": {"base": base}, "runs": ["x"]}))
    for use in (lambda: batch.sweep("sweep", progress=False), lambda: batch.start("sweep")):
        with pytest.raises(SettingError, match=r"= 'cleanup': names code, .*trust=True"):
            use()
    assert not Path("ran").exists()


def test_experiment_read_executes_nothing_before_a_run(home: Path) -> None:
    Path("spec.yaml").write_text("scheme: mine.py:Half\nworkers: 3\nrounds: 3\n")
    e = wb.Experiment.read("spec.yaml")
    assert (type(e), e.scheme, e.workers) == (Description, "mine.py:Half", 3)
    with pytest.raises(
        SettingError, match=r"names code, .*wb.Experiment.read\('spec.yaml', trust=True\) \(--trust\) runs it"
    ):
        wb.run(e)
    assert e.model_dump(mode="json")["scheme"] == "mine.py:Half"
    assert e.write("copy.yaml").read_text().startswith("scheme: mine.py:Half")
    assert e.replace(scheme="UMW") == wb.Experiment(**SMALL)
    assert not Path("ran").exists()
    assert len(wb.run(wb.Experiment.read("spec.yaml", trust=True)).rounds) == 3


def test_described_checks_its_fields() -> None:
    with pytest.raises(SettingError, match="workers = 0: take 1 or more"):
        described({"scheme": "mine.py:Half", "workers": 0})
    with pytest.raises(SettingError, match="delays"):
        described({"scheme": "mine.py:Half", "delays": {"kind": "constant", "shift": "x"}})


@given(
    st.recursive(
        st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=9
    )
)
def test_code_names_are_found_anywhere(inner: Any) -> None:
    for name in ("mine.py:Half", "os:abort", "a.b_c:D", "évaluation.netz:Größe"):
        assert name in code_names({"a": [inner, {"b": [name]}]})


# ---------------------------------------------------------------- running


def test_load_folders_of_version_1_0(home: Path) -> None:
    """Version 1.0 did not sign folders.

    A folder without names of code can be run. One with names can be read, and needs trust to run.
    """
    old = Path(__file__).with_name("old")
    (home / "mine.py").write_text(FILE)
    assert wb.runs(old, progress=False).table["state"].tolist() == ["done", "done"]
    trace = wb.Trace.load(old / "plain")
    assert trace.replay().rounds["loss"].to_numpy() == pytest.approx(trace.rounds["loss"].to_numpy())
    shutil.copytree(old / "own", "run")
    trace = wb.Trace.load("run")
    assert (trace.label, trace.experiment.delays.kind, trace.experiment.optimiser) == (
        "mine.py:Half", "mine.py:Even", "mine.py:Slowly",
    )  # fmt: skip
    with pytest.raises(SettingError, match=r"= 'mine.py:\w+': names code, .*trust=True"):
        trace.replay()
    again = trace.replay(trust=True)  # the modules of the package have moved since 1.0, which has no effect
    assert again.rounds["loss"].to_numpy() == pytest.approx(trace.rounds["loss"].to_numpy())


def test_load_trusts_signed_folders_until_altered(run: Path, home: Path) -> None:
    assert wb.Trace.load(run).replay().same(wb.Trace.load(run))
    assert Path("ran").exists()


SIGNED = "signature.json"


def spec_changed(run: Path) -> None:
    fields = json.loads((run / "spec.json").read_text())
    (run / "spec.json").write_text(json.dumps({**fields, "seed": 1}))
    foreign_folders.forged(run)


def source_changed(run: Path) -> None:
    with Path("mine.py").open("a") as file:
        file.write("Path('more').touch()\n")


def source_moved(run: Path) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/mine.py").write_text(MINE + "print()\n")
    os.chdir("elsewhere")


def source_kept_changed(run: Path) -> None:
    (run / "own-Half.py").write_text(MINE + "\n")


def source_added(run: Path) -> None:
    (run / "own-More.py").write_text("class More: pass\n")


def unsigned(run: Path) -> None:
    (run / SIGNED).unlink()


def damaged(run: Path) -> None:
    (run / SIGNED).write_text('{"code": 3')


def of_another(run: Path) -> None:
    shutil.rmtree("data")


def of_another_run(run: Path) -> None:
    program(WRITTEN.replace("rounds=3", "rounds=4").replace('"run"', '"other"'), Path.cwd())
    Path("ran").unlink()
    shutil.copy("other/signature.json", run / SIGNED)


ALTERED: list[Callable[[Path], None]] = [
    spec_changed, source_changed, source_moved, source_kept_changed, source_added, unsigned, damaged, of_another,
    of_another_run,
]  # fmt: skip


@pytest.mark.parametrize("alter", ALTERED, ids=lambda f: f.__name__)
def test_load_of_an_altered_folder_asks_once(alter: Callable[[Path], None], run: Path) -> None:
    alter(run)
    refused(run)
    if alter is source_kept_changed:
        return  # the run did not begin with this class
    assert len(wb.Trace.load(run).replay(trust=True).rounds) == 3
    assert Path("ran").exists()
    if alter not in (spec_changed, source_changed, unsigned):
        return  # a process for each would take long
    replayed = "import workbench as wb; t = wb.Trace.load({!r}); print(type(t.experiment).__name__, t.replay().label)"
    assert program(replayed.format(str(run)), Path.cwd()).split() == ["Description", "mine.py:Half"]


def test_load_trusts_moved_folders_and_changed_comments(run: Path, home: Path) -> None:
    run.rename(home / "moved")
    (home / "mine.py").write_text(MINE.replace("class Half", "# mine\n\nclass Half"))
    assert len(wb.Trace.load("moved").replay().rounds) == 3


def test_load_does_not_sign_what_was_only_read(run: Path) -> None:
    unsigned(run)
    wb.Trace.load(run).save("copy")
    assert (Path("copy/own-Half.py").read_text(), Path("copy", SIGNED).exists()) == (MINE, False)
    refused(Path("copy"))


def test_load_with_trust_has_the_experiment(run: Path) -> None:
    unsigned(run)
    trace = wb.Trace.load(run, trust=True)
    assert type(trace.experiment) is wb.Experiment
    assert trace.replay().same(trace)
    assert (run / SIGNED).exists()


def test_load_without_code_names_needs_no_trust(home: Path) -> None:
    trace = wb.run(wb.Experiment(**SMALL))
    assert not Path(trace.save("plain"), SIGNED).exists()
    assert wb.Trace.load("plain").replay().same(trace)


@pytest.mark.parametrize("name", ["os:abort", "antigravity:geohash", "workbench.cli.main:main", "mine:Half"])
def test_load_calls_no_function_of_a_module(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(home))
    wb.run(wb.Experiment(**SMALL)).save("plain")
    spec = json.loads(Path("plain/spec.json").read_text())
    args = {"loss_and_gradient": name, "first": name}
    Path("plain/spec.json").write_text(json.dumps({**spec, "problem": "numpy", "problem_args": args}))
    foreign_folders.forged(Path("plain"))
    for found_text in ({"task.json": "{}"}, {"ended.json": '{"state": "finished", "error": null}'}):
        for file, text in found_text.items():
            Path("plain", file).write_text(text)
        for use in (wb.attach, replay_arrivals, lambda f: wb.Trace.load(f).replay()):
            with pytest.raises(SettingError, match=f"= '{name}': names code|ended.json is missing"):
                use("plain")
    assert not Path("ran").exists()
    assert "antigravity" not in sys.modules


def test_runs_are_written_and_read_without_a_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    program(WRITTEN, home, XDG_DATA_HOME=str(home / "file" / "data"))
    Path("ran").unlink()
    assert not Path("run", SIGNED).exists()
    refused(Path("run"))


def test_load_trusts_a_read_only_folder(run: Path) -> None:
    (run / SIGNED).unlink()
    (run / SIGNED).mkdir()  # nothing can be written in its place, even by root
    assert len(wb.Trace.load(run).replay(trust=True).rounds) == 3


def test_trust_is_a_flag_of_every_reader(run: Path) -> None:
    for odd in ("yes", 1, None):
        for use in (wb.Trace.load, wb.attach, wb.resume, replay_arrivals, wb.Experiment.read, batch.sweep):
            with pytest.raises((SettingError, TypeError)):
                use(str(run), trust=odd)
    assert not Path("ran").exists()


# ---------------------------------------------------------------- sweeps


@pytest.fixture
def swept(home: Path, written: Path) -> Path:
    """Return the folder of a copy of the written sweep, without its only run."""
    for name in ("sweep", "data"):
        shutil.copytree(written / name, home / name)
    shutil.rmtree(next(Path("sweep").glob("scheme*")))
    return home / "sweep"


def test_sweep_folder_is_resumed_if_signed(swept: Path) -> None:
    shutil.copytree(swept, "copy")
    Path("copy", SIGNED).unlink()
    sweeps: list[Callable[[], object]] = [
        lambda: batch.sweep("copy", progress=False),
        lambda: batch.start("copy"),
        lambda: batch.attach("copy").resume(),
    ]
    for use in sweeps:
        with pytest.raises(
            SettingError, match=r"copy/sweep.json: scheme = 'mine.py:Half': names code, .*trust=True"
        ):
            use()
    assert not Path("ran").exists()
    assert not list(Path("copy").glob("scheme*"))
    assert len(batch.attach("copy").progress().counts) == 1
    assert not batch.sweep(swept, progress=False).failed
    assert Path("ran").exists()


@rotated
def test_sweep_folder_is_trusted_once(swept: Path) -> None:
    (swept / SIGNED).unlink()
    assert not batch.sweep(swept, progress=False, trust=True).failed
    assert len(list(swept.glob("scheme*"))) == 1
    again = "from workbench import batch; print(batch.sweep('sweep', progress=False))"
    assert "1 done before" in program(again, swept.parent)


def test_sweep_folder_may_name_only_the_users_clusters(home: Path) -> None:
    Path("lab.yaml").write_text("kind: local\n")
    plan = {"base": SMALL, "engine": "mpi", "cluster": "lab.yaml"}
    Path("sweep").mkdir()
    Path("sweep/sweep.json").write_text(json.dumps({"sweep": plan, "runs": ["x"]}))
    with pytest.raises(
        SettingError, match=r"cluster = 'lab.yaml': is neither a cluster of yours nor.*trust=True"
    ):
        batch.sweep("sweep", progress=False)


def test_diagnose_of_a_run_with_code_uses_the_recorded_times(run: Path) -> None:
    """There are three workers, of which one is slow in all rounds."""
    events = pd.read_parquet(run / "events.parquet")
    slow = (events["rank"] == 2) & (events["kind"] == "compute")
    events.loc[slow, "end"] = events["begun"] + 5 * (events["end"] - events["begun"]).max()
    more = [events.assign(round=events["round"] + 3 * i) for i in range(20)]
    pd.concat(more, ignore_index=True).to_parquet(run / "events.parquet")
    foreign_folders.forged(run)
    (run / SIGNED).unlink()
    found = wb.diagnose(run)
    assert [one.who for one in found.culprits] == ["worker 2"]
    assert "names code (trust=True, --trust)" in found.left_out
    assert not Path("ran").exists()
    assert wb.traces.load(run).job().frame["phase"].unique().tolist() == ["compute"]
    assert not Path("ran").exists()

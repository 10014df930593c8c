"""Hashes of run folders: a changed file is refused and named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from tests.support.foreign_folders import older
from tests.support.specs import quick
from workbench.core.base.files import SUMS, check_sums, unchanged, write_sums
from workbench.core.trace import layout, records
from workbench.core.trace.trace import FILES
from workbench.mpi.running.real import attach, start_real
from workbench.mpi.running.replay import replay_arrivals

REAL = quick("GC-MMC", rounds=6, samples=40, features=3)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = wb.run(wb.Experiment(workers=12, rounds=3))
    return trace.save(tmp_path_factory.mktemp("simulated") / "run")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    run = start_real(wb.Experiment(**REAL), folder=tmp_path_factory.mktemp("real") / "run")
    run.result()
    return run.home


def spoilt(path: Path, rng: np.random.Generator) -> bytes:
    """Change one byte at a drawn position of the whole file. Return its old content."""
    whole = path.read_bytes()
    place = int(rng.integers(len(whole)))
    other = bytes([whole[place] ^ int(rng.integers(1, 256))])
    path.write_bytes(whole[:place] + other + whole[place + 1 :])
    return whole


@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_check_sums_names_a_changed_file(tmp_path: Path, simulated: Path, name: str) -> None:
    folder = shutil.copytree(simulated, tmp_path / "run")
    rng, kept = np.random.default_rng(len(name)), folder / name
    for _ in range(60):
        whole = spoilt(kept, rng)
        with pytest.raises(wb.SettingError) as refused:
            wb.Trace.load(folder)
        text = str(refused.value)
        assert name in text
        assert "\n" not in text
        kept.write_bytes(whole)
    assert wb.Trace.load(folder).same(wb.Trace.load(simulated))


@pytest.mark.parametrize("cut", [0, 1, -1])
@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_check_sums_names_a_truncated_file(tmp_path: Path, simulated: Path, name: str, cut: int) -> None:
    folder = shutil.copytree(simulated, tmp_path / "run")
    (folder / name).write_bytes((folder / name).read_bytes()[:cut])
    with pytest.raises(
        wb.SettingError, match=name if cut == -1 or name != SUMS else "is not in|has other content"
    ):
        wb.Trace.load(folder)


@pytest.mark.parametrize("version", ["1.0.0", "1.0.0.dev1", "2.0.0", "2.1", "10.0"])
def test_check_sums_refuses_a_folder_whose_hashes_were_removed(
    tmp_path: Path, simulated: Path, version: str
) -> None:
    folder = older(shutil.copytree(simulated, tmp_path / "run"), version)
    with pytest.raises(wb.SettingError, match="SHA256SUMS is missing, and the version that wrote"):
        wb.Trace.load(folder)
    (row,) = wb.runs(tmp_path, progress=False).table.to_dict("records")
    assert (row["state"], "SHA256SUMS is missing" in row["error"]) == ("damaged", True)


def test_check_sums_accepts_folders_of_older_versions(tmp_path: Path, simulated: Path) -> None:
    folder = older(shutil.copytree(simulated, tmp_path / "run"))
    assert wb.Trace.load(folder).same(wb.Trace.load(simulated))
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text('{"engine": "si')
    with pytest.raises(wb.SettingError, match=r"run.json: is damaged \(Unterminated string"):
        wb.Trace.load(folder)
    for name in ("rounds.parquet", "events.parquet", "model.npy"):
        (folder / "run.json").write_text(text)
        (folder / name).write_bytes(b"no such thing")
        with pytest.raises(wb.SettingError, match=rf"{name}: is damaged"):
            wb.Trace.load(folder)
        shutil.copy(simulated / name, folder)


@pytest.mark.parametrize("name", [SUMS, "model.npy"])
def test_check_sums_names_an_unreadable_file(tmp_path: Path, simulated: Path, name: str) -> None:
    folder = shutil.copytree(simulated, tmp_path / "run")
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(wb.SettingError, match=rf"{name} (cannot be read|is missing)"):
        check_sums(folder, FILES)


def test_write_sums_has_the_format_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    write_sums(tmp_path, ["empty"], {"later": b"abc"})
    assert (tmp_path / SUMS).read_text().splitlines() == [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  later",
    ]
    (tmp_path / "later").write_bytes(b"abc")
    check_sums(tmp_path, ["empty", "later"])
    with pytest.raises(wb.SettingError, match="other is not in"):
        check_sums(tmp_path, ["other"])


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
class TestReal:
    def test_check_sums_refuses_changed_real_runs(self, tmp_path: Path, real: Path) -> None:
        folder = shutil.copytree(real, tmp_path / "run")
        rng, names = np.random.default_rng(0), records.kept(folder)
        assert {layout.ROWS, layout.MODELS, layout.LEDGERS, layout.ENDED, "arrivals/0.i64"} <= set(names)
        replay_arrivals(folder)
        for name in set(names) - {layout.ENDED}:
            for _ in range(10):
                whole = spoilt(folder / name, rng)
                with pytest.raises(wb.SettingError, match=name):
                    replay_arrivals(folder)
                (folder / name).write_bytes(whole)

    @pytest.mark.parametrize(
        ("field", "value"), [(1, 3), (1, 0), (1, 77), (1, -1), (2, 5), (2, -1), (0, 4), (0, 10**9)]
    )
    def test_replay_arrivals_refuses_a_damaged_log(
        self, tmp_path: Path, real: Path, field: int, value: int
    ) -> None:
        """The replay used to wait forever for an answer that a worker never sends."""
        folder = older(shutil.copytree(real, tmp_path / "run"))
        log = np.fromfile(folder / "arrivals" / "0.i64", dtype=np.int64).reshape(-1, 3)
        log[log[:, 0] == 2, field] = value
        log.tofile(folder / "arrivals" / "0.i64")
        with pytest.raises(wb.RunError, match=r"rank \d: the arrival log of round"):
            replay_arrivals(folder)

    def test_attach_rewrites_a_truncated_trace(self, tmp_path: Path, real: Path) -> None:
        folder = shutil.copytree(real, tmp_path / "run")
        (folder / "run.json").unlink()
        (folder / "model.npy").write_bytes(b"")
        trace = attach(folder).result()
        assert wb.Trace.load(folder).same(trace)
        assert unchanged(folder, layout.ENDED)

    @pytest.mark.parametrize("name", ["ended.json", "task.json", "owner.json"])
    def test_check_sums_names_a_torn_file(self, tmp_path: Path, real: Path, name: str) -> None:
        folder = shutil.copytree(real, tmp_path / "run")
        for other in {"ended.json", "owner.json", SUMS} - {name}:  # as after a crash
            (folder / other).unlink()
        (folder / name).write_text('{"cluster": {"kind": "lo')
        with pytest.raises(wb.SettingError, match=rf"{name}: is damaged \(Unterminated string"):
            (attach if name == "ended.json" else wb.resume)(folder).result()


def test_runs_table_names_a_changed_file(tmp_path: Path, simulated: Path) -> None:
    for name in ("a", "b", "c"):
        shutil.copytree(simulated, tmp_path / name)
    spec = json.loads((tmp_path / "b" / "spec.json").read_text())
    (tmp_path / "b" / "spec.json").write_text(json.dumps({**spec, "seed": 5}))
    table = wb.runs(tmp_path).table.set_index("run")
    assert table["state"].tolist() == ["done", "damaged", "done"]
    assert "spec.json is not what was written" in table["error"]["b"]

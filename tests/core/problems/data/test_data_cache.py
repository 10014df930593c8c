"""The cache of prepared data: reused, rebuilt if damaged, and built by many processes at once."""

import json
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core.problems import data as room
from workbench.core.problems.data import DataError, cache, dataset, load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    return tmp_path


def flip_a_byte(folder: Path) -> None:
    with (folder / "X.npy").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))


def cut_short(folder: Path) -> None:
    os.truncate(folder / "X.npy", 1000)


def lose_y(folder: Path) -> None:
    (folder / "y.npy").unlink()


def exchange_y(folder: Path) -> None:
    np.save(folder / "y.npy", np.zeros(30))


def lose_meta(folder: Path) -> None:
    (folder / "meta.json").unlink()


def garble_meta(folder: Path) -> None:
    (folder / "meta.json").write_text("[]")


def change_meta(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "classes": 7}))


DAMAGES = [flip_a_byte, cut_short, lose_y, exchange_y, lose_meta, garble_meta, change_meta]


@pytest.mark.parametrize("damage", DAMAGES)
def test_load_rebuilds_damaged_data_with_a_warning(home: Path, damage: Callable[[Path], None]) -> None:
    first = load("synthetic", "binary", samples=30)
    X, digest = np.array(first.X), first.digest
    damage(first.folder)
    with pytest.warns(RuntimeWarning, match="damaged .* built again"):
        again = load("synthetic", "binary", samples=30)
    assert again.digest == digest
    assert again.classes == 2
    np.testing.assert_array_equal(again.X, X)
    assert [path.name for path in (home / "data").iterdir()] == [first.folder.name]


@pytest.mark.filterwarnings("error")
def test_load_if_another_process_removes_the_folder_while_reading(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("synthetic", "binary", samples=30)
    checked = cache.open_folder

    def taken(folder: Path) -> cache.Prepared:
        monkeypatch.setattr(cache, "open_folder", checked)
        shutil.rmtree(folder)
        raise cache.DamagedError("gone")

    monkeypatch.setattr(cache, "open_folder", taken)
    assert load("synthetic", "binary", samples=30).digest == first.digest


def test_load_if_another_process_removes_the_folder_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("synthetic", "binary", samples=30)
    lose_y(first.folder)
    monkeypatch.setattr("warnings.warn", lambda *_: shutil.rmtree(first.folder))
    assert load("synthetic", "binary", samples=30).digest == first.digest


def test_load_does_not_rebuild_intact_data(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("iris", "multiclass")
    monkeypatch.setattr(dataset, "prepare", lambda *_: pytest.fail("prepared twice"))
    assert load("iris", "multiclass").digest == first.digest


def test_load_checks_hashes_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("iris", "multiclass")
    monkeypatch.setattr(cache, "sha256", lambda _: pytest.fail("hashed twice"))
    load("iris", "multiclass")


@pytest.mark.parametrize(
    "choice", [{"samples": 20}, {"features": 3}, {"intercept": True}, {"scale": False}, {"seed": 1}]
)
def test_load_caches_each_option_separately(choice: dict[str, int]) -> None:
    assert load("wine", "multiclass").folder != load("wine", "multiclass", **choice).folder
    assert load("breast_cancer", "binary").folder != load("breast_cancer", "multiclass").folder


def test_load_writes_a_meta_file(home: Path) -> None:
    data = load("synthetic", "regression", samples=5, features=2, intercept=True)
    meta = json.loads((data.folder / "meta.json").read_text())
    assert {name: entry["shape"] for name, entry in meta["arrays"].items()} == {
        "X": [5, 3],
        "y": [5],
        "truth": [3],
    }
    assert meta["note"] == data.note
    assert meta["options"]["samples"] == 5
    assert str(home) not in (data.folder / "meta.json").read_text()


def test_load_failure_leaves_nothing(home: Path) -> None:
    np.save(home / "bad.npy", np.array([[1.0, np.nan, 0.0]]))
    with pytest.raises(DataError, match="column 1"):
        load(str(home / "bad.npy"), "regression")
    assert list((home / "data").iterdir()) == []


def test_load_reports_too_little_disk_space(home: Path) -> None:
    with pytest.raises(DataError, match=r"take 80000.0 GB .* WORKBENCH_CACHE"):
        load("synthetic", "regression", samples=10**8, features=10**5)


def test_load_reports_an_unwritable_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("WORKBENCH_CACHE", str(home / "file"))
    with pytest.raises(DataError, match=r"cache: .* WORKBENCH_CACHE"):
        load("iris", "multiclass")


def test_the_users_cache_folder_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_CACHE")
    assert cache.root().name == "workbench"


@pytest.mark.parametrize("damaged", [False, True])
def test_load_in_many_processes_at_once(home: Path, damaged: bool) -> None:
    arguments = ("synthetic", "regression")
    choices = {"samples": 1500, "features": 400}
    if damaged:
        flip_a_byte(load(*arguments, **choices).folder)
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(4, timeout=120)
    with context.Pool(4, initializer=together.wait) as pool:
        answers = [pool.apply_async(load, arguments, choices) for _ in range(8)]
        sets = [answer.get(timeout=120) for answer in answers]
    assert len({each.digest for each in sets}) == 1
    assert all(np.array_equal(each.X, sets[0].X) for each in sets)
    (folder,) = (home / "data").iterdir()
    np.testing.assert_array_equal(room.reopen(folder).X, sets[0].X)


def slow_load(count: Path) -> None:
    """Load data whose preparation takes some time and is counted in a file."""
    prepare = dataset.prepare

    def counted(*arguments: Any) -> None:
        with count.open("a") as file:
            file.write("1")
        time.sleep(1.0)
        prepare(*arguments)

    dataset.prepare = counted
    load("synthetic", "binary", samples=30)


def test_processes_that_begin_together_prepare_data_once(home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        answers = [pool.apply_async(slow_load, (home / "count",)) for _ in range(3)]
        for answer in answers:
            answer.get(timeout=120)
    assert (home / "count").read_text() == "1"
    assert len(list((home / "data").iterdir())) == 1


def test_cache_entry_of_another_process_is_valid_until_the_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "X.npy"
    path.write_bytes(b"1")
    known = cache.hashed(path, cached=True)
    assert cache.hashes(tmp_path) == cache.hashes(path) != []
    cache.trust([[*stamp, "theirs"] for *stamp, _ in cache.hashes(path)])
    assert cache.hashed(path) == "theirs"
    path.write_bytes(b"22")
    assert cache.hashed(path) not in ("theirs", known)

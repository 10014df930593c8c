"""Files and folders appear whole or not at all."""

import hashlib
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.base.files import atomic_folder, atomic_write, sha256
from workbench.core.problems.data import cache


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(_: object, error: type[BaseException]) -> None:
    """Fail after the first argument was worked out."""
    raise error


@given(content=st.binary(max_size=2000))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    with atomic_write(path) as file:
        file.write(content)
    assert path.read_bytes() == content
    assert sha256(path) == hashlib.sha256(content).hexdigest()


def test_text_is_utf8(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "text", "w") as file:
        file.write("α\n")
    assert (tmp_path / "text").read_bytes() == b"\xce\xb1\n"


def test_nothing_shows_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path, "w") as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_failure_leaves_the_old_file_and_no_rubbish(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as file:
        interrupted(file.write(b"half"), error)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("mode", ["a", "r", "r+b", "x"])
def test_only_whole_files_are_written(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ValueError, match=r"mode: .* use 'wb' or 'w'"), atomic_write(tmp_path / "file", mode):
        pass
    assert names(tmp_path) == []


def test_a_file_gets_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "atomic"):
        pass
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
    assert len(modes) == 1


def test_a_folder_gets_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as temporary:
        (temporary / "deep").mkdir()
        (temporary / "deep" / "file").write_text("content")
        assert temporary.parent == path.parent
        assert not path.exists()
    assert (path / "deep" / "file").read_text() == "content"
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_folder_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as temporary:
        interrupted((temporary / "file").touch(), error)
    assert names(tmp_path) == []


def test_the_first_folder_stays(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as slow:
        (slow / "slow").touch()
        with atomic_folder(path) as fast:
            (fast / "fast").touch()
    assert names(path) == ["fast"]
    assert names(tmp_path) == ["folder"]


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(OSError, match="taken"), atomic_folder(path):
        pass
    assert path.read_text() == "mine"
    assert names(tmp_path) == ["taken"]


def test_of_many_writers_one_wins(tmp_path: Path) -> None:
    together = Barrier(4)

    def fill(path: Path, mark: int) -> None:
        with atomic_folder(path) as folder:
            for name in ("first", "second"):
                (folder / name).write_text(str(mark))
            together.wait(timeout=60)  # all rename at once

    with ThreadPoolExecutor(4) as pool:
        for round in range(20):
            path = tmp_path / str(round)
            list(pool.map(fill, [path] * 4, range(4)))
            assert (path / "first").read_text() == (path / "second").read_text()
    assert len(names(tmp_path)) == 20


def test_caches_are_for_this_user_alone_those_of_older_versions_too(tmp_path: Path) -> None:
    """Data and run folders: `user_cache_path` looks at XDG_CACHE_HOME, so in a process of its own."""
    for name in ("straggler-workbench/runs", "workbench/data"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name).chmod(0o755)
    code = (
        "import workbench as wb\nfrom workbench.mpi.launch.head.pools import pools_folder\n"
        "from workbench.core.trace.folder import new_folder\n"
        "wb.Experiment().build_problem()\nprint(new_folder(None).parent, pools_folder())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "WORKBENCH_CACHE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    places = [*map(Path, done.stdout.split()), tmp_path / "workbench" / "data"]
    assert [stat.S_IMODE(place.stat().st_mode) for place in places] == [0o700] * 3


def test_a_cache_that_the_user_shares_stays_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o775)
    modes = [stat.S_IMODE(cache.ours(tmp_path / name).stat().st_mode) for name in ("data", "book")]
    assert modes == [0o775, 0o700]

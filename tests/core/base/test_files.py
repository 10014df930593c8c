"""Atomic writes of files and folders, and private folders."""

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

from workbench.core.base.files import atomic_folder, atomic_write, private_folder, sha256
from workbench.core.base.settings import SettingError
from workbench.core.problems.data import cache


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(_: object, error: type[BaseException]) -> None:
    """Raise an error, after the first argument was evaluated."""
    raise error


@given(content=st.binary(max_size=2000))
def test_atomic_write_is_read_back(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("write") / "file"
    with atomic_write(path) as file:
        file.write(content)
    assert path.read_bytes() == content
    assert sha256(path) == hashlib.sha256(content).hexdigest()


def test_atomic_write_encodes_as_utf8(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "text", "w") as file:
        file.write("α\n")
    assert (tmp_path / "text").read_bytes() == b"\xce\xb1\n"


def test_atomic_write_shows_nothing_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_write(path, "w") as file:
        file.write("new")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_write_failure_keeps_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_write(path) as file:
        interrupted(file.write(b"half"), error)
    assert names(tmp_path) == ["file"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("mode", ["a", "r", "r+b", "x"])
def test_atomic_write_makes_only_complete_files(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ValueError, match=r"mode: .* use 'wb' or 'w'"), atomic_write(tmp_path / "file", mode):
        pass
    assert names(tmp_path) == []


def test_atomic_write_uses_the_umask(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "atomic"):
        pass
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "atomic")}
    assert len(modes) == 1


def test_atomic_folder_is_renamed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as temporary:
        (temporary / "deep").mkdir()
        (temporary / "deep" / "file").write_text("content")
        assert temporary.parent == path.parent
        assert not path.exists()
    assert (path / "deep" / "file").read_text() == "content"
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_folder_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as temporary:
        interrupted((temporary / "file").touch(), error)
    assert names(tmp_path) == []


def test_atomic_folder_keeps_the_first_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as slow:
        (slow / "slow").touch()
        with atomic_folder(path) as fast:
            (fast / "fast").touch()
    assert names(path) == ["fast"]
    assert names(tmp_path) == ["folder"]


def test_atomic_folder_refuses_a_file_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.write_text("mine")
    with pytest.raises(OSError, match="taken"), atomic_folder(path):
        pass
    assert path.read_text() == "mine"
    assert names(tmp_path) == ["taken"]


def test_atomic_folder_with_concurrent_writers(tmp_path: Path) -> None:
    together = Barrier(4)

    def fill(path: Path, mark: int) -> None:
        with atomic_folder(path) as folder:
            for name in ("first", "second"):
                (folder / name).write_text(str(mark))
            together.wait(timeout=60)  # all threads rename at the same time

    with ThreadPoolExecutor(4) as pool:
        for round in range(20):
            path = tmp_path / str(round)
            list(pool.map(fill, [path] * 4, range(4)))
            assert (path / "first").read_text() == (path / "second").read_text()
    assert len(names(tmp_path)) == 20


def test_cache_is_private_also_if_an_older_version_made_it(tmp_path: Path) -> None:
    """Folders of data, runs and pools are private, even if other users could read the cache before.

    The check runs in a separate process, because `user_cache_path` reads XDG_CACHE_HOME.
    """
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


def test_cache_with_shared_permissions_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o775)
    modes = [stat.S_IMODE(cache.ours(tmp_path / name).stat().st_mode) for name in ("data", "book")]
    assert modes == [0o775, 0o700]


# ------------------------------------------------------------------ private folders of the user

root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="another user's files")


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277])
def test_private_folder_and_its_parents_are_0700(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        private_folder(tmp_path / "cache" / "straggler-workbench" / "compiled")
    finally:
        os.umask(before)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


@root
@pytest.mark.parametrize("how", ["folder", "link", "link to another's"])
def test_private_folder_refuses_another_users_folder(how: str, tmp_path: Path) -> None:
    path, other = tmp_path / "compiled", tmp_path / "other"
    (path if how == "folder" else other).mkdir(mode=0o777)
    if how == "folder":
        os.chown(path, 12345, 12345)
    else:
        path.symlink_to(other)
        os.chown(path if how == "link" else other, 12345, 12345, follow_symlinks=False)
    with pytest.raises(SettingError, match=r"belongs to another user \(12345\); take one of your"):
        private_folder(path)


@root
def test_private_folder_refuses_a_replaceable_folder(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SettingError, match="where any user may replace it"):
        private_folder(tmp_path / "open" / "cache")
    (tmp_path / "open").chmod(0o1777)  # permissions of /tmp
    private_folder(tmp_path / "open" / "cache")


@pytest.mark.skipif(os.name != "posix", reason="rights of POSIX")
def test_bytecode_cache_of_ranks_is_private(tmp_path: Path) -> None:
    """Python would run .pyc files in this folder, so files of other users are removed."""
    script = """
import os, sys
from pathlib import Path
os.umask(0)
sys.dont_write_bytecode = True
from workbench.mpi.launch import mpiexec
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
folder = Path(mpiexec.environment()["PYTHONPYCACHEPREFIX"])
print(folder, *sorted(path.name for path in folder.iterdir()), oct(folder.stat().st_mode & 0o777))
"""
    planted = tmp_path / "straggler-workbench" / "compiled"
    planted.mkdir(parents=True)
    planted.chmod(0o777)
    (planted / "planted.pyc").touch()
    more = {"XDG_CACHE_HOME": str(tmp_path)}

    def listed() -> list[str]:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True, check=False)
        return (done.stdout or done.stderr.splitlines()[-1]).split()

    assert listed() == [str(planted), "0o700"]
    (planted / "mine.pyc").touch()
    assert listed() == [str(planted), "mine.pyc", "0o700"]
    if os.geteuid() == 0:
        os.chown(planted.parent, 0, 0)
        os.chown(planted, 12345, 12345)
        assert listed() == [str(planted), "0o700"]  # the folder is created again and owned by root
        assert planted.stat().st_uid == 0

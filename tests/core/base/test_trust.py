"""Limits to the code that a file may run, and the key with which folders are signed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest

import workbench as wb
from workbench.core.base.settings import SettingError
from workbench.core.base.trust import is_signed, key_file, limit, limited, signature
from workbench.core.base.user_code import source_hash, thing_of

WORDS = {"spec": {"scheme": "mine.py:Half"}, "code": ["a", 1]}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_key_file_is_made_once_and_private() -> None:
    before = os.umask(0)
    try:
        signed = signature(WORDS)
    finally:
        os.umask(before)
    key = key_file().read_bytes()
    assert len(key) == 32
    assert oct(key_file().stat().st_mode & 0o777) == "0o600"
    assert oct(key_file().parent.stat().st_mode & 0o777) == "0o700"
    assert is_signed(WORDS, signed)
    assert signature(WORDS) == signed
    assert [path.name for path in key_file().parent.iterdir()] == ["key"]
    assert key_file().read_bytes() == key


def test_is_signed_detects_changes() -> None:
    signed = signature(WORDS)
    assert signed is not None
    for other in ({}, {**WORDS, "more": 1}, {**WORDS, "spec": {"scheme": "mine.py:half"}}):
        assert not is_signed(other, signed)
    for odd in (None, "", signed[:-1], signed.upper(), 1, [signed], "é" * 64):
        assert not is_signed(WORDS, odd)


def test_signature_key_is_shared_by_concurrent_processes(home: Path) -> None:
    code = f"from workbench.core.base.trust import signature; print(signature({WORDS!r}))"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert {process.communicate()[0] for process in started} == {f"{signature(WORDS)}\n"}


def readable(file: Path) -> None:
    file.chmod(0o640)


def foreign(file: Path) -> None:
    os.chown(file, 12345, 12345)


def linked(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def open_folder(file: Path) -> None:
    file.parent.chmod(0o755)


def foreign_folder(file: Path) -> None:
    os.chown(file.parent, 12345, 12345)


def short(file: Path) -> None:
    file.write_bytes(b"0" * 31)


def piped(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


@pytest.mark.parametrize(
    "spoil", [readable, foreign, linked, open_folder, foreign_folder, short, piped], ids=lambda f: f.__name__
)
def test_key_file_with_open_permissions_is_not_used(spoil: Callable[[Path], None]) -> None:
    signed = signature(WORDS)
    if spoil in (foreign, foreign_folder) and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    spoil(key_file())
    assert not is_signed(WORDS, signed)
    assert signature(WORDS) is None


def test_is_signed_is_false_without_a_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "file" / "data"))
    assert signature(WORDS) is None
    assert not is_signed(WORDS, "0" * 64)


def test_thing_of_refuses_sources_that_were_not_allowed(home: Path) -> None:
    (home / "mine.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef net(): pass\n")
    with limited() as now, pytest.raises(SettingError, match=r"loss = 'mine.py:net': names code"):
        thing_of("mine.py:net", "loss")
    assert now.names == ["mine.py:net"]
    hashed = source_hash("mine.py:net")
    assert not (home / "ran").exists()
    with limited({"mine.py:net": hashed}):
        assert thing_of("mine.py:net", "loss").__name__ == "net"
    assert (home / "ran").exists()
    (home / "ran").unlink()
    with limited():  # this process has already run the source unchanged
        assert thing_of("mine.py:net", "loss").__name__ == "net"
    (home / "mine.py").write_text("from pathlib import Path\nPath('ran').touch()\ndef net(): return 1\n")
    for allowed in ({}, {"mine.py:net": hashed}):
        with limited(allowed), pytest.raises(SettingError, match="names code"):
            thing_of("mine.py:net", "loss")
    assert not (home / "ran").exists()


def test_thing_of_ignores_compiled_code(home: Path) -> None:
    """The source is harmless, but __pycache__ has other code, which Python would run in its place."""
    import py_compile

    file = home / "shown.py"
    file.write_text("def net(): pass  # 01234567890123456789\n")
    state = file.stat()
    file.write_text("raise SystemError('planted') # 012345678\n"[: state.st_size])
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    py_compile.compile(str(file), doraise=True)
    file.write_text("def net(): pass  # 01234567890123456789\n")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    for name in ("shown.py:net", "shown:net"):
        with limited({name: source_hash(name)}):
            assert thing_of(name, "loss").__name__ == "net"


def test_source_hash_covers_imports_but_not_comments(home: Path) -> None:
    (home / "mine.py").write_text("import helper_of_mine\ndef net(): pass\n")
    (home / "helper_of_mine.py").write_text("import numpy\nfrom package_of_mine import inner\n")
    (home / "package_of_mine").mkdir()
    inner = home / "package_of_mine" / "inner.py"
    for file in (inner, inner.with_name("__init__.py")):
        file.write_text("")
    name = "mine.py:net"
    first = source_hash(name)
    (home / "mine.py").write_text("import helper_of_mine  # the same\n\n\ndef net(): pass\n")
    assert source_hash(name) == first
    inner.write_text("x = 1\n")
    assert source_hash(name) != first
    assert "helper_of_mine" not in sys.modules
    before = source_hash("package_of_mine.inner:x")
    inner.write_text("x = 2\n")
    assert source_hash("package_of_mine.inner:x") not in ("", before)
    for installed in ("numpy:zeros", "os:abort", "no_such_module:x", "workbench.cli.main:main"):
        assert source_hash(installed) == ""


def test_source_hash_of_a_source_with_a_syntax_error(home: Path) -> None:
    for text in ("def (", "(" * 5000, "-" * 100_000 + "1", "x = '\x00'"):
        (home / "odd.py").write_text(text)
        assert source_hash("odd.py:net")


def test_limited_excludes_names_of_imported_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    def own() -> None: ...

    own.__module__ = "__main__"
    for name, value in {"abort": os.abort, "run": wb.run, "own": own}.items():
        monkeypatch.setattr(__main__, name, value, raising=False)
    with limited():
        with pytest.raises(SettingError, match="loss = 'own': names code, which reading does not run"):
            thing_of("own", "loss")
        for name in ("abort", "run"):
            with pytest.raises(SettingError, match="nothing of that name"):
                thing_of(name, "loss")
    with limited({"own": ""}):
        assert thing_of("own", "loss") is own
    with limited():  # this process has used the function before
        assert thing_of("own", "loss") is own


def test_limited_applies_in_a_thread_with_the_context() -> None:
    found = []
    with limited() as now:
        thread = threading.Thread(target=copy_context().run, args=(lambda: found.append(limit()),))
    thread.start()
    thread.join()
    assert found == [now]
    assert limit() is None

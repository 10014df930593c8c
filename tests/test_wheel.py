"""The wheel works without a clone: it contains the notebooks and the examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.browser.jupyterlab import free_port
from tests.support.sampled_cases import rotated
from workbench.lab import notebooks

ROOT = Path(__file__).resolve().parents[1]
SITE = Path(sysconfig.get_path("purelib"))

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="puts an environment together from links"),
    pytest.mark.xdist_group("wheel"),
]


@dataclass(frozen=True)
class Installed:
    """Environment outside the checkout with the wheel. All other packages are those of this environment."""

    wheel: Path
    prefix: Path
    cwd: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.prefix / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": "",
        }

    def run(self, *text: str) -> str:
        done = subprocess.run(text, cwd=self.cwd, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{text}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def python(self, *text: str) -> str:
        return self.run(str(self.prefix / "bin" / "python"), *text)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(base)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = base.glob("*.whl")
    prefix = base / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    others = prefix / SITE.relative_to(sys.prefix) / "others.pth"
    others.write_text(
        f"{SITE}\n"
    )  # .pth files, such as that of the clone, are not read there, so only its packages are found
    for name in ("share", "etc"):  # JupyterLab's pages, and nbconvert's templates
        shutil.rmtree(prefix / name, ignore_errors=True)
        (prefix / name).symlink_to(Path(sys.prefix) / name)
    uv = Path(sys.prefix) / "bin" / "uv"
    install = [
        str(uv),
        "pip",
        "install",
        "-q",
        "--offline",
        "--no-deps",
        "--python",
        str(prefix / "bin/python"),
    ]
    subprocess.run([*install, str(wheel)], check=True)
    cwd = base / "elsewhere"
    cwd.mkdir()
    return Installed(wheel, prefix, cwd)


def test_the_wheel_carries_what_the_clone_has(installed: Installed) -> None:
    names = set(zipfile.ZipFile(installed.wheel).namelist())
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").rglob("*.ipynb")}
    ours |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.yaml")}
    ours |= {"clusters/local.yaml", "clusters/ec2/policy.json"}
    assert {f"workbench/shipped/{name}" for name in ours} <= names
    data = {p.relative_to(ROOT / "workbench").as_posix() for p in (ROOT / "workbench").rglob("js/*.js")}
    assert {f"workbench/{name}" for name in data} <= names
    assert not [name for name in names if "/tests/" in name or "_checkpoints" in name]


@rotated
def test_wheel_runs_without_the_checkout(installed: Installed) -> None:
    ours = "workbench, workbench_book, workbench_lectures"
    says = f"import {ours}; print(*(each.__file__ for each in ({ours})))"
    places = installed.python("-c", says).split()
    assert all(Path(place).is_relative_to(installed.prefix) for place in places)
    where = "from workbench.lab.notebooks import shipped; print(shipped('notebooks'))"
    assert Path(installed.python("-c", where).strip()).is_relative_to(installed.prefix)


@rotated
@pytest.mark.parametrize("text", [(), ("lectures",), ("lab",), ("reproduce",), ("sweep",)], ids=" ".join)
def test_wheel_help(installed: Installed, text: tuple[str, ...]) -> None:
    assert "Usage:" in installed.python("-m", "workbench", *text, "--help")


@rotated
def test_wheel_run(installed: Installed) -> None:
    installed.run("workbench", "run", "--workers", "4", "--scheme", "UMW", "--rounds", "5", "-o", "first")
    assert (installed.cwd / "first" / "spec.json").is_file()


@pytest.mark.slow
def test_wheel_table_of_the_book(installed: Installed) -> None:
    assert "table3" in installed.run("workbench", "reproduce", "table3", "-o", "reports")


@pytest.mark.slow
def test_wheel_sweep_in_papermill(installed: Installed) -> None:
    (installed.cwd / "two.yaml").write_text("base: {workers: 4, rounds: 5}\ngrid: {scheme: [UMW, SGD]}\n")
    installed.run("workbench", "sweep", "two.yaml", "-o", "two")
    assert len(list((installed.cwd / "two").glob("*/trace/spec.json"))) == 2


@pytest.mark.slow
def test_wheel_quickstart(installed: Installed) -> None:
    assert "Written:" in installed.python("-m", "workbench.lab.batch.quickstart")


@rotated
def test_wheel_lab_serves_the_copied_notebooks(installed: Installed) -> None:
    port = free_port()
    texts = [str(installed.prefix / "bin" / "workbench"), "lab", "mine", "--no-browser", "--port", str(port)]
    environment = {**installed.environment, "JUPYTER_TOKEN": "known"}
    with subprocess.Popen(texts, cwd=installed.cwd, env=environment, stderr=subprocess.DEVNULL) as lab:
        try:
            listing = json.loads(_answer(f"http://127.0.0.1:{port}/api/contents?token=known"))
            page = _answer(f"http://127.0.0.1:{port}/lab?token=known")
        finally:
            lab.terminate()
            lab.wait()
    names = {entry["name"] for entry in listing["content"]}
    assert {"01-quickstart.ipynb", "lecture", "papers", "clusters", "examples"} <= names
    assert b"jupyter-config-data" in page


def _answer(address: str, seconds: float = 60) -> bytes:
    """Return the page at an address, once the server is up."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return bytes(answer.read())
        except urllib.error.URLError:
            assert time.monotonic() < end, "JupyterLab did not start"
            time.sleep(0.2)


def test_wheel_keeps_what_the_user_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "workbench"
    source = package / "shipped" / "notebooks"
    source.mkdir(parents=True)
    for name in ("one", "two", "three"):
        (source / f"{name}.ipynb").write_text(f"{name}, first edition")
    monkeypatch.setattr(notebooks, "PACKAGE", package)
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "three.ipynb").write_text("mine from the beginning")
    assert notebooks.copy_notebooks(mine) == (["one.ipynb", "two.ipynb"], ["three.ipynb"])
    assert notebooks.copy_notebooks(mine) == ([], ["three.ipynb"])
    (mine / "two.ipynb").write_text("mine")
    for name in ("one", "two"):
        (source / f"{name}.ipynb").write_text(f"{name}, second edition")
    assert notebooks.copy_notebooks(mine) == (["one.ipynb"], ["three.ipynb", "two.ipynb"])
    assert (mine / "one.ipynb").read_text() == "one, second edition"
    assert (mine / "two.ipynb").read_text() == "mine"

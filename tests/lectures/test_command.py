"""The command that serves the lectures: loopback only, a token by default, pages without access to files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from workbench_lectures import command as cli_lectures
from workbench_lectures import scripts
from workbench_lectures.command import command, lectures, templates

from workbench.lab import notebooks


def test_lectures_command_listens_on_loopback_with_a_token() -> None:
    text = command(Path("lectures"), 8866, browser=False, token=True, dark=False)
    assert "--Voila.ip=127.0.0.1" in text
    assert "--token" in text
    assert {"--no-browser", "--theme=light", "--port=8866"} <= set(text)
    open_to_all = command(Path("lectures"), 0, browser=True, token=False, dark=True)
    assert not {"--token", "--no-browser"} & set(open_to_all)
    assert {"--theme=dark", "--Voila.ip=127.0.0.1"} <= set(open_to_all)


def test_lectures_command_serves_the_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(cli_lectures.subprocess, "call", lambda fields, **_: called.append(fields) or 0)
    assert CliRunner().invoke(lectures, ["--no-browser", "--port", "0"]).exit_code == 0
    (text,) = called
    (folder,) = [Path(word) for word in text if word.endswith("lecture")]
    assert sorted(path.stem for path in folder.glob("*.ipynb")) == list(scripts())
    assert "workbench.mpi.launch.processes" in text  # the server ends if its parent process is killed
    (port,) = [word for word in text if word.startswith("--port=")]
    assert int(port.removeprefix("--port=")) > 0  # with --port=0, Voila would print 0


def test_lectures_command_without_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(notebooks, "PACKAGE", tmp_path / "workbench")
    result = CliRunner().invoke(lectures, [])
    assert "no such folder" in str(result.exception)
    assert CliRunner().invoke(lectures, ["--port", "99999"]).exit_code == 2


def test_lectures_command_list_has_titles_and_loads_nothing_external() -> None:
    with templates(notebooks.shipped("notebooks/lecture")) as shared:
        folder = Path(shared.split(os.pathsep)[0]) / "voila" / "templates" / "lectures"
        assert "Lecture 1: stragglers and the tail" in (folder / "titles.html").read_text()
        for page in folder.glob("*.html*"):
            text = page.read_text()
            assert "Content-Security-Policy" in text or page.name == "titles.html"
            assert "//" not in text.replace("https://cdn.jsdelivr.net", "")
    assert not folder.exists()


def test_lectures_command_writes_static_pages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = {"2-by-hand": scripts()["2-by-hand"]}
    monkeypatch.setattr(cli_lectures, "scripts", lambda: one)
    result = CliRunner().invoke(lectures, ["--static", str(tmp_path / "site")])
    assert result.exit_code == 0
    found = sorted(path.name for path in (tmp_path / "site").iterdir())
    assert found == ["2-by-hand.html", "index.html", "plotly.js"]
    assert "index.html" in result.output

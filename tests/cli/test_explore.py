"""The command `explore`: refused arguments, and the page that it serves."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest

import workbench as wb
from workbench.cli import explore as module
from workbench.cli.main import main
from workbench.lab.pages import TEMPLATE, explorer_page, templates, voila_command


def call(monkeypatch: pytest.MonkeyPatch, *text: str) -> int:
    monkeypatch.setattr(sys, "argv", ["workbench", *text])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize(
    ("setting", "wrong"), [("fig88", "preset = 'fig88'"), ("missing.yaml", "missing.yaml: no such file")]
)
def test_explore_refuses_what_is_not_there(
    setting: str,
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "explore", setting, "--no-browser") == 2
    said = capsys.readouterr().err
    assert wrong in said
    assert said.count("\n") == 1


def test_explore_serves_a_page_of_its_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    wb.Experiment(scheme="UMW", workers=4, rounds=7).write(tmp_path / "it's mine.yaml")
    seen: list[list[str]] = []

    def run(argv: list[str], env: dict[str, str]) -> int:
        seen.append(argv)
        page = next(Path(word) for word in argv if word.endswith("explorer.ipynb"))
        (cell,) = nbformat.read(page, as_version=4).cells
        here = Path.cwd()
        got: dict[str, object] = {}
        *lines, last = cell.source.splitlines()
        exec("\n".join([*lines, f"got = {last}"]), got)
        os.chdir(here)
        assert [e.rounds for e in got["got"].experiments] == [7]  # type: ignore[attr-defined]
        assert (
            Path(env["JUPYTER_PATH"].split(os.pathsep)[0]) / "voila/templates/explorer/index.html.j2"
        ).is_file()
        return 0

    monkeypatch.setattr(module.subprocess, "call", run)
    assert call(monkeypatch, "explore", "it's mine.yaml", "--no-browser", "--folder", "kept") == 0
    (argv,) = seen
    assert {"--Voila.ip=127.0.0.1", "--token", "--no-browser", "--template=explorer"} <= set(argv)
    assert "--port=0" not in argv


def test_explore_page_loads_nothing_external(tmp_path: Path) -> None:
    text = (TEMPLATE / "index.html.j2").read_text(encoding="utf-8")
    assert "default-src 'self'" in text
    with templates("explorer", TEMPLATE) as path:
        assert Path(path.split(os.pathsep)[0]).is_dir()
    with explorer_page("fig8", tmp_path, tmp_path) as page:
        assert page.parent.stat().st_mode & 0o077 == 0
        assert "--token" not in voila_command(page, "explorer", 1, token=False)

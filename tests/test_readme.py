"""The README and the pages: schemes, commands, pictures and code are correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import workbench as wb
from tools.schemes_table import PAGE, renewed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs" / "start.md").read_text()
PICTURES = re.compile(r'!\[[^\]]*\]\(([^)]+)\)|(?:src|srcset)="([^"]+)"')
MAX_PICTURE_BYTES = 1_500_000  # bytes of a picture


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_schemes_table_lists_every_scheme() -> None:
    text = PAGE.read_text()
    assert renewed(text) == text, "the table of schemes is old; run `make format`"
    for name in wb.schemes.names():
        assert f"| {name} | {wb.schemes.get(name).title} |" in text, name


def test_schemes_table_adds_a_missing_scheme() -> None:
    text = PAGE.read_text()
    row = next(line for line in text.splitlines(keepends=True) if line.startswith("| CR |"))
    assert renewed(text.replace(row, "")) == text


def test_readme_lists_every_notebook() -> None:
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        assert f"`{path.relative_to(ROOT)}`" in START


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_readme_commands_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = re.findall(r"(?:^    |`)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert set(text) >= {"run", "test", "help", "lab", "lectures"}
    assert set(text) <= targets


def test_readme_pictures_exist_light_and_dark() -> None:
    found = [one or other for one, other in PICTURES.findall(README)]
    assert {Path(path).stem for path in found} == {
        f"{name}-{theme}" for name in ("live", "explorer", "lecture") for theme in ("light", "dark")
    }
    for path in found:
        assert (ROOT / path).stat().st_size < MAX_PICTURE_BYTES, path
    assert b"acTL" in (ROOT / "docs/images/live-light.png").read_bytes()[:200]  # it moves


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_readme_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})

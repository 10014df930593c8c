"""The README and the first steps: their commands, notebooks, pictures and code exist and work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.core import schemes

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
NOTEBOOKS = (ROOT / "docs" / "tutorial" / "notebooks.md").read_text()
PICTURES = re.compile(r'!\[[^\]]*\]\(([^)]+)\)|(?:src|srcset)="([^"]+)"')
MAX_PICTURE_BYTES = 1_500_000


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_readme_counts_the_schemes() -> None:
    assert f"{len(schemes.names())} schemes" in README


def test_notebooks_are_listed() -> None:
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        assert f"`{path.relative_to(ROOT)}`" in NOTEBOOKS


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/start.md"])
def test_readme_commands_exist(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = re.findall(r"(?:^    |`)make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert set(text) >= {"run", "help", "lab", "lectures"}
    assert set(text) <= targets


def test_readme_picture_exists_light_and_dark() -> None:
    found = [one or other for one, other in PICTURES.findall(README)]
    assert {Path(path).name for path in found} == {"explorer-light.png", "explorer-dark.png"}
    for path in (ROOT / "docs" / "images").glob("*.png"):
        assert path.stat().st_size < MAX_PICTURE_BYTES, path
    assert b"acTL" in (ROOT / "docs/images/live-light.png").read_bytes()[:200]  # an animated PNG


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial/start.md"])
def test_readme_code_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})

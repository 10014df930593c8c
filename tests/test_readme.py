"""The README tells the truth about schemes, commands and files."""

from __future__ import annotations

import re
from pathlib import Path

import workbench as wb
from tools.schemes_table import renewed

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def test_every_scheme_is_listed_as_it_describes_itself() -> None:
    assert renewed(README) == README, "the table of schemes is old; run `make format`"
    for name in wb.schemes.names():
        assert f"| {name} | {wb.schemes.get(name).title} |" in README, name


def test_every_notebook_is_listed() -> None:
    for path in (ROOT / "notebooks").rglob("*.ipynb"):
        assert f"`{path.relative_to(ROOT)}`" in README


def test_commands_and_pictures_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^    make ([a-z-]+)", README, re.MULTILINE)) <= targets
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README):
        assert (ROOT / picture).is_file(), picture

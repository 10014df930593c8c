"""A server for all browser tests, a page for each, and a folder for the pictures they take."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page

from tests.browser.lab import Lab, Noise, Server, browser, jupyter

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
Open = Callable[[str], Lab]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server shows: the notebooks, in a folder that tests may write to."""
    folder = tmp_path_factory.mktemp("served")
    for path in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(path, folder)
    return folder


@pytest.fixture(scope="session")
def server(root: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """JupyterLab with Voila, with folders of its own."""
    with jupyter(root, tmp_path_factory.mktemp("jupyter"), WORKBENCH_CACHE=str(cache)) as running:
        yield running


@pytest.fixture
def opened() -> Iterator[tuple[Page, Noise]]:
    """A page, 1280 px wide, and what goes wrong in it."""
    with browser() as found:
        yield found


@pytest.fixture
def page(opened: tuple[Page, Noise]) -> Page:
    """The page."""
    return opened[0]


@pytest.fixture
def noise(opened: tuple[Page, Noise]) -> Noise:
    """Errors in the page's console, and uncaught ones."""
    return opened[1]


@pytest.fixture
def picture(page: Page, request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Take a picture of the page; kept in the folder that WORKBENCH_SCREENS names, if it does."""
    folder = Path(os.environ.get("WORKBENCH_SCREENS") or request.getfixturevalue("tmp_path"))
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str) -> Path:
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        return path

    return take


@pytest.fixture
def write(root: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Write a notebook of some cells; returns its name."""

    def make(*cells: str) -> str:
        name = f"{request.node.name.split('[')[0]}.ipynb"
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        made = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=kernel
        )
        nbformat.write(made, root / name)
        return name

    return make

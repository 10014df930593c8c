"""A server for all browser tests, a page for each, and a folder for screenshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.browser import forked_kernels
from tests.support.browser.jupyterlab import NOTEBOOKS, Noise, Server, chromium, jupyter, tab
from workbench.lab.figures.design import style_sheet
from workbench.lab.pages import TEMPLATE, templates


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the notebooks into a folder that tests may write to."""
    folder = tmp_path_factory.mktemp("served")
    for path in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(path, folder)
    for name in ("lecture", "papers"):
        shutil.copytree(NOTEBOOKS / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def serving(root: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve JupyterLab with Voila from separate folders. Its kernels are forked, except those named `FRESH`."""
    home = tmp_path_factory.mktemp("jupyter")
    forked_kernels.offer(home / "data_dir")
    with (
        templates("explorer", TEMPLATE, **{"design.css": style_sheet()}) as shared,
        jupyter(
            root, home, module=forked_kernels.__name__, WORKBENCH_CACHE=str(cache), JUPYTER_PATH=shared
        ) as running,
    ):
        yield running


@pytest.fixture
def server(serving: Server) -> Server:
    """Return the server, after ending the kernels of earlier tests."""
    serving.end_kernels()
    return serving


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record whether a test failed, for the screenshot of the failure."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed  # type: ignore[attr-defined]
    return report


@pytest.fixture
def screens(tmp_path: Path) -> Path:
    """Return the folder for screenshots: WORKBENCH_SCREENS, if it is set."""
    folder = Path(os.environ.get("WORKBENCH_SCREENS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# package scope: a longer-lived event loop would disturb the tests of other packages
@pytest.fixture(scope="package")
def context() -> Iterator[BrowserContext]:
    """Start one browser for all tests of this folder."""
    with chromium() as found:
        yield found


@pytest.fixture
def alone() -> None:
    """Request a new page, for tests that count what a page loads, or that leave the page."""


@pytest.fixture
def opened(
    context: BrowserContext, request: pytest.FixtureRequest, screens: Path
) -> Iterator[tuple[Page, Noise]]:
    """Open a page of 1280 px, and record its errors. If the test fails, take a screenshot."""
    # Notebooks share one page of JupyterLab.
    names = set(request.fixturenames)
    with tab(context, first=bool(names & {"user", "write"}) and "alone" not in names) as found:
        yield found
        if request.node.stash.get(FAILED, False):
            found[0].screenshot(path=screens / f"failed-{request.node.name}.png", full_page=True)
            found[0].goto("about:blank")  # leave the page of this test, so that later ones start elsewhere


@pytest.fixture
def page(opened: tuple[Page, Noise]) -> Page:
    """Return the page."""
    return opened[0]


@pytest.fixture
def noise(opened: tuple[Page, Noise]) -> Noise:
    """Return the errors of the page: those in its console, and uncaught ones."""
    return opened[1]


@pytest.fixture
def picture(page: Page, screens: Path) -> Callable[[str], Path]:
    """Return a function that takes a screenshot of the page."""

    def take(name: str) -> Path:
        path = screens / f"{name}.png"
        page.screenshot(path=path)
        return path

    return take


@pytest.fixture
def write(root: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Return a function that writes a notebook with the given cells and kernel, and returns its name."""

    def make(*cells: str, spec: str = "python3") -> str:
        name = f"{request.node.name.split('[')[0]}.ipynb"
        kernel = {"kernelspec": {"name": spec, "display_name": spec}}
        made = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells], metadata=kernel
        )
        nbformat.write(made, root / name)
        return name

    return make

"""The other notebooks in JupyterLab, executed completely, and the fastest of the papers' notebooks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page

from tests.support.browser.forked_kernels import FRESH
from tests.support.browser.jupyterlab import NOTEBOOKS, Lab, Noise, Server
from tests.support.sampled_cases import rotated

pytestmark = pytest.mark.browser


# The notebooks in `LATER` are executed without a browser by analysis/planning/test_notebook.py, test_notebooks.py and
# lab/batch/test_jobs.py.
LATER = ("01-quickstart", "04-plan", "06-who-is-late", "07-coding-or-not", "08-training", "run")


@rotated
def test_engines_notebook_runs_in_jupyterlab(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    """Run the notebook with fewer engines, each of which imports the package, and with another rank to inspect.

    The kernel is a new process, not a fork.
    """
    cells = nbformat.read(NOTEBOOKS / "03-look-inside.ipynb", as_version=4).cells
    text = [cell.source for cell in cells if cell.cell_type == "code"]
    for old, new in {"layers: int = 2": "layers: int = 1", "rank: int = 3": "rank: int = 2"}.items():
        assert old in text[0]
        text[0] = text[0].replace(old, new)
    lab = Lab(page, server, write(*text, spec=FRESH))
    lab.run_all()
    picture("notebook-engines")
    assert lab.failures() == []
    assert noise.errors == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["03-look-inside", *LATER])
def test_notebook_runs_in_jupyterlab(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, f"{name}.ipynb")
    lab.run_all()
    picture(f"notebook-{name}")
    assert lab.failures() == []
    assert noise.errors == []


@pytest.mark.slow  # book/test_command.py executes these notebooks without a browser
def test_paper_notebook_runs_in_jupyterlab(
    page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    """The notebook shows tables with verdicts and plotly figures, and its last cell uses the results."""
    lab = Lab(page, server, "papers/5-multi-message.ipynb")
    lab.run_all()
    picture("notebook-papers")
    verdicts = page.locator(".jp-OutputArea-output .verdict").all_inner_texts()
    assert any("what the paper says holds" in text for text in verdicts), verdicts
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert noise.errors == []

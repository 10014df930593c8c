"""The other notebooks in JupyterLab, run from top to bottom as they are; of the papers' ones the quickest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.lab import Lab, Noise, Server

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


# Executed at every commit without a browser (planning/test_notebook.py, test_notebooks.py, batch/test_jobs.py).
LATER = ("01-straight-line", "04-plan", "06-who-is-late", "07-coding-or-not", "run")
ELSEWHERE = [pytest.param(name, marks=pytest.mark.slow) for name in LATER]


@pytest.mark.parametrize("name", ["03-look-inside", *ELSEWHERE])
def test_a_notebook_runs_in_jupyterlab(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, f"{name}.ipynb")
    lab.run_all()
    picture(f"notebook-{name}")
    assert lab.failures() == []
    assert noise.errors == []


@pytest.mark.slow  # at every commit it is executed without a browser (book/test_command.py)
def test_a_paper_s_notebook_runs_in_jupyterlab(
    page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    """Tables with verdicts, figures that plotly has drawn, and the cell that goes on from them."""
    lab = Lab(page, server, "papers/5-multi-message.ipynb")
    lab.run_all()
    picture("notebook-papers")
    verdicts = page.locator(".jp-OutputArea-output .verdict").all_inner_texts()
    assert any("what the paper says holds" in text for text in verdicts), verdicts
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert noise.errors == []

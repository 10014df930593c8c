"""The other notebooks in JupyterLab, run from top to bottom as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.lab import Lab, Noise, Server

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("name", ["01-straight-line", "03-look-inside", "04-plan", "run"])
def test_a_notebook_runs_in_jupyterlab(
    name: str, page: Page, noise: Noise, server: Server, picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, f"{name}.ipynb")
    lab.run_all()
    picture(f"notebook-{name}")
    assert lab.failures() == []
    assert noise.errors == []

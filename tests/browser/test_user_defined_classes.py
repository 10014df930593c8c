"""Classes of a notebook's cells in JupyterLab: their notebook, and the menus of an explorer that is already open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import Lab, Noise, Server
from tests.support.sampled_cases import sampled_test

pytestmark = pytest.mark.browser

# test_notebooks.py tests real processes, and the kernels of a sweep.
FEWER_FIELDS = {
    r"engine: str = \"mpi\"": r"engine: str = \"sim\"",  # as in the notebook's file
    "workers: int = 6": "workers: int = 4",
    "wait: int = 4": "wait: int = 3",
    "rounds: int = 40": "rounds: int = 20",
}
CHECKED, EXPLORER, WATCHED, SWEPT, FIGURE = 5, 11, 13, 16, 19  # numbers of cells of the notebook


@pytest.mark.slow  # test_notebooks.py executes the notebook without a browser
def test_user_defined_notebook_runs_in_jupyterlab(
    page: Page, noise: Noise, server: Server, root: Path, picture: Callable[[str], Path]
) -> None:
    text = (root / "05-yours.ipynb").read_text()
    for old, new in {**FEWER_FIELDS, "seeds: int = 2": "seeds: int = 1"}.items():
        assert old in text
        text = text.replace(old, new)
    (root / "05-yours.ipynb").write_text(text)
    page.set_default_timeout(500_000)  # kernels that import PyTorch need time
    lab = Lab(page, server, "05-yours.ipynb")
    lab.run_all()
    for dark in (False, True):
        lab.dark(dark)
        theme = "dark" if dark else "light"
        lab.go_to(CHECKED)
        expect(page.get_by_text("Fastest passes all properties that apply")).to_be_visible()
        picture(f"yours-check-{theme}")
        lab.go_to(EXPLORER)
        me = User(page)
        me.drawn("Time per round")
        menu = me.field("add a scheme")
        expect(menu.locator("option[value=Fastest]")).to_have_count(1)
        picture(f"yours-explorer-{theme}")
        for cell, name in ((WATCHED, "run"), (SWEPT, "sweep"), (FIGURE, "figure")):
            lab.go_to(cell)
            page.wait_for_timeout(1500)
            picture(f"yours-{name}-{theme}")
    assert lab.failures() == []
    assert noise.errors == []


BEFORE = "import workbench as wb\nwb.explore(wb.Experiment(scheme='UMW', workers=4, rounds=5))"
LATER = '''from workbench.core.base.settings import setting
from workbench.core.schemes.uncoded import UMW

class Later(UMW):
    """Defined after the explorer was opened."""
    name = "Later"
    title = "of a cell below"
    naps: int = setting(7, "a number of its own", ge=1, le=9)'''


@sampled_test("an explorer between cells", 0, 2)
def test_user_defined_class_appears_in_an_open_explorer(
    page: Page, noise: Noise, server: Server, write: Callable[..., str], picture: Callable[[str], Path]
) -> None:
    lab = Lab(page, server, write(BEFORE, LATER))
    lab.run_all()
    lab.go_to(0)
    me = User(page)
    me.drawn("Time per round")
    me.field("add a scheme").select_option("Later")
    heading = page.locator(".wb-entry").last
    expect(heading).to_contain_text("Later")
    expect(heading.locator("b")).to_have_attribute("title", "of a cell below")
    heading.locator("summary").first.click()
    expect(me.field("naps")).to_have_value("7")
    picture("yours-later")
    assert lab.failures() == []
    assert noise.errors == []

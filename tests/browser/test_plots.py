"""A plot whose figure the kernel replaces, in JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.browser.jupyterlab import CLEARED, Lab, Noise, Server
from tests.support.sampled_cases import sampled_test

pytestmark = pytest.mark.browser

FIRST = """import plotly.graph_objects as go
from workbench.lab.widgets import Plot
def show(title):
    plot.show(lambda theme: go.Figure(go.Scatter(y=[1, 3, 2]), layout={"title": {"text": title}, "height": 400}))
    print(title)
plot = Plot()
plot"""


@sampled_test("plots", 0, 3, 2)
def test_plot_with_another_name_is_updated_and_saved_under_it(
    page: Page, noise: Noise, server: Server, write: Callable[..., str]
) -> None:
    """The plot is updated in place, since a new figure takes several times as long.

    A mark on an element of the plot is still there after the update.
    """
    lab = Lab(page, server, write(FIRST, 'show("one")', 'show("two")'))
    lab.run_all()
    figure = page.locator('[role=figure][aria-label="two"]')
    figure.locator(".main-svg").first.wait_for()
    assert lab.answer(1) == "one"
    page.locator('[role=figure][aria-label="one"]').wait_for()
    page.evaluate("document.querySelector('.wb-plot .main-svg').dataset.mark = 'kept'")
    assert lab.answer(2) == "two"
    figure.wait_for()
    assert figure.locator(".main-svg").first.get_attribute("data-mark") == "kept"
    figure.hover()
    with page.expect_download() as found:
        figure.locator('.modebar-btn[data-title="Download plot as a PNG"]').click()
    assert found.value.suggested_filename == "two.png"
    assert noise.errors == []


@sampled_test("plots", 2, 3, 2)
def test_plot_of_a_closed_notebook_logs_no_error(
    page: Page, noise: Noise, server: Server, write: Callable[..., str]
) -> None:
    lab = Lab(page, server, write(f"{FIRST}\nimport time\ndisplay(plot)\ntime.sleep(60)"))
    lab.run_all(wait=False)
    page.locator("[role=figure]").first.wait_for(state="attached")
    page.wait_for_timeout(1000)  # by then the page has requested plotly.js, which the busy kernel cannot send
    page.evaluate(CLEARED)
    page.wait_for_timeout(12_000)  # longer than a widget waits before it requests plotly.js again
    assert noise.errors == []

"""The explorer after the end of its kernel, in JupyterLab and as a page."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.browser.explorer_user import User
from tests.support.browser.jupyterlab import Server
from tests.support.browser.viewed import AsPage, InLab
from tests.support.sampled_cases import rotated, sampled_cases

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("alone")]

MORTAL = """import os
from pathlib import Path
import workbench as wb
Path("kernel.pid").write_text(str(os.getpid()))
wb.explore("", "explored")"""
# number of parts before which ipywidgets draws an icon, which moves the others
ICONS = """() => [...document.querySelectorAll('.jupyter-widgets-disconnected')].filter((e) => e.closest('.wb'))
  .filter((e) => getComputedStyle(e, '::before').content !== 'none').length"""
SENTENCE = "The kernel has stopped. What you see is the last state."


@rotated
@pytest.mark.parametrize(
    ("host", "how"),
    sampled_cases("the end of the kernel", 1, [(AsPage, "killed"), (AsPage, "ended"), (InLab, "killed")]),
)
def test_dead_kernel_is_a_sentence_with_a_button(
    host: type[InLab] | type[AsPage],
    how: str,
    page: Page,
    server: Server,
    root: Path,
    write: Callable[..., str],
    screens: Path,
) -> None:
    """Settings and Run no longer respond, and are shown so. The button brings back an explorer that works."""
    page.set_viewport_size({"width": 1440, "height": 900})
    host(page, server, write(MORTAL))
    me, banner = User(page), page.locator(".wb-tools .wb-banner")
    me.drawn("Time per round")
    assert not banner.is_visible()
    me.field("stragglers").focus()
    if how == "ended":
        server.end_kernels()
    else:
        os.kill(int((root / "kernel.pid").read_text()), signal.SIGKILL)
    banner.wait_for()
    message = page.locator(".jp-Dialog-button.jp-mod-accept")
    if host is InLab and message.is_visible():  # JupyterLab's own message about the end of the kernel
        message.click()
    page.screenshot(path=screens / f"kernel-{how}-{host.__name__}.png")
    assert banner.locator("span").inner_text() == SENTENCE
    assert banner.get_by_role("button").count() == 1
    for each in (me.field("stragglers"), page.locator(".wb-top .mod-primary")):
        assert each.evaluate("e => !!e.closest('[inert]')")
    assert page.evaluate(ICONS) == 0
    banner.get_by_role("button").click()
    if host is InLab:
        page.wait_for_timeout(500)
        if message.is_visible():  # the question whether to restart
            message.click()
    page.wait_for_function(
        "() => !document.querySelector('.wb-explorer [inert]') && document.querySelector('.wb-explorer')"
    )
    me.drawn("Time per round")
    before = me.costs()
    me.field("stragglers").fill("2")
    me.changed(before)

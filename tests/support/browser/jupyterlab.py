"""Drive JupyterLab and Voila with an installed Chromium, on this machine only.

`jupyter(root)` starts a server with a new token and separate folders. `chromium()` starts a browser, and `tab()` opens
a page in it that records errors. `Lab` operates one notebook in that page.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"]
PATIENCE = 120_000  # ms
expect.set_options(timeout=PATIENCE)
QUIET = {  # settings without pop-ups, which would cover elements
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# JavaScript: wait for the kernel. The toolbar shows "idle" before it is connected, and "run all" would then run
# nothing.
CONNECTED = """() => { const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
  return !!kernel && kernel.connectionStatus === 'connected' && kernel.status === 'idle'; }"""
# Distant cells are hidden, and the innerText of a hidden element is empty.
ALL_DONE = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell .jp-InputPrompt')]
  .every(prompt => /\\[\\d+\\]/.test(prompt.textContent)) || !!document.querySelector('[data-mime-type$="error"]')"""

FOREIGN = (
    "jsdelivr.net",
    "cloudflare.com",
    "ipyparallel-labextension",
    "/voila/api/shutdown",
    "/favicon.ico",
)
RUN_CELL = """async (index) => { const { content, context } = window.jupyterapp.shell.currentWidget;
  content.activeCellIndex = index; content.deselectAll();
  await window.jupyterapp.commands.execute('notebook:run-cell'); }"""

# Loading a page of JupyterLab takes ten times as long as opening a notebook in it.
CLEARED = """() => { const shell = location.pathname.startsWith('/doc/') && window.jupyterapp?.shell;
  for (const each of shell ? [...shell.widgets('main')] : []) each.dispose();
  return !!shell; }"""  # a page of Voila also has a jupyterapp
OPENED = """async ([path, address]) => { await window.jupyterapp.commands.execute('docmanager:open', { path });
  history.replaceState(null, '', address); }"""
SHOWN = "(path) => window.jupyterapp.shell.currentWidget?.context?.path === path"

# A view polls for its model for two seconds, and not after the last pause. On a busy machine,
# models arrive in that pause. The error message then stays until the page is reloaded.
SETTLED = """() => { const outputs = [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')];
  return outputs.length > 0 && !outputs.some(each => each.textContent === 'Loading widget...'); }"""
GIVEN_UP = """() => [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')]
  .some(each => each.textContent === 'Error displaying widget: model not found')"""

GO_TO = """async (index) => { const { content } = window.jupyterapp.shell.currentWidget;
  content.activeCellIndex = index;
  await content.scrollToItem(index, 'start'); }"""

# Source of a cell: rounds on the virtual clock that take a while without computing all the time.
PACED = """import time
from workbench.core.problems.linear import LinearProblem
evaluated = LinearProblem.evaluate
def evaluate(problem, requests):
    time.sleep(0.05)
    return evaluated(problem, requests)
LinearProblem.evaluate = evaluate
"""


@dataclass(frozen=True)
class Server:
    """A running server: its address and its output."""

    url: str
    token: str
    log: Path

    def address(self, path: str) -> str:
        """Return the address of a page."""
        return f"{self.url}/{path}{'&' if '?' in path else '?'}token={self.token}"

    def end_kernels(self) -> None:
        """End all kernels, also those of closed pages."""
        with urllib.request.urlopen(self.address("api/kernels")) as answer:
            kernels = [kernel["id"] for kernel in json.load(answer)]
        for kernel in kernels:
            address = self.address(f"api/kernels/{kernel}")
            with suppress(urllib.error.HTTPError):  # the kernel may have ended just now
                urllib.request.urlopen(urllib.request.Request(address, method="DELETE")).close()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def jupyter(
    root: Path, home: Path, *options: str, module: str = "jupyterlab", **environment: str
) -> Iterator[Server]:
    """Start JupyterLab (with Voila at /voila) for the notebooks in `root`. Its own files are in `home`."""
    port, token, log = free_port(), secrets.token_hex(16), home / "server.log"
    (home / "settings").mkdir(parents=True)
    (home / "settings" / "overrides.json").write_text(json.dumps(QUIET))
    # "-m jupyter lab" would start the first jupyter-lab on PATH, which may be another installation.
    command = [sys.executable, "-m", module, "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}"]
    command += [f"--IdentityProvider.token={token}", "--LabApp.news_url=None"]
    command += [f"--LabApp.app_settings_dir={home / 'settings'}", "--LabApp.expose_app_in_browser=True"]
    command += ["--VoilaConfiguration.show_tracebacks=True", *options]
    with log.open("w") as out:
        server = subprocess.Popen(
            command, stdout=out, stderr=out, env=_isolated(home, environment), start_new_session=True
        )
        try:
            _await(f"http://127.0.0.1:{port}/api/status?token={token}", server, log)
            yield Server(f"http://127.0.0.1:{port}", token, log)
        finally:
            _end(server)


def _isolated(home: Path, more: dict[str, str]) -> dict[str, str]:
    names = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    folders = {f"JUPYTER_{name}": str(home / name.lower()) for name in names}
    lab = {f"JUPYTERLAB_{n}_DIR": str(home / n.lower()) for n in ("SETTINGS", "WORKSPACES")}
    return {**os.environ, **folders, **lab, "IPYTHONDIR": str(home / "ipython"), **more}


def _await(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        try:
            urllib.request.urlopen(url, timeout=2)
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()  # also ends its kernels
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@dataclass
class Noise:
    """The errors of a page."""

    errors: list[str] = field(default_factory=list)

    def ours(self) -> list[str]:
        """Return the errors except those of Voila and its extensions, such as requests of fonts from the internet."""
        return [error for error in self.errors if not any(word in error for word in FOREIGN)]

    def after_reload(self) -> list[str]:
        """Return `ours` without messages about widgets that did not load, after which `Lab.reload` reloads the page."""
        return [error for error in self.ours() if "widget model not found" not in error]

    def listen(self, page: Page) -> None:
        """Record uncaught errors and console errors."""
        page.on("pageerror", self._uncaught)
        page.on("console", self._console)

    def leave(self, page: Page) -> None:
        """Stop recording."""
        page.remove_listener("pageerror", self._uncaught)
        page.remove_listener("console", self._console)

    def _uncaught(self, error: Any) -> None:
        self.errors.append(f"uncaught: {error}")

    def _console(self, message: ConsoleMessage) -> None:
        # Other tests create network interfaces, which interrupts requests. The page repeats them.
        changed = "net::ERR_NETWORK_CHANGED" in message.text
        if message.type == "error" and not changed:
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")


@contextmanager
def chromium(width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[BrowserContext]:
    """Start an installed Chromium with a persistent cache, which saves half the time of a page of JupyterLab."""
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
        )
        context.set_default_timeout(PATIENCE)
        try:
            yield context
        finally:
            context.close()


@contextmanager
def tab(context: BrowserContext, first: bool = False) -> Iterator[tuple[Page, Noise]]:
    """Open a new page, or reuse the first one, where JupyterLab stays open without notebooks.

    At the end, only the browser's first page is open, and it is logged out.
    """
    page, noise = context.pages[0] if first else context.new_page(), Noise()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.bring_to_front()
    noise.listen(page)
    try:
        yield page, noise
    finally:
        noise.leave(page)
        for each in context.pages[1:]:
            each.close()
        if not context.pages[0].evaluate(CLEARED):
            context.pages[0].goto("about:blank")
        context.clear_cookies()


@contextmanager
def browser(width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[tuple[Page, Noise]]:
    """Open a page in a separate browser."""
    with chromium(width, height, dark) as context, tab(context) as found:
        yield found


def nameless(page: Page, selector: str) -> list[str]:
    """Return the focusable elements of a part of the page that have no accessible name."""
    session = page.context.new_cdp_session(page)
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    part = session.send("DOM.querySelector", {"nodeId": root, "selector": selector})
    found = session.send("Accessibility.queryAXTree", part)["nodes"]
    session.detach()
    reached = [n for n in found if any(p["name"] == "focusable" for p in n.get("properties", ()))]
    roles = [node["role"]["value"] for node in reached if not node.get("name", {}).get("value")]
    assert len(reached) > 3, "no controls were found"
    return [role for role in roles if role != "row"]  # rows are named by their cells


class Lab:
    """One notebook in JupyterLab."""

    def __init__(self, page: Page, server: Server, notebook: str) -> None:
        self.page, self.server, self.notebook = page, server, notebook
        self.open()

    @classmethod
    def of(cls, page: Page, server: Server, notebook: str) -> Lab:
        """Return the notebook that a page shows, with or without side panels."""
        lab = cls.__new__(cls)
        lab.page, lab.server, lab.notebook = page, server, notebook
        return lab

    def open(self, fresh: bool = True) -> None:
        """Open only this notebook, without side panels, and wait for its kernel. `fresh`: reset the workspace."""
        address = self.server.address(f"doc/tree/{self.notebook}{'?reset' if fresh else ''}")
        if fresh and self.page.url.startswith(self.server.url) and self.page.evaluate(CLEARED):
            self.page.evaluate(OPENED, [self.notebook, address.replace("?reset&", "?")])
            self.page.wait_for_function(SHOWN, arg=self.notebook)
        else:
            self.page.goto(address)
            self.page.wait_for_selector(".jp-NotebookPanel")
        self.page.wait_for_function(CONNECTED)

    def reload(self) -> int:
        """Reload the page, as F5 does, up to five times while a widget fails to load. Return the number of reloads."""
        for times in range(1, 6):
            self.page.reload()
            self.page.wait_for_selector(".jp-NotebookPanel")
            self.page.wait_for_function(SETTLED)
            if not self.page.evaluate(GIVEN_UP):
                return times
        raise AssertionError("the page gives up its widgets each time")

    def menu(self, menu: str, command: str) -> None:
        """Choose an entry of a menu."""
        self.page.click(f'.lm-MenuBar-item:has-text("{menu}")')
        self.page.click(f'.lm-Menu-item[data-command="{command}"]')

    def run_all(self, wait: bool = True) -> None:
        """Run all cells."""
        self.menu("Run", "runmenu:run-all")
        if wait:
            self.page.wait_for_function(ALL_DONE)
            assert not self.failures()

    def go_to(self, cell: int) -> None:
        """Scroll to a cell, counted from 0: distant cells are not in the page."""
        self.page.evaluate(GO_TO, cell)
        self.page.locator(f'.jp-Cell[data-windowed-list-index="{cell}"]').wait_for()

    def save(self) -> None:
        """Save the notebook."""
        self.command("docmanager:save")

    def command(self, name: str, **arguments: Any) -> None:
        """Execute a command of JupyterLab."""
        self.page.evaluate("([n, a]) => window.jupyterapp.commands.execute(n, a)", [name, arguments])

    def dark(self, dark: bool = True) -> None:
        """Choose JupyterLab's theme."""
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.command("apputils:change-theme", theme=theme)
        self.page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{str(not dark).lower()}'")

    def outputs(self) -> list[str]:
        """Return the printed texts of the cells."""
        return [text.strip() for text in self.page.locator(".jp-OutputArea-output pre").all_inner_texts()]

    def answer(self, cell: int) -> str:
        """Run a cell again, counted from 0. Return its printed output."""
        self.page.evaluate(RUN_CELL, cell)
        self.page.wait_for_function(CONNECTED)
        found = self.page.locator(".jp-Notebook .jp-CodeCell").nth(cell).locator(".jp-OutputArea-output pre")
        return found.first.inner_text().strip()

    def await_answer(self, cell: int, good: Callable[[str], bool]) -> None:
        """Run a cell until its output passes a check, since messages of a page reach the kernel with a delay."""
        for _ in range(50):
            if good(found := self.answer(cell)):
                return
            time.sleep(0.2)
        raise AssertionError(f"cell {cell} prints {found!r}")

    def failures(self) -> list[str]:
        """Return the error outputs of the cells."""
        return self.page.locator(
            '.jp-OutputArea-output[data-mime-type$="error"], .jp-RenderedText[data-mime-type$="stderr"]'
        ).all_inner_texts()


NOTEBOOKS = Path(__file__).resolve().parents[3] / "notebooks"

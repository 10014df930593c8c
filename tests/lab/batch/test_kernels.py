"""Forked kernels: private, separate, with a given number of threads. A fork server that dies is replaced."""

from __future__ import annotations

import json
import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient

from tests.support.sampled_cases import rotated, sampled_cases
from tests.support.sweep_runs import wait_for
from workbench.core.base.errors import RunError
from workbench.lab.batch.engine import join_streams
from workbench.lab.batch.kernels import CAN_FORK, KernelForkServer, Kernels

pytestmark = pytest.mark.skipif(not CAN_FORK, reason="kernels are forked on Linux only")

ASK = """
import json, os, psutil, sys, threadpoolctl
import numpy
me = psutil.Process()
print(json.dumps({
    "folder": os.getcwd(),
    "group": os.getpgid(0) == os.getpid(),
    "parent": me.ppid(),
    "hosts": sorted({c.laddr.ip for c in me.net_connections(kind="inet")} - {"127.0.0.1", "::1"}),
    "threads": sorted({pool["num_threads"] for pool in threadpoolctl.threadpool_info()}),
    "seen": "left" in globals(),
    "loaded": "workbench.core.running.start" in sys.modules,
    "debugger": [name for name in sys.modules if name.startswith(("debugpy", "pydevd", "_pydevd"))],
}))
left = 1
"""


def ask(kernels: Kernels, name: str, log: Path) -> dict[str, Any]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASK)])
    manager = kernels.manager(name, log)
    NotebookClient(notebook, kernel_manager_class=manager, shutdown_kernel="immediate").execute()
    (output,) = notebook.cells[0].outputs
    found: dict[str, Any] = json.loads(output.text)
    return found


TALK = """
import sys
from IPython.display import display
for i in range({times}):
    print("out", i, flush=True)
    print("err", i, file=sys.stderr, flush=True)
    display(i)
"""


class SlowReader(NotebookClient):  # type: ignore[misc]
    """Client that does not read for a while once there is output, as on a busy machine."""

    waits: float | None = 3.0

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("stream", "display_data") and self.waits:
            self.waits = time.sleep(self.waits)
        return super().process_message(msg, cell, cell_index)


@rotated
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_kernels_keep_output_that_is_read_slowly(tmp_path: Path, fresh: bool) -> None:
    times = 1500
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TALK.format(times=times))])
    with Kernels(1, fresh) as kernels:
        manager = kernels.manager("talks", tmp_path / "log")
        options = {"shutdown_kernel": "immediate", "iopub_timeout": 60}
        SlowReader(notebook, kernel_manager_class=manager, **options).execute()
    (cell,) = notebook.cells
    for stream, word in (("stdout", "out"), ("stderr", "err")):
        text = "".join(output.text for output in cell.outputs if output.get("name") == stream)
        assert text.splitlines() == [f"{word} {i}" for i in range(times)]
    shown = [output.data["text/plain"] for output in cell.outputs if output.output_type == "display_data"]
    assert shown == [str(i) for i in range(times)]


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr", "figure"]), st.text(max_size=3))))
def test_join_streams_keeps_text_and_order(pieces: list[tuple[str, str]]) -> None:
    def output(name: str, text: str) -> Any:
        if name == "figure":
            return nbformat.v4.new_output("display_data", {"text/plain": text})
        return nbformat.v4.new_output("stream", name=name, text=text)

    cell = nbformat.v4.new_code_cell("", outputs=[output(*piece) for piece in pieces])
    join_streams(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text"), cell]))
    joined = [(each.get("name", "figure"), each.get("text") or each.get("data")) for each in cell.outputs]
    assert all(a[0] != b[0] or a[0] == "figure" for a, b in pairwise(joined))
    letters = [
        (each.get("name"), letter)
        for each in cell.outputs
        for letter in each.get("text", each.get("data", {}).get("text/plain"))
    ]
    assert letters == [
        (None if name == "figure" else name, letter) for name, text in pieces for letter in text
    ]


@pytest.mark.parametrize(
    "threads", sampled_cases("threads of a kernel", 1, sorted({1, min(2, os.cpu_count() or 1)}))
)
def test_kernels_are_forked_private_and_preloaded(tmp_path: Path, threads: int) -> None:
    with Kernels(threads) as kernels:
        kernels.warm()
        first, second = (ask(kernels, name, tmp_path / name) for name in "ab")
        forkserver = first["parent"]
        assert (
            first
            == second
            == {
                "folder": str(Path.cwd()),
                "group": True,
                "parent": forkserver,
                "hosts": [],
                "threads": [threads],
                "seen": False,
                "loaded": True,
                "debugger": [],
            }
        )
        assert forkserver != os.getpid()
        assert wait_for(lambda: kernels.code("a")) == -signal.SIGKILL  # its notebook ended, so it was killed
        os.kill(forkserver, signal.SIGKILL)
        wait_for(lambda: not psutil.pid_exists(forkserver) or psutil.Process(forkserver).status() == "zombie")
        replaced = ask(kernels, "c", tmp_path / "c")["parent"]
        assert replaced != forkserver
        folder = kernels.folder
    assert not psutil.pid_exists(replaced)
    assert not folder.exists()


def test_kernels_that_are_stopping_start_no_kernel(tmp_path: Path) -> None:
    with Kernels(threads=1) as kernels:
        kernels.stop()
        with pytest.raises(RunError, match="stopping"):
            ask(kernels, "a", tmp_path / "a")


def test_kernel_fork_server_ends_with_its_input(tmp_path: Path) -> None:
    forkserver = KernelForkServer(tmp_path, threads=1)
    fields = {"environment": dict(os.environ), "folder": str(tmp_path)}
    forked = [
        forkserver.fork(
            arguments=["-f", str(tmp_path / f"{i}.json")], log=str(tmp_path / f"{i}.log"), **fields
        )
        for i in range(5)
    ]
    assert forkserver.process.stdin is not None
    forkserver.process.stdin.close()
    assert forkserver.process.wait(120) == 0
    assert [psutil.pid_exists(kernel.pid) for kernel in forked if kernel] == [False] * 5
    assert not tmp_path.exists()

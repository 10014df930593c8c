"""One run of a sweep: execute its notebook with papermill, write its page, and report how it ended."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Any

from jupyter_core.utils import ensure_event_loop

from workbench.analysis.tables.status import Status, host
from workbench.core.base.errors import RunError
from workbench.core.base.settings import SettingError
from workbench.core.experiment import Experiment
from workbench.core.trace.layout import LOG, NOTEBOOK, PAGE, SPEC, TRACE
from workbench.lab.batch.cores import OwnCores, take
from workbench.lab.batch.kernels import Kernels
from workbench.lab.batch.page import write_page
from workbench.lab.batch.sweeps import Item
from workbench.lab.notebooks import OUTPUT_TIMEOUT_S

if TYPE_CHECKING:
    from nbformat import NotebookNode

INTERRUPTED = "the sweep was interrupted while it ran"


class Slot:
    """Semaphore slot of a run, and its cores: acquired by `wait`, and released at the end of the block.

    name: name of the run. cores: number of cores that it shares with no other run, or None.
    """

    def __init__(self, places: Semaphore, kernels: Kernels, name: str, cores: int | None) -> None:
        self._places, self._kernels, self._mine = places, kernels, False
        self._name, self._cores = name, cores
        self._own: OwnCores | None = None

    def wait(self, **_: Any) -> None:
        """Wait for a slot. It is called when the kernel is ready. A stopped batch does not wait."""
        while not self._mine and not self._kernels.stopping:
            self._mine = self._places.acquire(timeout=0.2)
        if self._mine and self._cores is not None:
            self._own = take(self._cores, lambda: self._kernels.stopping)
            if self._own is not None:
                self._own.bind(self._kernels.processes[self._name].pid)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *error: object) -> None:
        if self._own is not None:
            self._own.release()
        if self._mine:
            self._places.release()


@dataclass(frozen=True)
class NotebookRunner:
    """Shared state of the runs of a sweep that one process executes.

    places: semaphore for the runs that compute at the same time. Other kernels may start meanwhile, and pages be
    written. timeout: max seconds of a cell. cores: number of cores that a run shares with no other run.
    """

    notebook: Path
    folder: Path
    kernels: Kernels
    places: Semaphore
    timeout: float | None = None
    cores: int | None = None

    def run(self, item: Item) -> Status:
        """Run one notebook from the start. Return its status, with the error if it failed."""
        try:
            return self._run(item)
        except OSError as error:  # no disk space, for example: other runs may succeed
            return Status("failed", error=reason(error))

    def _run(self, item: Item) -> Status:
        folder = self.folder / item.name
        shutil.rmtree(folder, ignore_errors=True)  # files of an earlier attempt
        folder.mkdir()
        spec = item.experiment.model_dump(mode="json")
        status = Status("running", spec, item.engine, item.cluster, host=host())
        status.write(folder)
        start = time.perf_counter()
        error = self._attempt(item, folder)
        if error is not None and self.kernels.stopping:
            error = INTERRUPTED
        state = {None: "done", INTERRUPTED: "interrupted"}.get(error, "failed")
        status = replace(status, state=state, error=error or "", seconds=time.perf_counter() - start)
        status.write(folder)
        return status

    def _attempt(self, item: Item, folder: Path) -> str | None:
        """Run the notebook. Return the error, or None if all files were written. The page shows the failed cell."""
        why: str | None = None
        log = folder / LOG
        try:
            notebook = self._execute(item, folder, log)
            _check(item, folder, notebook)
        except Exception as error:  # after any error, the other runs continue
            why = reason(error, self.kernels.code(item.name), log)
        finally:
            _forget()
            if not _has_text(log):
                log.unlink(missing_ok=True)
        if (folder / NOTEBOOK).is_file():
            try:
                write_page(folder / NOTEBOOK, folder / PAGE)
            except Exception as error:  # after any error, the other runs continue
                why = why or reason(error)
        return why

    def _execute(self, item: Item, folder: Path, log: Path) -> NotebookNode:
        import papermill

        from workbench.lab.batch.engine import NAME

        with Slot(self.places, self.kernels, item.name, self.cores) as slot:
            return papermill.execute_notebook(
                literal(self.notebook),
                literal(folder / NOTEBOOK),
                parameters={**item.spec, "folder": str(folder / TRACE)},
                engine_name=NAME,
                request_save_on_cell_execute=False,
                remains=str(folder / NOTEBOOK),
                progress_bar=False,
                start_timeout=120,
                execution_timeout=self.timeout,
                iopub_timeout=OUTPUT_TIMEOUT_S,
                raise_on_iopub_timeout=True,
                kernel_name="python3",
                kernel_manager_class=self.kernels.manager(item.name, log),
                # Kernels with real runs must end their ranks first. Kernels with simulations can be killed.
                shutdown_kernel="immediate" if item.engine == "sim" else "graceful",
                store_widget_state=False,
                on_notebook_start=slot.wait,
            )


def _forget() -> None:
    """Cancel all tasks that nbclient left in the event loop, waiting for a dead kernel.

    Otherwise, asyncio would warn about them later.
    """
    loop = ensure_event_loop()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def literal(path: Path) -> str:
    """Escape braces, because papermill would replace {names} in paths by parameters."""
    return str(path.resolve()).replace("{", "{{").replace("}", "}}")


def _check(item: Item, folder: Path, notebook: NotebookNode) -> None:
    """Raise `RunError` or `SettingError` if a notebook ended without an error and without its result."""
    spec = folder / TRACE / SPEC
    if not spec.is_file():
        for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
            if output.output_type == "error":  # papermill does not treat sys.exit(0) as an error
                raise RunError(_exit(output))
        raise RunError("the notebook has ended without a run folder: it does not save to `folder`")
    if Experiment.read(spec).model_dump(mode="json") != item.experiment.model_dump(mode="json"):
        raise SettingError("the notebook ran another experiment than it was asked for; see trace/spec.json")


def reason(error: Exception, code: int | None = None, log: Path | None = None) -> str:
    """Return in one sentence why a run failed. `code`: exit status of an ended kernel. `log`: its log."""
    from nbclient.exceptions import CellTimeoutError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, PapermillExecutionError):
        return _exit(error) if error.ename == "SystemExit" else _one_line(f"{error.ename}: {error.evalue}")
    if isinstance(error, CellTimeoutError):
        if "IOPub" in str(error):
            return f"output was lost: a cell ended, and {OUTPUT_TIMEOUT_S} s later not all of its output was there"
        return "a cell took longer than the timeout allows"
    if isinstance(error, (SettingError, RunError)):
        return _one_line(error)
    # nbclient's messages for a dead kernel
    if isinstance(error, RuntimeError) and "died" in str(error):
        return f"the kernel {_end(code)}{f'; see {LOG}' if log and _has_text(log) else ''}"
    return _one_line(f"{type(error).__name__}: {error}")


def _exit(error: Any) -> str:
    """Return the exit status that a cell requested, from an error output or papermill's exception."""
    return _one_line(f"a cell ended the kernel ({error.ename}{f': {error.evalue}' if error.evalue else ''})")


def _end(code: int | None) -> str:
    if code is None:
        return "gave no sign of life"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}, by hand or for want of memory"
    return f"ended by itself with status {code}"


def _has_text(log: Path) -> bool:
    return log.is_file() and log.stat().st_size > 0


def _one_line(text: Any, most: int = 600) -> str:
    return " ".join(str(text).split())[:most]

"""Process that has imported everything once, and forks a kernel on request.

`python -m workbench.lab.batch.forkserver SOCKETS` reads one JSON object a line: number, arguments, environment, folder,
log. It writes {"ready"} once, {"number", "pid"} as an answer, and {"number", "code"} when that kernel has ended. When
its input is closed, it kills its kernels and deletes the folder of their sockets. So nothing remains if the client is
killed.
"""

import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.core.experiment import Experiment
from workbench.core.running.start import run
from workbench.lab import figures
from workbench.lab.notebooks import grammar_put_off

# Modules that a kernel imports at its start and in its first run. None of them starts a Python thread, because only the
# forking thread continues in a forked child.
PRELOADED: tuple[str, ...] = (
    *("IPython.core.completerlib", "IPython.core.debugger", "IPython.core.logger", "IPython.core.oinspect"),
    *("IPython.extensions.storemagic", "ipykernel.debugger", "ipykernel.ipkernel", "ipykernel.kernelapp"),
    *("ipywidgets", "nbformat", "pandas.io.formats.html", "pandas.io.formats.string", "plotly.io._renderers"),
    *("plotly.io.kaleido", "plotly.offline", "psutil", "pyarrow.parquet", "sqlite3", "tqdm"),
    *(
        "tornado.platform.asyncio",
        "workbench.lab.batch",
        "workbench.core.problems.data",
        "workbench.core.problems.linear",
    ),
)


def main() -> None:
    """Serve until the input ends."""
    # A kernel ends when this process does. ipykernel reads the variable when it is imported.
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    _prepare()
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    # Python writes the wake-up byte only for a signal that has a handler in Python
    signal.signal(signal.SIGCHLD, lambda *_: None)
    alive: dict[int, int] = {}
    _say(ready=True)
    try:
        _serve(wake, alive)
    finally:
        for pid in alive:
            end(pid)
        for pid in alive:
            os.waitpid(pid, 0)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def end(pid: int) -> None:
    """End a kernel and all processes that it has started.

    A signal to the kernel's group would not reach the supervisor of a real run, which has its own group.
    """
    import psutil

    with suppress(psutil.Error, OSError):
        for process in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with suppress(psutil.Error):
                process.kill()


def _prepare() -> None:
    """Import modules, and execute a small run, so that modules that are imported late are loaded as well."""
    # Without a debugger, kernels start sooner.
    sys.modules.setdefault("debugpy", None)  # type: ignore[arg-type]
    with grammar_put_off():
        for name in PRELOADED:
            import_module(name)
    if sys.modules["debugpy"] is None:
        del sys.modules["debugpy"]
    # The problem "unit" needs no products of large matrices. Such products would start threads.
    trace = run(Experiment(problem="unit", rounds=2))
    for figure in (figures.convergence, figures.round_times):
        figure([trace]).to_json()
    figures.gantt(trace).to_json()
    with tempfile.TemporaryDirectory() as folder:
        trace.save(Path(folder) / "rehearsal")
    gc.collect()
    gc.freeze()  # a garbage collection in a child skips these objects, so that their memory stays shared


def _serve(wake: int, alive: dict[int, int]) -> None:
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            for pid in list(alive):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    _say(number=alive.pop(pid), code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _fork(json.loads(line), alive)


def _fork(request: dict[str, Any], alive: dict[int, int]) -> None:
    pid = os.fork()
    if pid == 0:
        _run_kernel(request)
    with suppress(OSError):
        # the child does this as well, but it may have to be ended before it has done so
        os.setpgid(pid, pid)
    alive[pid] = request["number"]
    _say(number=request["number"], pid=pid)


def _run_kernel(request: dict[str, Any]) -> None:
    """Run a kernel in this child process. It does not return.

    It has its own group, so that a kernel's children can be ended with it.
    """
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        from ipykernel.kernelapp import IPKernelApp

        IPKernelApp.launch_instance(request["arguments"])
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _say(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()

"""Kernels of a batch, which communicate through files, and are forked from a preloaded process if possible.

A kernel takes 2 to 5 s to start and to import what a run needs. A forked kernel is ready after 0.05 s of computing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from workbench.core.base.by_value import register_file
from workbench.core.base.errors import RunError
from workbench.core.base.trust import limit_to
from workbench.lab.batch.forkserver import end
from workbench.lab.notebooks import keep_output, run_first, socket_folder
from workbench.mpi.launch.mpiexec import THREADS

CAN_FORK = sys.platform == "linux"  # elsewhere, forking a process with many libraries is not safe
CODE_FILE = "own"  # file with user-defined code, in the folder of the sockets


def _environment(threads: int) -> dict[str, str]:
    """Return environment variables that NumPy and plotly read at import.

    Figures are stored as data, which pages draw.
    """
    return {"PLOTLY_RENDERER": "plotly_mimetype", **dict.fromkeys(THREADS, str(threads))}


class Kernel:
    """Interface of jupyter_client to a process that is not a child of this one (see `subprocess.Popen`)."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        self.pid = 0
        self.code: int | None = None
        self.born, self.ended = Event(), Event()

    def poll(self) -> int | None:
        """Return the exit status, or None while the kernel runs."""
        return self.code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end of the kernel."""
        self.ended.wait(timeout)
        return self.code

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel and to its children."""
        if self.code is None and self.pid > 0:  # 0 would be this process's own group
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the kernel at once."""
        self.send_signal(signal.SIGKILL)

    terminate = kill

    def update(self, message: dict[str, Any]) -> None:
        """Record what the fork server reports."""
        self.pid = message.get("pid", self.pid)
        if "code" in message:
            self.code = message["code"]
            self.ended.set()
        self.born.set()


class KernelForkServer:
    """Client of the process that forks kernels; see `forkserver.py`.

    sockets: the folder of the kernels' sockets. threads: number of linear-algebra threads in each kernel.
    """

    module = "workbench.lab.batch.forkserver"

    def __init__(self, sockets: Path, threads: int) -> None:
        # -P: a user's file called json.py does not replace the library's. The process has its own session, so that
        # Ctrl-C in a terminal reaches this process alone.
        command = [sys.executable, "-P", "-m", self.module, str(sockets)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        self.process = subprocess.Popen(command, **pipes, env=os.environ | _environment(threads))
        self.kernels: dict[int, Kernel] = {}
        self.ready = self.gone = False
        self._numbers = count()
        self._sending = Lock()
        Thread(target=self._listen, name="workbench-forkserver", daemon=True).start()

    def fork(self, **request: Any) -> Kernel | None:
        """Fork a kernel. Return None if the fork server has ended."""
        kernel, number = Kernel(), next(self._numbers)
        self.kernels[number] = kernel
        try:
            with self._sending:
                assert self.process.stdin is not None
                self.process.stdin.write(json.dumps({"number": number, **request}).encode() + b"\n")
                self.process.stdin.flush()
        except OSError:
            self.gone = True
            return None
        kernel.born.wait()
        return kernel if kernel.pid else None

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                message = json.loads(line)
                self.ready = True
                if "number" in message:
                    self.kernels[message["number"]].update(message)
        self.gone = True
        for kernel in list(self.kernels.values()):  # kernels end with the fork server
            kernel.update({"code": -signal.SIGKILL} if kernel.code is None else {})

    def close(self) -> None:
        """End the fork server with its kernels. While it is still importing, it has no kernels, and is killed."""
        with suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5.0 if self.ready else 0.0)
        self.process.kill()
        self.process.wait()


class Kernels:
    """Kernels of a batch. Leaving the block ends all of them.

    threads: number of linear-algebra threads of each kernel. fresh: start every kernel instead of forking it. code:
    user-defined classes, by value. During the batch, they are stored in the folder of the sockets. allowed: names and
    hashes of the code that kernels may run; None: no restriction.
    """

    def __init__(
        self, threads: int, fresh: bool = False, code: str = "", allowed: Mapping[str, str] | None = None
    ) -> None:
        self.threads, self.fresh, self.code_sent, self.allowed = threads, fresh or not CAN_FORK, code, allowed
        self.processes: dict[str, Any] = {}  # name of a run -> its Kernel or Popen
        self.numbers = count()
        self.stopping = False
        # of a pool that sweeps share: its settings, the sweep that uses it, and the number of that sweep's runs
        self.fields, self.token, self.users = "", "", 0
        self._forkserver: KernelForkServer | None = None
        self._lock = Lock()

    def __enter__(self) -> Kernels:
        self.folder = socket_folder("wb-")  # only its owner may enter
        if self.code_sent:
            (self.folder / CODE_FILE).write_text(self.code_sent)
        self.home = Path.cwd()  # folder in which runs look for the user's files
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self) -> None:
        """Stop all kernels that run now, and start no further ones."""
        self.stopping = True
        for process in list(self.processes.values()):
            if process.poll() is None and process.pid:
                end(process.pid)
        with self._lock:
            if self._forkserver:
                self._forkserver.close()

    def started(self, name: str, process: Any) -> None:
        """Register a kernel. If the batch is stopping, the kernel is ended at once."""
        self.processes[name] = process
        if self.stopping:
            process.kill()

    def fork(self, **request: Any) -> Kernel:
        """Fork a kernel. A fork server that was killed is replaced."""
        for _ in range(3):
            if kernel := self._warm().fork(**request):
                return kernel
        raise RunError(
            "the process that starts the kernels is killed again and again; is there enough memory?"
        )

    def warm(self) -> None:
        """Start the fork server before the first kernel is needed, because its imports take some seconds."""
        if not self.fresh:
            self._warm()

    def _warm(self) -> KernelForkServer:
        with self._lock:
            if self.stopping:
                raise RunError("the batch is stopping")
            if self._forkserver is None or self._forkserver.gone:
                self._forkserver = KernelForkServer(self.folder, self.threads)
            return self._forkserver

    @property
    def arguments(self) -> list[str]:
        """Last arguments of a kernel's command. They keep all its output, load user-defined code, and restrict code."""
        options = [run_first(register_file, str(self.folder / CODE_FILE))] if self.code_sent else []
        limit = [] if self.allowed is None else [run_first(limit_to, dict(self.allowed))]
        return [run_first(keep_output), *options, *limit]

    def code(self, name: str) -> int | None:
        """Return the exit status of a run's kernel, or None while it runs, or if none was started."""
        process = self.processes.get(name)
        return None if process is None else process.poll()

    def manager(self, name: str, log: Path) -> type[AsyncKernelManager]:
        """Return a class of kernel managers for one kernel that writes to `log`. Papermill instantiates the class."""
        owner = self

        class Manager(AsyncKernelManager):
            def __init__(self, **options: Any) -> None:
                super().__init__(**options)
                if os.name == "posix":  # sockets are files in a folder that only its owner may enter
                    self.transport = "ipc"
                    self.connection_file = str(owner.folder / f"{next(owner.numbers)}.json")
                self.kernel_id = name
                self.provisioner = _Provisioner(kernel_id=name, kernel_spec=self.kernel_spec, parent=self)
                self.provisioner.owner, self.provisioner.log_file = owner, log

        return Manager


class _Provisioner(LocalProvisioner):
    owner: Kernels
    log_file: Path
    process: Any  # Kernel or Popen

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        if self.owner.stopping:
            raise RunError("the batch is stopping")
        kwargs["env"] = {**kwargs.get("env", os.environ), **_environment(self.owner.threads)}
        cmd = [*cmd, *self.owner.arguments]
        if self.owner.fresh:
            await self._start(cmd, kwargs)
        else:
            self._fork(cmd, kwargs)
        self.owner.started(self.kernel_id, self.process)
        return self.connection_info

    async def _start(self, cmd: list[str], kwargs: dict[str, Any]) -> None:
        with self.log_file.open("ab") as out:
            await super().launch_kernel(cmd, **{**kwargs, "stdout": out, "stderr": out})

    def _fork(self, cmd: list[str], kwargs: dict[str, Any]) -> None:
        # `cmd` is python, its options, -m ipykernel_launcher, and the arguments of the kernel
        self.process = self.owner.fork(
            arguments=cmd[cmd.index("-f") :],
            environment=kwargs["env"],
            folder=str(kwargs.get("cwd") or self.owner.home),
            log=str(self.log_file),
        )
        self.pid = self.pgid = self.process.pid

    async def kill(self, restart: bool = False) -> None:
        process = self.process
        await super().kill(restart)
        with suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # takes a few ms, while jupyter_client would poll only after 100 ms

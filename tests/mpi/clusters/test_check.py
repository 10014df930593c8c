"""`workbench cluster`: the table of problems by host, and the commands up, status, run and down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import workbench as wb
from tests.support.clusters.ssh_hosts import Hosts, write_yaml
from tests.support.sampled_cases import rotated
from workbench.cli.main import cli
from workbench.mpi import clusters

pytestmark = [pytest.mark.mpi, pytest.mark.xdist_group("hosts")]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a folder of the test for the times of `up`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def called(*text: object) -> Result:
    return CliRunner().invoke(cli, ["cluster", *map(str, text)])


def packages(hosts: Hosts) -> list[Path]:
    """Return the files that were copied to the hosts."""
    return [path for host in hosts.hosts for path in host.home.glob(".cache/straggler-workbench/packages/*")]


@rotated
def test_cluster_up_run_and_down(two: Hosts) -> None:
    path = write_yaml(two, price=0.5)
    first, second = (host.address for host in two.hosts)
    for _ in range(2):
        done = called("up", path)
        assert done.exit_code == 0, done.output
    assert len(packages(two)) == 2
    text = called("run", path, "--", "sh", "-c", "hostname; exit 3")
    assert (text.exit_code, text.stdout) == (3, f"{first}: w1\n{second}: w2\n")
    status = called("status", path).stdout
    assert "2 hosts, 0 ranks" in status
    assert "$ so far" in status
    for _ in range(2):
        done = called("down", path)
        assert done.exit_code == 0, done.output
    assert not packages(two)
    assert "is not up" in called("status", path).stdout


@rotated
def test_cluster_check_reports_each_host(two: Hosts, tmp_path: Path) -> None:
    """The first host has no problem, the second one has another NumPy, and the third one does not exist."""
    first, second = two.hosts
    for host in two.hosts:
        wrapper = host.home / "python"
        wrapper.write_text(f'#!/bin/sh\nPYTHONPATH=$HOME/fake exec {sys.executable} "$@"\n')
        wrapper.chmod(0o755)
    fake = second.home / "fake/numpy-1.0.dist-info"
    fake.mkdir(parents=True)
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    absent = f"{two.network}.99"
    path = write_yaml(
        two, "odd", python="/root/python", hosts=f"[{first.address}, {second.address}, {absent}]", timeout=2
    )
    done = called("check", path)
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["host", "what", "found", "wanted"]
    assert len(lines) == 3, done.output
    found = {line.split()[0]: line for line in lines[1:]}
    assert found[second.address].split()[1:3] == ["numpy", "1.0"]
    assert "connection" in found[absent]
    with pytest.raises(wb.ClusterError, match="numpy"):
        wb.run(wb.Experiment(scheme="UMW", workers=2, rounds=1), engine="mpi", cluster=str(path))
    assert not any(host.commands() for host in two.hosts)


def test_cluster_check_reports_too_few_open_files(two: Hosts) -> None:
    second = two.hosts[1]
    wrapper = second.home / "python"
    wrapper.write_text(f'#!/bin/sh\nulimit -n 32\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    plain = two.hosts[0].home / "python"
    plain.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    plain.chmod(0o755)
    done = called("check", write_yaml(two, "files", python="/root/python"))
    assert done.exit_code == 1, done.output
    (line,) = [line for line in done.stdout.splitlines() if second.address in line]
    assert "open files" in line
    assert "32 at most" in line
    assert "raise ulimit -n there" in line


def test_cluster_check_reports_a_wrong_host_key(two: Hosts) -> None:
    first, second = two.hosts
    (two.folder / "swapped").write_text(
        first.key + second.key.replace(second.key.split()[2], first.key.split()[2])
    )
    done = called("check", write_yaml(two, "swapped_lab", known_hosts="swapped"))
    assert done.exit_code == 1
    assert second.address in done.output
    assert "host key" in done.output
    (two.folder / "none").write_text("")
    done = called("check", write_yaml(two, "unknown_lab", known_hosts="none"))
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1].startswith(first.address)
    assert "host key" in done.output


def test_cluster_check_reports_a_missing_python(two: Hosts) -> None:
    done = called("check", write_yaml(two, "pythonless", python="/no/such/python"))
    assert done.exit_code == 1
    assert "the path of its Python" in done.output


@rotated
def test_cluster_up_interrupted_by_ctrl_c_leaves_nothing(two: Hosts, state: Path) -> None:
    path = write_yaml(two)
    two.hosts[1].limit(1e6)  # bits per second: copying the package takes a while
    for _ in range(5):  # on a loaded machine, `up` may end before it is interrupted
        called("down", path)
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "workbench"), "cluster", "up", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "XDG_STATE_HOME": str(state)},
        )
        end = time.monotonic() + 240
        while not packages(two) and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=240)
        if process.returncode != 0:
            break
    two.hosts[1].limit(None)
    assert process.returncode == 130, output
    assert not packages(two)
    assert not any(host.commands() for host in two.hosts)
    assert not list(state.rglob("*.json"))


def test_clusters_are_given_by_file_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.lab.batch.sweeps import cluster_of
    from workbench.lab.widgets.explorer.tabs.running import clusters_of

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/lab.yaml").write_text("kind: ssh\nhosts: [a]\n")
    assert clusters.names() == clusters_of("mpi") == ["local", "lab"]
    assert clusters_of("sim") == []
    assert cluster_of("mpi", "lab") == "lab"
    assert called("list").stdout.split() == ["local", "local", "lab", "ssh", "clusters/lab.yaml"]

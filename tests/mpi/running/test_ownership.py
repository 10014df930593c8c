"""Ownership of clusters: the user's own files are used. Settings of a folder are used only if signed or trusted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.cli.main import main
from workbench.core.base.files import cache_folder
from workbench.core.base.settings import SettingError
from workbench.core.trace.trust import sign_owner
from workbench.mpi import clusters
from workbench.mpi.clusters.agent import Agent
from workbench.mpi.clusters.ssh import Ssh
from workbench.mpi.running.ownership import cluster_of, ended, owner_of

SMALL: dict[str, Any] = {"scheme": "UMW", "workers": 3, "rounds": 3, "problem_args": {"samples": 30}}
TASK = {
    "emulate": "all",
    "record": True,
    "first": 0,
    "gradients": False,
    "checkpoint_every": 2.0,
    "patience": 600.0,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config"
    config.write_text(f"Host *\n  ProxyCommand touch {tmp_path}/ran\n")
    (tmp_path / "python").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def ssh(home: Path, **more: Any) -> dict[str, Any]:
    fields = {"kind": "ssh", "name": "lab", "hosts": ["a.invalid"], "config": str(home / "config"), **more}
    return clusters.rebuilt(fields).model_dump(mode="json")


def folder_of(cluster: Any, **fields: Any) -> Path:
    """Make the folder of a run that other processes may be working on."""
    folder = Path("run")
    folder.mkdir(exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(SMALL))
    (folder / "task.json").write_text(json.dumps(TASK))
    there = {"folder": "/elsewhere", "fields": {}, "bases": {}}
    held = {
        "cluster": cluster,
        "pool": "/elsewhere",
        "supervisor": 2**30,
        "job": "1",
        "there": there,
        **fields,
    }
    (folder / "owner.json").write_text(json.dumps(held))
    return folder


def refused(folder: Path, home: Path) -> None:
    for use in (wb.attach, wb.resume, cluster_of, owner_of):
        with pytest.raises(SettingError, match=r"owner.json: .*(trust=True|is damaged)"):
            use(folder)
    assert not (home / "ran").exists()


def others(home: Path) -> list[Any]:
    far = {"folder": str(home), "login": "a.invalid", "config": str(home / "config")}
    return [
        ssh(home),
        ssh(home, name="local"),
        ssh(home, name="../lab"),
        ssh(home, name=str(home / "lab.yaml")),
        {"kind": "slurm", "name": "lab", **far},
        {"kind": "slurm", "name": "lab", "folder": str(home), "python": str(home / "python")},
        {"kind": "ec2", "name": "lab", "config": str(home / "config")},
        {"kind": "local", "name": "local", "mark": "x"},
        {"kind": "mine.py:Half", "name": "lab"},
        {"kind": "os:abort", "name": "lab"},
        {},
        "ssh",
        [1],
        None,
    ]


@pytest.mark.parametrize("which", range(14))
def test_resume_refuses_the_cluster_of_a_foreign_folder(which: int, home: Path) -> None:
    Path("lab.yaml").write_text(f"kind: ssh\nhosts: [a.invalid]\nconfig: {home}/config\n")
    Path("mine.py").write_text(f"open({str(home / 'ran')!r}, 'w')\n")
    cluster = others(home)[which]
    if which < 4:
        folder = folder_of(cluster)
        refused(folder, home)
        return
    folder = folder_of(cluster)
    for use in (wb.attach, wb.resume):
        with pytest.raises(SettingError, match=r"owner.json: "):
            use(folder)
    assert not (home / "ran").exists()


@pytest.mark.parametrize("name", ["attach", "resume", "stop"])
def test_commands_refuse_the_cluster_of_a_foreign_folder(
    name: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["workbench", name, str(folder_of(ssh(home)))])
    with pytest.raises(SystemExit) as ended:
        main()
    text = capsys.readouterr().err
    assert (ended.value.code, text.count("\n")) == (2, 1)
    assert "--trust" in text
    assert not (home / "ran").exists()


@pytest.mark.parametrize("place", ["clusters", "configuration/straggler-workbench/clusters"])
def test_cluster_of_accepts_an_equal_user_file(place: str, home: Path) -> None:
    file = home / place / "lab.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"kind: ssh\nhosts: [a.invalid]\nconfig: {home}/config\n")
    folder = folder_of(ssh(home))
    assert cluster_of(folder) == clusters.load("lab")
    for changed in (
        {"hosts": ["b.invalid"]},
        {"python": str(home / "python")},
        {"config": str(home / "python")},
    ):
        refused(folder_of(ssh(home, **changed)), home)
    file.write_text("kind: ssh\nhosts: [a.invalid]\n")
    refused(folder_of(ssh(home)), home)


def test_cluster_of_the_local_machine_needs_no_trust(home: Path) -> None:
    for text in (
        {"kind": "local", "name": "local", "price": None},
        {"kind": "local", "name": "lab", "price": 2.0},
    ):
        assert cluster_of(folder_of(text)).kind == "local"
    (Path("run") / "owner.json").unlink()
    assert cluster_of(Path("run")).kind == "local"


def test_cluster_of_is_trusted_once(home: Path) -> None:
    folder = folder_of(ssh(home))
    assert isinstance(cluster_of(folder, trust=True), Ssh)
    assert isinstance(cluster_of(folder), Ssh)
    signed = (folder / "signature.json").read_text()
    for changed in (ssh(home, hosts=["b.invalid"]), ssh(home, python=str(home / "python"))):
        refused(folder_of(changed), home)
    refused(folder_of(ssh(home), pool="/another"), home)
    assert (folder / "signature.json").read_text() == signed
    assert isinstance(cluster_of(folder_of(ssh(home))), Ssh)


def test_cluster_of_accepts_what_this_users_processes_wrote(home: Path) -> None:
    """The cluster's file was elsewhere when the run started, or it has changed since."""
    folder = folder_of(ssh(home))
    sign_owner(folder, json.loads((folder / "owner.json").read_text()))
    assert isinstance(cluster_of(folder), Ssh)


def test_owner_of_refuses_options_as_job_numbers(home: Path) -> None:
    (home / "clusters").mkdir()
    (home / "clusters/lab.yaml").write_text(f"kind: slurm\nfolder: {home}\ntasks_per_node: 4\n")
    fields = clusters.load("lab").model_dump(mode="json")
    for job in ("--help", "1 2", "", "-M x"):
        with pytest.raises(SettingError, match="is not the number of a job"):
            owner_of(folder_of(fields, job=job))
    assert owner_of(folder_of(fields, job="12")) is not None


def test_agent_removes_only_run_folders(home: Path) -> None:
    ours = cache_folder("runs") / "20260101-000000-abc"
    for folder in (home / "kept", ours):
        folder.mkdir(parents=True)
        (folder / "ended.json").write_text("{}")
        Agent(clusters.load("local").here()).do_forget(b"", str(folder))
    assert (home / "kept" / "ended.json").exists()
    assert not ours.exists()


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.usefixtures("cache")
def test_own_run_is_attached_and_resumed(home: Path) -> None:
    Path("elsewhere.yaml").write_text("kind: local\n")
    e = wb.Experiment(**{**SMALL, "rounds": 2000})
    run = wb.start(e, engine="mpi", cluster="elsewhere.yaml", folder="own")
    while run.rounds_done < 3:
        assert not run.wait(0.01), run
    Path("elsewhere.yaml").unlink()
    follower = wb.attach("own")
    follower.stop()
    assert follower.wait(60)
    assert run.wait(60)
    assert len(wb.resume("own").result().rounds) == 2000


LOCAL = {"kind": "local", "name": "local", "price": None}
OWNERS: list[dict[str, Any]] = [
    {}, *({"supervisor": odd} for odd in (None, "x", [1], {}, 1e400, "1" * 5000)),
]  # fmt: skip


@pytest.mark.parametrize("fields", OWNERS, ids=str)
def test_owner_of_a_damaged_file_is_one_sentence(fields: dict[str, Any], home: Path) -> None:
    (home / "owner.json").write_text(json.dumps({"cluster": LOCAL, **fields}))
    with pytest.raises(SettingError, match=r"owner.json: is damaged \("):
        owner_of(home)


@pytest.mark.parametrize("pid", [0, -1, -(10**30), 10**30])
def test_owner_of_a_process_group_is_not_alive(pid: int, home: Path) -> None:
    (home / "owner.json").write_text(json.dumps({"cluster": LOCAL, "supervisor": pid}))
    found = owner_of(home)
    assert found is not None
    assert not found.is_alive


END = {"state": "stopped", "error": None, "first": 0, "zero": 0.0, "committers": [0], "dead": {}}
END |= {"emulate": "all", "clean": True, "setup": 0.0}


@pytest.mark.parametrize("name", END)
def test_damaged_end_of_a_run_is_one_sentence(name: str, home: Path) -> None:
    for odd in ({"a": 1}, [["x"]], "x"):
        if name in ("error", "state", "emulate") or (name, odd) == ("dead", {"a": 1}):
            continue
        (home / "ended.json").write_text(json.dumps({**END, name: odd}))
        with pytest.raises(SettingError, match=rf"ended.json: is damaged \('?{name}.* is of the wrong kind"):
            ended(home)
    (home / "ended.json").write_text(json.dumps({k: v for k, v in END.items() if k != name}))
    with pytest.raises(SettingError, match=rf"ended.json: is damaged \('{name}' is missing"):
        ended(home)

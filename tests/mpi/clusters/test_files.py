"""Cluster files: found by name, and checked key by key. A wrong file starts nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.cli.main import cli
from workbench.mpi import clusters
from workbench.mpi.clusters.ssh import Ssh

SSH = "kind: ssh\nhosts: [node1, node2]\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a folder of clusters, and enter it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "clusters").mkdir()
    return tmp_path / "clusters"


def test_local_cluster_always_exists(here: Path) -> None:
    assert clusters.names() == ["local"]
    assert clusters.load("local").kind == "local"


def test_cluster_files_are_found_by_name(here: Path) -> None:
    own = here.parent / "config/straggler-workbench/clusters"
    own.mkdir(parents=True)
    (own / "lab.yaml").write_text(SSH)
    (own / "other.yaml").write_text(SSH)
    (here / "lab.yaml").write_text("kind: ssh\nhosts: [node3]\n")
    assert clusters.names() == ["local", "lab", "other"]
    lab, other = clusters.load("lab"), clusters.load("other")
    assert isinstance(lab, Ssh)
    assert isinstance(other, Ssh)
    assert [m.host for m in lab.hosts] == ["node3"]
    assert [m.host for m in other.hosts] == ["node1", "node2"]
    assert clusters.rebuilt(lab.model_dump(mode="json")) == lab


@pytest.mark.parametrize(
    ("text", "found_text"),
    [
        ("kind: ssh\nhosts: [node1]\nhots: 3\n", "hots: Ssh has no such field; did you mean 'hosts'"),
        ("kind: ssh\n", "hosts: is missing"),
        ("kind: ssh\nhosts: []\n", "hosts: is missing"),
        ("kind: ssh\nhosts: node1\n", "hosts: write a list"),
        ("kind: ssh\nhosts: [7]\n", "hosts.0 = 7"),
        ("kind: ssh\nhosts: [-oProxyCommand=x]\n", "'-oProxyCommand=x' begins with a hyphen"),
        ('kind: ssh\nhosts: ["a;b"]\n', "'a;b' is not the name of a host"),
        ('kind: ssh\nhosts: ["a b"]\n', "'a b' is not the name of a host"),
        ('kind: ssh\nhosts: ["-l@a"]\n', "begins with a hyphen"),
        ("kind: ssh\nhosts: [a]\nhead: -x\n", "head: '-x' begins with a hyphen"),
        ("kind: ssh\nhosts: [a]\nuser: -x\n", "user: '-x' begins with a hyphen"),
        ("kind: ssh\nhosts: [a]\npython: -x\n", "python: '-x' begins with a hyphen"),
        ("kind: ssh\nhosts: [a, a]\n", "hosts = 'a': is named twice"),
        ("kind: ssh\nhosts: [{host: a, slots: -1}]\n", "hosts.0.slots = -1"),
        ("kind: ssh\nhosts: [{host: a, slots: 0}]\n", "no host has slots for workers"),
        ("kind: ssh\nhosts: [a]\nport: many\n", "port = 'many'"),
        ("kind: ssh\nhosts: [a]\ntimeout: true\n", "timeout = True: is not a number"),
        ("kind: ssh\nhosts: [a]\nsubnet: 10.0.0.1/24\n", "subnet: 10.0.0.1/24 has host bits set"),
        ("kind: ssh\nhosts: [a]\nidentity: none\n", "identity = 'none': no such file"),
        ("kind: ssh\nhostfile: none\n", "hostfile = "),
        ("kind: ssh\nhosts: [a]\nname: b\n", "name = 'b': is the file's name"),
        ("kind: slum\nhosts: [a]\n", "kind = 'slum': no such name; did you mean 'slurm'"),
        ("hosts: [a]\n", "kind: is missing"),
        ("- a\n", "must hold fields such as 'kind: ssh', not a list"),
        ("kind: [\n", "not valid YAML"),
    ],
)
def test_cluster_file_error_has_file_key_and_reason(here: Path, text: str, found_text: str) -> None:
    path = here / "bad.yaml"
    path.write_text(text)
    with pytest.raises(wb.SettingError) as error:
        wb.start(wb.Experiment(scheme="UMW", workers=2, rounds=1), "mpi", cluster="bad")
    assert str(error.value).startswith(f"{Path('clusters/bad.yaml')}: ")
    assert found_text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "found_text"),
    [
        ("kind: ssh\nhosts: 5\n", "hosts: write a list, e.g. [node1, node2], not 5"),
        ("kind: ssh\nhosts: {a: 1}\n", "hosts: write a list"),
        ("kind: ssh\nhosts: [5]\n", "hosts.0 = 5: must be fields and values, such as {name: value}"),
        ("kind: ssh\nhosts: [a]\nhosts: [b]\n", "'hosts' occurs twice"),
        ("kind: ec2\npreset: [a]\n", "preset = ['a']: no such name; choose one of"),
        ("kind: ec2\npreset: {a: 1}\n", "preset = {'a': 1}: no such name"),
        ("kind: [a]\n", "kind = \"['a']\": no such name"),
        ("kind: slurm\ntime: 1:30\ntime: 2:30\n", "'time' occurs twice"),
        ("kind: ssh\nhosts: &a [*a]\n", "*a is within itself"),
        (f"kind: ssh\nhosts: {'[' * 900}\n", "is 50 levels deep"),
    ],
)
def test_cluster_file_with_wrong_types_is_refused(here: Path, text: str, found_text: str) -> None:
    (here / "bad.yaml").write_text(text)
    with pytest.raises(wb.SettingError, match=r"^clusters.bad\.yaml: ") as error:
        clusters.load("bad")
    assert found_text in str(error.value)
    assert "\n" not in str(error.value)


def test_cluster_file_keeps_words_that_yaml_converts(here: Path) -> None:
    """As in a spec, `no` is text, here the name of a host, and `1e1` is a number."""
    (here / "lab.yaml").write_text("kind: ssh\nhosts: [no, on]\ntimeout: 1e1\n")
    lab = clusters.load("lab")
    assert isinstance(lab, Ssh)
    assert ([m.host for m in lab.hosts], lab.timeout) == (["no", "on"], 10.0)


def test_cluster_file_that_is_not_a_file_is_named(here: Path) -> None:
    (here / "dangling.yaml").symlink_to(here / "nowhere")
    (here / "folder.yaml").mkdir()
    for name in ("dangling", "folder"):
        with pytest.raises(wb.SettingError, match=rf"^clusters.{name}\.yaml: no such file"):
            clusters.load(name)


def test_cluster_list_states_that_files_are_code(here: Path) -> None:
    assert CliRunner().invoke(cli, ["cluster", "list"]).output == "local            local\n"
    (here / "config").write_text("Host *\n  ProxyCommand touch started\n")
    (here / "lab.yaml").write_text(SSH + "config: config\n")
    (here / "five.yaml").write_text("kind: ssh\nhosts: 5\n")
    text = CliRunner().invoke(cli, ["cluster", "list"])
    assert text.exit_code == 0
    assert re.search(
        r"^lab +ssh +clusters.lab\.yaml, with ssh's configuration .*config$", text.output, re.MULTILINE
    )
    assert re.search(r"^five +cannot be used: .*hosts: write a list", text.output, re.MULTILINE)
    assert "a cluster's file is code" in text.stderr
    assert not (here.parent / "started").exists()


def test_cluster_name_unknown_suggests_the_nearest(here: Path) -> None:
    (here / "lab.yaml").write_text(SSH)
    with pytest.raises(wb.SettingError, match=r"cluster = 'lap': no such name; did you mean 'lab'\?"):
        clusters.load("lap")


def test_a_host_file_names_hosts_and_slots(here: Path) -> None:
    (here / "hosts").write_text("# mine\nnode1 slots=2\nnode2\nnode2\n\n")
    (here / "lab.yaml").write_text("kind: ssh\nhostfile: hosts\nhead: node0\n")
    lab = clusters.load("lab")
    assert isinstance(lab, Ssh)
    assert [(m.host, m.slots) for m in lab.hosts] == [("node1", 2), ("node2", 2)]
    places = lab.placed(9)
    assert places[0] == "node0"
    assert sorted(places[1:]) == ["node1"] * 4 + ["node2"] * 4
    (here / "hosts").write_text("node1 cores=2\n")
    with pytest.raises(wb.SettingError, match="line 1 is 'node1 cores=2'"):
        clusters.load("lab")


def test_keys_beside_the_file_are_found(here: Path) -> None:
    (here / "lab.yaml").write_text(SSH)
    (here / "lab.known_hosts").write_text("")
    lab = clusters.load("lab")
    assert isinstance(lab, Ssh)
    assert lab.files() == {"known_hosts": str(here / "lab.known_hosts")}

"""Cluster files with a batch system: fields of each kind, and errors of one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.base.settings import SettingError
from workbench.mpi import clusters
from workbench.mpi.clusters.batch.kind import BatchCluster

KINDS = ("slurm", "pbs")
EXAMPLES = Path(__file__).parents[4] / "clusters" / "examples"
YAML = "kind: {kind}\nfolder: /shared\ntasks_per_node: 4\n"
BAD = [
    ("nodes: many", "nodes = 'many'"),
    ("nodes: 0", "nodes = 0"),
    ("time: soon", "time: 'soon': write minutes, hours:minutes:seconds"),
    ("account: a b", "account: 'a b'"),
    ("modules: [gcc, 'x; rm -rf /']", "modules.1: 'x; rm"),
    ("python: -c", "python: '-c' begins with a hyphen"),
    ("login: -oProxyCommand=x", "login: '-oProxyCommand=x' begins with a hyphen"),
    ("folder: shared", "folder: 'shared': give an absolute path"),
    ("folder: /a b", "folder: '/a b': give an absolute path"),
    ("folder: /%j", "folder: '/%j': give an absolute path"),
    ("idle: 0", "idle = 0"),
]
OWN = [
    ("slurm", "partion: gpu", "partion: Slurm has no such field; did you mean 'partition'"),
    ("slurm", "partition: --help", "partition: '--help': use letters"),
    ("slurm", "directives: ['--nodes=5']", "directives.0: '--nodes=5': --nodes is set"),
    ("pbs", "queu: gpu", "queu: Pbs has no such field; did you mean 'queue'"),
    ("pbs", "queue: -h", "queue: '-h': use letters"),
    ("pbs", "folder: /a:b", "folder: '/a:b': PBS reads a host before a colon"),
    ("pbs", "rsh: -x", "rsh: '-x' begins with a hyphen"),
    ("pbs", "resources: 'nodes={nodes}'", "resources: 'nodes={nodes}': write one word with {nodes} and {tasks}"),
    ("pbs", "resources: 'nodes={nodes}:ppn={tasks}{x}'", "write one word with {nodes} and {tasks}"),
    ("pbs", "resources: 'nodes={nodes}:ppn={tasks} -q x'", "write one word with {nodes} and {tasks}"),
    *(("pbs", f"directives: ['{text}']", f"directives.0: '{text}': write one option of qsub")
      for text in ("--qos=high", "-l walltime=5", "-lnodes=4", "-l select=2", "-q gpu", "-N x", "-V", "-J 1-5",
                   "-l mem=4gb # x", "-W", "-h", "-z", "-o /tmp", "l mem=4gb")),
]  # fmt: skip


def written(tmp_path: Path, kind: str, more: str) -> Path:
    """Write a cluster file with one more line, which replaces the line with the same key."""
    path = tmp_path / "lab.yaml"
    kept = [
        line
        for line in YAML.format(kind=kind).splitlines()
        if line.partition(":")[0] != more.partition(":")[0]
    ]
    path.write_text("\n".join([*kept, more]))
    return path


@pytest.mark.parametrize(("kind", "more", "text"), [*((kind, *bad) for kind in KINDS for bad in BAD), *OWN])
def test_batch_file_errors_have_name_and_key(tmp_path: Path, kind: str, more: str, text: str) -> None:
    path = written(tmp_path, kind, more)
    with pytest.raises(SettingError) as refused:
        clusters.load(path)
    assert text in str(refused.value)
    assert str(refused.value).startswith(f"{path}: {more.partition(':')[0]}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("text", "time"), [("1:30:00", "1:30:00"), ("90", "90"), ("'2-12'", "2-12")])
def test_batch_file_keeps_times_as_written(tmp_path: Path, kind: str, text: str, time: str) -> None:
    assert clusters.load(written(tmp_path, kind, f"time: {text}")).model_dump()["time"] == time


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["folder", "tasks_per_node"])
def test_batch_file_names_missing_fields(tmp_path: Path, kind: str, key: str) -> None:
    path = tmp_path / "lab.yaml"
    lines = YAML.format(kind=kind).splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(key)))
    with pytest.raises(SettingError, match=f"{key}: is missing"):
        clusters.load(path)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_example_file_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    for name in ("id_ed25519", "config", "known_hosts"):
        (tmp_path / ".ssh" / name).touch()
    example = EXAMPLES / f"{kind}.yaml"
    cluster = clusters.load(example)
    assert isinstance(cluster, BatchCluster)
    head, _, fields = example.read_text().partition("kind:")
    assert head.startswith("#")
    path = tmp_path / "all.yaml"
    path.write_text("kind:" + fields.replace("\n# ", "\n"))
    whole = clusters.load(path)
    assert isinstance(whole, BatchCluster)
    assert whole.model_fields_set >= set(type(whole).model_fields)
    assert whole.gateway is not None
    assert "login" not in [name for name, value in whole.carried().items() if value is not None]
    assert clusters.rebuilt(whole.model_dump(mode="json")) == whole

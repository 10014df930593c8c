"""Clusters by name: `load("lab")` reads clusters/lab.yaml. Whoever looks for a kind has every module in here imported.

Files are looked for in ./clusters, then in the user's configuration folder; `local`, this machine, is always there.
A cluster's file is code: it names programs (`python`, the options of sbatch) and may name a configuration of ssh, whose
ProxyCommand, LocalCommand and Match exec start what they say on this machine. Reading a file starts nothing.
How to add a kind stands in `workbench.mpi.clusters.base`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from workbench.core.base.settings import SettingError, path_of, unknown_name
from workbench.core.base.text import read_yaml
from workbench.mpi.clusters.base import Cluster, rebuilt
from workbench.mpi.launch.reports import Finding, HostState, Status

LOCAL = "local"

__all__ = [
    "LOCAL",
    "Cluster",
    "Finding",
    "HostState",
    "Status",
    "file_of",
    "folders",
    "load",
    "names",
    "rebuilt",
    "user_defined"
]  # fmt: skip


def folders() -> list[Path]:
    """Where the files of clusters are looked for, the first match wins."""
    return [Path("clusters"), user_config_path("straggler-workbench") / "clusters"]


def names() -> list[str]:
    """Names of all clusters that there are; `local` first.

    >>> names()[0]
    'local'
    """
    found = {path.stem for folder in folders() for path in folder.glob("*.yaml")}
    return [LOCAL, *sorted(found - {LOCAL})]


def file_of(name: str) -> Path | None:
    """The file of a cluster's name, or what stands in its place; None where there is nothing, as for `local`."""
    places = (folder / f"{name}.yaml" for folder in folders())
    return next((path for path in places if path.exists() or path.is_symlink()), None)


def load(name: str | Path) -> Cluster:
    """Cluster of a name, or of a .yaml file; nothing is started.

    What uses the cluster starts what its file names: load only files that you would run as programs. Raises
    `SettingError`, one sentence: file, key, value, and what would work.

    >>> load("local")
    Local(name='local', price=None)
    """
    if not isinstance(name, str | Path):
        raise unknown_name("cluster", name, names())
    path = path_of(name, "cluster")
    if path.suffix in (".yaml", ".yml"):
        return _read(path)
    path_of(f"{name}.yaml", "cluster")  # which may be too long
    if (found := file_of(str(name))) is not None:
        return _read(found)
    if name == LOCAL:
        return rebuilt({"kind": LOCAL, "name": LOCAL})
    raise unknown_name("cluster", str(name), names())


def user_defined(fields: Mapping[str, Any]) -> Cluster | None:
    """The cluster whose settings a folder holds, where it is this machine, or a file of the user's says the same.

    Only the name is taken from there: whatever is started is what the user's file names.

    >>> own({"kind": "ssh", "name": "../elsewhere"})
    """
    name = fields.get("name")
    plain = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name)  # it becomes part of a folder's name
    if plain and {**fields, "name": "", "price": None} == {"kind": LOCAL, "name": "", "price": None}:
        return rebuilt(dict(fields))
    file = file_of(name) if isinstance(name, str) and name in names() else None
    with suppress(SettingError):
        found = None if file is None else _read(file)
        if found is not None and found.model_dump(mode="json") == fields:
            return found
    return None


def _read(path: Path) -> Cluster:
    """Settings from a file."""
    fields = read_yaml(path, "kind: ssh")
    if "kind" not in fields:
        kinds = ", ".join(Cluster.catalogue)
        raise SettingError(f"{path}: kind: is missing; write one, e.g. kind: ssh (there is {kinds})")
    if "name" in fields:
        raise SettingError(f"{path}: name = {fields['name']!r}: is the file's name; leave the key out")
    try:
        return rebuilt(fields | {"name": path.stem}).located(path.parent.resolve())
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None

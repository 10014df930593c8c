"""Clusters by name: `load("lab")` reads clusters/lab.yaml.

Files are looked up in ./clusters, then in the user's configuration folder. `local`, this machine, always exists.
A cluster's file is code. It names programs (`python`, the options of sbatch). It may name a configuration of ssh,
whose ProxyCommand, LocalCommand and Match exec start programs on this machine. Reading a file starts nothing.

Importing the kind of a cluster imports every module of this package. `workbench.mpi.clusters.base` describes how to
add a kind.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from workbench.core.base.settings import SettingError, errors_of, path_of, unknown_name
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
    """Return the folders where files of clusters are looked up. The first match wins."""
    return [Path("clusters"), user_config_path("straggler-workbench") / "clusters"]


def names() -> list[str]:
    """Return the names of all clusters, `local` first.

    >>> names()[0]
    'local'
    """
    found = {path.stem for folder in folders() for path in folder.glob("*.yaml")}
    return [LOCAL, *sorted(found - {LOCAL})]


def file_of(name: str) -> Path | None:
    """Return the path of a cluster's file, which may be a broken link. None if there is no file, as for `local`."""
    places = (folder / f"{name}.yaml" for folder in folders())
    return next((path for path in places if path.exists() or path.is_symlink()), None)


def load(name: str | Path) -> Cluster:
    """Load a cluster by its name, or from a .yaml file. Nothing is started.

    Using the cluster starts the programs that its file names, so load only files that you would run as programs.

    Raises `SettingError`: one sentence with file, key, value, and what would work.

    >>> load("local")
    Local(name='local', price=None)
    """
    if not isinstance(name, str | Path):
        raise unknown_name("cluster", name, names())
    path = path_of(name, "cluster")
    if path.suffix in (".yaml", ".yml"):
        return _read(path)
    path_of(f"{name}.yaml", "cluster")  # raises an error if the name is too long for a file
    if (found := file_of(str(name))) is not None:
        return _read(found)
    if name == LOCAL:
        return rebuilt({"kind": LOCAL, "name": LOCAL})
    raise unknown_name("cluster", str(name), names())


def user_defined(fields: Mapping[str, Any]) -> Cluster | None:
    """Return the cluster with these settings, if it is this machine or a file of the user has the same settings.

    The settings come from a run folder, which another user may have written. Only the name is taken from them, to find
    the user's own file. No program is started that this file does not name.

    >>> user_defined({"kind": "ssh", "name": "../elsewhere"})
    """
    name = fields.get("name")
    # checked, because the name becomes part of a folder's name
    plain = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name)
    if plain and {**fields, "name": "", "price": None} == {"kind": LOCAL, "name": "", "price": None}:
        return rebuilt(dict(fields))
    file = file_of(name) if isinstance(name, str) and name in names() else None
    with suppress(SettingError):
        found = None if file is None else _read(file)
        if found is not None and found.model_dump(mode="json") == fields:
            return found
    return None


def _read(path: Path) -> Cluster:
    """Read a cluster from its file. Raises `SettingError` with the file's path."""
    fields = read_yaml(path, "kind: ssh")
    if "kind" not in fields:
        kinds = ", ".join(Cluster.catalogue)
        raise SettingError(f"{path}: kind: is missing; write one, e.g. kind: ssh (there is {kinds})")
    if "name" in fields:
        raise SettingError(f"{path}: name = {fields['name']!r}: is the file's name; leave the key out")
    with errors_of(path):
        return rebuilt(fields | {"name": path.stem}).located(path.parent.resolve())

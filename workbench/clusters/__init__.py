"""Clusters by name: `load("lab")` reads clusters/lab.yaml. Importing this package finds every kind in it.

Files are looked for in ./clusters, then in the user's configuration folder; `local`, this machine, is always there.
How to add a kind stands in `workbench.clusters.base`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import yaml

from workbench.clusters.base import Cluster, Finding, HostState, Status, rebuilt
from workbench.settings import SettingError, unknown_name

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

LOCAL = "local"

__all__ = ["LOCAL", "Cluster", "Finding", "HostState", "Status", "folders", "load", "names", "rebuilt"]


def folders() -> list[Path]:
    """Where the files of clusters are looked for, the first match wins."""
    from platformdirs import user_config_path

    return [Path("clusters"), user_config_path("straggler-workbench") / "clusters"]


def names() -> list[str]:
    """Names of all clusters that there are; `local` first.

    >>> names()[0]
    'local'
    """
    found = {path.stem for folder in folders() for path in folder.glob("*.yaml")}
    return [LOCAL, *sorted(found - {LOCAL})]


def load(name: str | Path) -> Cluster:
    """Cluster of a name, or of a .yaml file; nothing is started.

    Raises
    ------
    SettingError
        One sentence: file, key, value, and what would work.

    Examples
    --------
    >>> load("local")
    Local(kind='local', name='local', price=None)
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return _read(path)
    for folder in folders():
        if (path := folder / f"{name}.yaml").is_file():
            return _read(path)
    if name == LOCAL:
        return rebuilt({"kind": LOCAL, "name": LOCAL})
    raise unknown_name("cluster", str(name), names())


def _read(path: Path) -> Cluster:
    """Settings from a file."""
    try:
        words: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(words, dict) or "kind" not in words:
        raise SettingError(f"{path}: kind: is missing; write one, e.g. kind: ssh (there is {_kinds()})")
    if "name" in words:
        raise SettingError(f"{path}: name = {words['name']!r}: is the file's name; leave the key out")
    try:
        return rebuilt({str(key): value for key, value in words.items()} | {"name": path.stem}).located(
            path.parent.resolve()
        )
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


def _kinds() -> str:
    return ", ".join(sorted(Cluster.catalogue))

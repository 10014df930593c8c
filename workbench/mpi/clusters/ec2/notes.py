"""Notes on this machine about a running cluster on EC2: end time, cost, and addresses.

They are in a folder of the user's cache that only the user can read. AWS credentials are never written to disk.
"""

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.core.base.files import private_folder, writable_folder, write_file
from workbench.core.base.locks import Lock
from workbench.core.base.text import read_json
from workbench.core.problems.data.cache import root
from workbench.mpi.clusters.ec2.prices import Price

_FILE = "machines.json"


class Damaged(ClusterError):
    """Notes that cannot be read."""


@dataclass(frozen=True)
class Notes:
    """Data of a launch. Times are seconds since 1970.

    `launch`: its tag. `asked`: the settings it was started with. `ceiling`: maximal cost in dollars. `address`: the
    head's public address. `head`, `workers`: private addresses, known once everything is up.
    """

    launch: str
    created: float
    deadline: float
    asked: dict[str, Any]
    prices: dict[str, Price]
    ceiling: float
    address: str = ""
    head: str = ""
    workers: tuple[str, ...] = field(default=())

    @property
    def complete(self) -> bool:
        """Whether all machines have been up once."""
        return bool(self.address)


def folder_of(name: str) -> Path:
    """Return the folder for the notes and keys of a cluster, which may not exist yet."""
    return root() / "clusters" / name


def read(folder: Path) -> Notes | None:
    """Return the notes, or None if there are none. Raises `Damaged`."""
    try:
        fields = read_json(folder / _FILE)
        priced = {what: Price(**price) for what, price in fields.pop("prices").items()}
        return Notes(**{**fields, "prices": priced, "workers": tuple(fields["workers"])})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        why = f"cannot be read ({error}); end the machines (workbench cluster down), then start them again"
        raise Damaged(f"{folder / _FILE}: {why}") from None


def write(folder: Path, notes: Notes) -> None:
    """Write the notes into a folder that only the user can read."""
    private_folder(folder)
    write_file(folder / _FILE, json.dumps(asdict(notes), indent=1), private=True)


def forget(folder: Path) -> None:
    """Delete notes and keys."""
    shutil.rmtree(folder, ignore_errors=True)


def alone(folder: Path) -> AbstractContextManager[None]:
    """Return a lock for starting or ending machines of a cluster. Raises `ClusterError` if it is taken."""
    writable_folder(folder.parent, "WORKBENCH_CACHE")
    other = f"{folder.name}: is being started or ended by another program on this machine; wait for it"
    return Lock(folder.with_name(f".{folder.name}.lock")).alone(ClusterError(other))

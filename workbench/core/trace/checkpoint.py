"""Reader of the newest checkpoint of a run on real processes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.base.arrays import from_bytes
from workbench.core.base.reading import read_bytes
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.optimisers import State
from workbench.core.trace.layout import CHECKPOINT


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint: number of finished rounds, model and optimiser state after them, and fields of the start of the run.

    Older checkpoints lack the fields of the start. `steps`: steps of each worker in these rounds; empty if workers do
    not count steps.
    """

    rounds: int
    model: Array
    state: State
    begun: dict[str, str]
    steps: tuple[int, ...] = ()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the newest checkpoint. Raise `SettingError` if it is damaged, FileNotFoundError if there is none."""
    held = read_arrays(folder / CHECKPOINT)
    if "sum" in held and str(held.pop("sum")) != sum_of(held):
        raise SettingError(f"{folder / CHECKPOINT}: is damaged (its checksum differs); run it again")
    if missing := {"model", "round"} - set(held):
        raise SettingError(f"{folder / CHECKPOINT}: is damaged ({min(missing)!r} is missing); run it again")
    kept = {name[6:]: v for name, v in held.items() if name.startswith("state_")}
    state = {name: v.item() if v.ndim == 0 else v for name, v in kept.items()}
    begun = {name[6:]: str(v) for name, v in held.items() if name.startswith("begun_")}
    steps = tuple(held["steps"].astype(np.int64).ravel().tolist()) if "steps" in held else ()
    return Checkpoint(int(held["round"]), held["model"], state, begun, steps)


def sum_of(held: Mapping[str, Any]) -> str:
    """Return a hash of arrays and their names. (The checksums of an archive do not cover the list of its members.)"""
    found = hashlib.sha256()
    for name, value in sorted(held.items()):
        array = np.asarray(value)
        found.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file. Raise `SettingError` if it is damaged."""
    try:
        return from_bytes(read_bytes(path))
    except SettingError:
        raise
    except ValueError as error:
        raise SettingError(f"{path}: is damaged ({error}); run it again") from None

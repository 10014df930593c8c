"""Runs as an RO-Crate 1.1: copies of the run folders of finished runs, and their description in JSON-LD."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocrate.model import ContextEntity, File
from rocrate.rocrate import ROCrate

from workbench.analysis.tables.exports import is_number
from workbench.analysis.tables.rows import has_rounds
from workbench.core.base.settings import SettingError
from workbench.core.base.version import __version__
from workbench.core.trace.layout import EVENTS, FILES, MODEL, ROUNDS, RUN, SPEC

_DESCRIPTIONS = {
    SPEC: "the experiment's settings",
    RUN: "engine, versions, seed",
    ROUNDS: "one row per round",
    EVENTS: "one row per computation and message",
    MODEL: "final parameters",
}
_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": "application/json",
    ".npy": "application/octet-stream",
}


def write(folder: Path, target: Path, rows: list[dict[str, Any]], settings: Sequence[str]) -> None:
    """Copy the runs into a folder that is renamed to `target` when it is complete, with their description."""
    crate = ROCrate(version="1.1")
    done = [row for row in rows if has_rounds(row)]
    crate.name = target.name
    crate.root_dataset["license"] = "not stated"
    crate.description = (
        f"{len(done)} runs of straggler-tolerant gradient aggregation: settings, rounds, events, models."
    )
    software = {
        "@type": "SoftwareApplication",
        "name": "straggler-workbench",
        "softwareVersion": __version__,
    }
    workbench = crate.add(ContextEntity(crate, "#workbench", software))
    for i, row in enumerate(done):
        place = f"runs/{i:05d}/"
        _copy(Path(row["folder"]), folder / place)
        fields = {"name": row.get("name", row["run"]), "description": row.get("note", row["run"])}
        fields |= {"keywords": row["tags"]} if "tags" in row else {}
        run = crate.add_dataset(dest_path=place, properties=fields)
        for path in sorted(path for path in (folder / place).rglob("*") if path.is_file()):
            run.append_to("hasPart", _file(crate, path, path.relative_to(folder).as_posix()))
        for name, value in row.items():
            if name in settings or is_number(value):
                pair = {"@type": "PropertyValue", "name": name, "value": value}
                run.append_to("variableMeasured", crate.add(ContextEntity(crate, f"#{place}{name}", pair)))
        made = {"name": f"run of {row.get('scheme', 'a scheme')}"}
        spec = crate.dereference(place + SPEC)
        crate.add_action(workbench, f"#{place}made", object=spec, result=run, properties=made)
    text = json.dumps(crate.metadata.generate(), indent=2)
    (folder / crate.metadata.id).write_bytes(text.encode(errors="backslashreplace"))


def _file(crate: ROCrate, path: Path, name: str) -> Any:
    fields = {"name": path.name, "contentSize": str(path.stat().st_size)}
    fields["encodingFormat"] = _TYPES.get(path.suffix, "text/plain")
    fields |= {"description": _DESCRIPTIONS[path.name]} if path.name in _DESCRIPTIONS else {}
    return crate.add(File(crate, dest_path=name, properties=fields))


def _copy(run: Path, place: Path) -> None:
    """Copy the regular files of a run folder, without links (which may lead anywhere), pipes and devices.

    Raises `SettingError` if a required file is one of these.
    """

    def foreign(folder: str, names: list[str]) -> set[str]:
        modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
        return {name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))}

    if left := sorted(foreign(str(run), [name for name in FILES if (run / name).exists()])):
        why = f"{left[0]} is a link, or not a regular file; put the file itself there"
        raise SettingError(f"folder = {str(run)!r}: {why}")
    shutil.copytree(run, place, ignore=foreign)

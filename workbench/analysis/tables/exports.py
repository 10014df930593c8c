"""Tables of runs for other people's programs: CSV, Parquet, MLflow's file store, RO-Crate."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.core.base.files import atomic_folder, atomic_write
from workbench.core.base.formulas import to_csv
from workbench.core.base.settings import SettingError, check_writable, path_of
from workbench.core.base.text import dump
from workbench.core.base.version import __version__
from workbench.core.trace.layout import EVENTS, FILES, MODEL, ROUNDS, RUN, SPEC
from workbench.core.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

Line = dict[str, Any]  # a row of the table, without what is empty
_STATUS = {"done": 3, "failed": 4, "running": 1}  # of MLflow's runs: finished, failed, running; else killed
_KILLED, _LOCAL = 5, 4
_LONGEST = 6000  # of a value of MLflow's parameters
_ROUNDS = "rounds"  # metrics of every round lie in a folder of this name
_LONGEST_KEY = 100  # characters of a name: MLflow takes 250 bytes
_TYPES = {
    ".parquet": "application/vnd.apache.parquet",
    ".json": "application/json",
    ".npy": "application/octet-stream",
}


def export(table: pd.DataFrame, path: str | Path, form: str = "", settings: Sequence[str] = ()) -> Path:
    """Write a table, whole or not at all; `settings`: the columns that were chosen, not measured.

    Raises `SettingError` for an unknown form, or a folder that is there already.
    """
    target = path_of(path, "path")
    if (ending := form or target.suffix.removeprefix(".")) in ("csv", "parquet"):
        check_writable(target, "path")
        with atomic_write(target) as out:
            out.write(to_csv(table) if ending == "csv" else table.to_parquet(index=False))
        return target
    if form not in _FOLDERS:
        why = f"end it in .csv or .parquet, or say {' or '.join(_FOLDERS)}"
        raise SettingError(f"path = {str(path)!r}: no format for {form or target.suffix!r}; {why}")
    if target.exists():
        raise SettingError(f"path = {str(path)!r}: exists already; choose a new name")
    check_writable(target, "path", target.parent)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(target, new=True) as folder:
        _FOLDERS[form](folder, target, list(_lines(table)), settings)
    return target


def _lines(table: pd.DataFrame) -> Iterator[Line]:
    for row in table.astype(object).to_dict("records"):
        yield {str(name): value for name, value in row.items() if not _empty(value)}


def _empty(value: Any) -> bool:
    return value is None or value == "" or value != value or type(value).__name__ == "NAType"


# ---------------------------------------------------------------- MLflow


def _mlflow(folder: Path, target: Path, lines: list[Line], settings: Sequence[str]) -> None:
    """A folder per run, by the layout that MLflow documents: meta.yaml, params, metrics, tags, artifacts."""
    base, now = target.absolute().as_uri(), int(1000 * time.time())
    store = folder / "0"
    words: dict[str, Any] = {"artifact_location": f"{base}/0", "experiment_id": "0", "name": "Default"}
    words |= dict.fromkeys(("creation_time", "last_update_time"), now)
    _meta(store, {**words, "lifecycle_stage": "active"})
    for line in lines:
        run = hashlib.sha256(_bytes(line["folder"])).hexdigest()[:32]
        home = store / run
        for name in ("params", "metrics", "tags", "artifacts"):
            (home / name).mkdir(parents=True)
        _meta(home, _run_words(line, run, base, now))
        for name in settings:
            if name in line:
                _write(home / "params" / _key(name), str(line[name])[:_LONGEST])
        for name, text in _tags(line).items():
            _write(home / "tags" / _key(name), text)
        for name, history in _metrics(line, settings).items():
            _write(home / "metrics" / name, "".join(f"{now} {value!r} {i}\n" for i, value in history))


def _run_words(line: Line, run: str, base: str, now: int) -> dict[str, Any]:
    over = None if line["state"] == "running" else now
    return {
        **dict.fromkeys(("user_id", "entry_point_name", "source_name", "source_version"), ""),
        "artifact_uri": f"{base}/0/{run}/artifacts",
        "experiment_id": "0",
        **dict.fromkeys(("run_id", "run_uuid"), run),
        "run_name": line.get("name") or line["run"],
        "start_time": now,
        "end_time": over,
        "lifecycle_stage": "deleted" if line.get("archived") else "active",
        "status": _STATUS.get(line["state"], _KILLED),
        "source_type": _LOCAL,
        "tags": [],
    }


def _tags(line: Line) -> dict[str, str]:
    said = {"mlflow.runName": line.get("name") or line["run"], "mlflow.note.content": line.get("note", "")}
    said |= {name: line.get(name, "") for name in ("state", "error", "folder")}
    return said | {f"tag {tag}": "true" for tag in line.get("tags", "").split(", ") if tag}


def _metrics(line: Line, settings: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """Every round's numbers where there are any, else the row's."""
    numbers = {name: v for name, v in line.items() if name not in settings and _number(v)}
    found = {_key(name): [(0, float(value))] for name, value in numbers.items()}
    if line["state"] == "done":
        columns = Trace.load(line["folder"]).columns
        found |= {
            f"{_ROUNDS}/{_key(name)}": list(enumerate(map(float, column))) for name, column in columns.items()
        }
    return found


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _key(name: str) -> str:
    """A file's name for a name that MLflow is given, whatever it holds: letters, digits and a few signs.

    >>> _key("tag y z"), _key("../x"), len(_key("x" * 1000))
    ('tag y z', '___x-d6b96a97', 109)
    """
    plain = re.sub(r"[^A-Za-z0-9_. -]", "_", name).replace("..", "__")[:_LONGEST_KEY].strip(" .")
    return (
        plain
        if plain == name and name not in ("", _ROUNDS)
        else f"{plain}-{hashlib.sha256(_bytes(name)).hexdigest()[:8]}"
    )


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _meta(folder: Path, words: Mapping[str, Any]) -> None:
    _write(folder / "meta.yaml", dump(dict(words)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_bytes(text))


# ---------------------------------------------------------------- RO-Crate


def _crate(folder: Path, target: Path, lines: list[Line], settings: Sequence[str]) -> None:
    """RO-Crate 1.1: copies of the run folders that are done, and ro-crate-metadata.json, which says what they are."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    software = {"@id": "#workbench", "@type": "SoftwareApplication", "name": "straggler-workbench"}
    graph: list[dict[str, Any]] = [{**software, "softwareVersion": __version__}]
    parts = []
    for i, line in enumerate(line for line in lines if line["state"] == "done"):
        place = f"runs/{i:05d}/"
        _copy(Path(line["folder"]), folder / place)
        graph += _described(folder, place, line, settings)
        parts.append({"@id": place})
    about = {"@id": "ro-crate-metadata.json", "@type": "CreativeWork", "about": {"@id": "./"}}
    about["conformsTo"] = {"@id": "https://w3id.org/ro/crate/1.1"}
    what = f"{len(parts)} runs of straggler-tolerant gradient aggregation: settings, rounds, events, models."
    root = {"@id": "./", "@type": "Dataset", "name": target.name, "datePublished": now, "hasPart": parts}
    root |= {"description": what, "license": "not stated"}
    crate = {"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": [about, root, *graph]}
    _write(folder / "ro-crate-metadata.json", json.dumps(crate, indent=2) + "\n")


def _copy(run: Path, place: Path) -> None:
    """Copy a run folder's own files: no links, which may lead anywhere, no pipes and no devices.

    Raises `SettingError` where a file that a run needs is one of these.
    """

    def foreign(folder: str, names: list[str]) -> set[str]:
        modes = {name: (Path(folder) / name).lstat().st_mode for name in names}
        return {name for name, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))}

    if left := sorted(foreign(str(run), [name for name in FILES if (run / name).exists()])):
        why = f"{left[0]} is a link, or no regular file; put the file itself there"
        raise SettingError(f"folder = {str(run)!r}: {why}")
    shutil.copytree(run, place, ignore=foreign)


def _described(folder: Path, place: str, line: Line, settings: Sequence[str]) -> list[dict[str, Any]]:
    """A run as a data set, how it was made, its numbers and its files."""
    files = [path for path in sorted((folder / place).rglob("*")) if path.is_file()]
    held = [_file(path, place + path.relative_to(folder / place).as_posix()) for path in files]
    kept = [
        {"@id": f"#{place}{name}", "@type": "PropertyValue", "name": name, "value": value}
        for name, value in line.items()
        if name in settings or _number(value)
    ]
    words = {"name": line.get("name", line["run"]), "description": line.get("note", line["run"])}
    words |= {"keywords": line["tags"]} if "tags" in line else {}
    lists = {"hasPart": held, "variableMeasured": kept}
    refers = {name: [{"@id": each["@id"]} for each in entities] for name, entities in lists.items()}
    run = {"@id": place, "@type": "Dataset", **words, **refers}
    made: dict[str, Any] = {"@id": f"#{place}made", "@type": "CreateAction"}
    made |= {"name": f"run of {line.get('scheme', 'a scheme')}", "instrument": {"@id": "#workbench"}}
    made |= {"object": {"@id": place + SPEC}, "result": {"@id": place}}
    return [run, made, *kept, *held]


_MEANINGS = {
    SPEC: "the experiment's settings",
    RUN: "engine, versions, seed",
    ROUNDS: "one row per round",
    EVENTS: "one row per computation and message",
    MODEL: "final parameters",
}


def _file(path: Path, name: str) -> dict[str, Any]:
    words = {"@id": name, "@type": "File", "name": path.name, "contentSize": str(path.stat().st_size)}
    words["encodingFormat"] = _TYPES.get(path.suffix, "text/plain")
    return {**words, **({"description": _MEANINGS[path.name]} if path.name in _MEANINGS else {})}


_FOLDERS: dict[str, Callable[[Path, Path, list[Line], Sequence[str]], None]] = {
    "mlflow": _mlflow,
    "ro-crate": _crate,
}

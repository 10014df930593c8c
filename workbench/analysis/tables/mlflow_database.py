"""Runs in a database that MLflow reads, written by its own client."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.analysis.tables.exports import is_number
from workbench.analysis.tables.rows import has_rounds
from workbench.core.trace.trace import Trace

# set before the import of MLflow, which then sends no usage data
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

DATABASE = "mlflow.db"
# states of MLflow; any other is KILLED
_STATUS = {"done": "FINISHED", "failed": "FAILED", "running": "RUNNING"}
_MAX_NAME_CHARACTERS = 100  # MLflow allows 250 bytes
_ROUNDS = "rounds"  # prefix of the names of metrics with a value for every round


def write(folder: Path, target: Path, rows: list[dict[str, Any]], settings: Sequence[str]) -> None:
    """Write the database in a folder that is renamed to `target` when it is complete."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # otherwise it logs each new table
    client = MlflowClient(tracking_uri=f"sqlite:///{(folder / DATABASE).absolute()}")
    artifacts = (target / "artifacts").absolute().as_uri()
    experiment = client.create_experiment("straggler-workbench", artifact_location=artifacts)
    for row in rows:
        now = int(1000 * time.time())
        name = _text(row.get("name") or row["run"])
        run = client.create_run(experiment, start_time=now, run_name=name).info.run_id
        params = [Param(_key(name), _text(row[name])) for name in settings if name in row]
        tags = [RunTag(_key(key), _text(value)) for key, value in _tags(row).items()]
        metrics = [
            Metric(key, value, now, i)
            for key, history in _metrics(row, settings).items()
            for i, value in enumerate(history)
        ]
        client.log_batch(run, metrics, params, tags)
        if (status := _STATUS.get(row["state"], "KILLED")) != "RUNNING":
            client.set_terminated(run, status, end_time=now)
        if row.get("archived"):
            client.delete_run(run)


def _tags(row: dict[str, Any]) -> dict[str, str]:
    found = {name: row.get(name, "") for name in ("state", "error", "folder")}
    found["mlflow.note.content"] = row.get("note", "")
    return found | {f"tag {tag}": "true" for tag in row.get("tags", "").split(", ") if tag}


def _metrics(row: dict[str, Any], settings: Sequence[str]) -> dict[str, list[float]]:
    """Return the numbers of the row, and the columns of rounds of a finished run."""
    found = {
        _key(name): [float(value)] for name, value in row.items() if name not in settings and is_number(value)
    }
    if has_rounds(row):
        columns = Trace.load(row["folder"]).columns
        found |= {f"{_ROUNDS}/{_key(name)}": list(map(float, column)) for name, column in columns.items()}
    return found


def _key(name: str) -> str:
    """Return a name that MLflow accepts: letters, digits and a few signs.

    >>> _key("tag y z"), _key("../x"), len(_key("x" * 1000))
    ('tag y z', '___x-d6b96a97', 109)
    """
    plain = re.sub(r"[^A-Za-z0-9_. -]", "_", name).replace("..", "__")[:_MAX_NAME_CHARACTERS].strip(" .")
    if plain == name and name not in ("", _ROUNDS):
        return plain
    return f"{plain}-{hashlib.sha256(_text(name).encode()).hexdigest()[:8]}"


def _text(value: Any) -> str:
    return str(value).encode(errors="backslashreplace").decode()

"""Many runs of a sweep as one task: a process of the executor computes them in order and writes one shard."""

from __future__ import annotations

import gc
import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from workbench.analysis.tables.shards import SUFFIX, ShardRow, encoded, table_of
from workbench.core.base.errors import RunError
from workbench.core.base.files import write_file
from workbench.core.running.start import run
from workbench.core.trace.layout import ATTEMPTS, SHARDS
from workbench.lab.batch.execution import reason
from workbench.lab.batch.sweeps import Item, make_item
from workbench.lab.batch.task import (
    POLL_INTERVAL_S,
    Order,
    code_of,
    ended_well,
    failure,
    is_host_error,
    refusal,
)

# s after which a task ends, so that its finished runs are kept; the others are submitted again
MAX_TASK_S = 10.0


def run_chunk(order: str, chunk: str) -> dict[str, Any]:
    """Compute many runs, and write their shard, or return it if this process cannot read the sweep's folder.

    order: fields of an `Order`, as JSON. chunk: a JSON object. It has base, engine and cluster of the sweep, the
    changes of each run, and the `expected` seconds of a run. `mark` names the file for the number of the run under way.
    The result has `done` (number of runs done), `failed` (errors by name), `late` (whether the others would end too
    late), `longest` (s of a run), `host` and `seconds`. If the task cannot be done, the result has `refused`, `missing`
    with a reason, or `lost` instead, as that of `task.run_notebook` has.
    """
    task, fields = Order(**json.loads(order)), json.loads(chunk)
    if answer := refusal(task, fields.get("expected", 0.0)):
        return answer
    _exempt_modules()
    begun, rows = time.perf_counter(), list[ShardRow]()
    try:
        with code_of(task):
            late = _compute(rows, task, fields)
        kept = _keep(task, rows)
    except Exception as error:  # a fault of this host or its code: the client has checked the runs
        return failure(task, error, reason(error))
    failed = {row.run: row.error for row in rows if row.state != "done"}
    counts = {"done": len(rows) - len(failed), "failed": failed, "late": late}
    counts["longest"] = max((row.seconds for row in rows), default=0.0)
    ended_well(task)
    return {**counts, "host": platform.node(), "seconds": time.perf_counter() - begun, **kept}


@lru_cache(maxsize=1)
def _exempt_modules() -> None:
    """Exempt the imported modules from garbage collections. Otherwise they would be visited again every few runs.

    In another thread than the main one, it does nothing, because the process may be the user's kernel.
    """
    if current_thread() is main_thread():
        gc.collect()
        gc.freeze()


def _compute(rows: list[ShardRow], task: Order, fields: Mapping[str, Any]) -> bool:
    """Compute runs and append their rows, until the sweep is stopped or the task is long enough.

    Return whether it ended early because further runs would end too late.
    """
    begun = looked = time.monotonic()
    shared, expected = task.shared, fields.get("expected", 0.0)
    path = Path(task.folder, ATTEMPTS, fields["mark"]) if shared else Path(os.devnull)
    with path.open("wb", buffering=0) as mark, suppress(KeyboardInterrupt):  # finished runs are kept
        for number, changes in enumerate(fields["changes"]):
            if (now := time.monotonic()) - looked > POLL_INTERVAL_S:
                looked = now
                if now - begun > MAX_TASK_S or task.stopped or (shared and task.abandoned):
                    break
            if task.too_late(expected):
                return True
            mark.seek(0)
            mark.write(b"%d" % number)
            item = make_item(fields["base"], changes, fields["engine"], fields["cluster"])
            rows.append(_row(item))
            task.took(rows[-1].seconds)
    return False


def _row(item: Item) -> ShardRow:
    """Compute one run, and return its row. Exceptions count as a failed run, unless the host caused them."""
    begun = time.perf_counter()
    head: dict[str, Any] = {"run": item.name, "key": item.key, "host": platform.node()}
    head["spec"] = json.dumps(item.experiment.model_dump(mode="json"))
    where: dict[str, Any] = {"cluster": item.cluster} if item.cluster else {"events": False}
    try:
        trace = run(item.experiment, item.engine, **where)
        return ShardRow.of(trace, seconds=time.perf_counter() - begun, **head)
    except Exception as error:
        if is_host_error(str(error)):
            raise
        seconds = time.perf_counter() - begun
        chosen = {"engine": item.engine, "cluster": item.cluster}
        return ShardRow(state="failed", error=reason(error), seconds=seconds, settings=chosen, **head)


def _keep(task: Order, rows: list[ShardRow]) -> dict[str, Any]:
    """Write the shard of these runs into the sweep's folder, or return its content if the folder cannot be read."""
    if not rows:
        return {}
    keys = sha256("".join(row.key for row in rows).encode()).hexdigest()[:16]
    name = f"{time.time_ns():020d}-{keys}{SUFFIX}"
    content = encoded(table_of(rows))
    if task.shared:
        write_file(Path(task.folder, SHARDS, name), content)
        return {}
    return {"name": name, "shard": content, "sum": sha256(content).hexdigest()}


def unpack_shard(answer: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return name and content of a shard in a result. Raises `RunError` if its hash differs."""
    name, content = str(answer["name"]), bytes(answer["shard"])
    if sha256(content).hexdigest() != answer["sum"] or Path(name).name != name:
        raise RunError("a shard has changed on its way from the engine")
    return name, content

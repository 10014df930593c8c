"""Many runs of a sweep as one task: a process of the executor computes them in order and writes one shard."""

from __future__ import annotations

import gc
import io
import json
import platform
import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from workbench.analysis.tables.shards import SUFFIX, ShardRow, table_of, write
from workbench.core.base.errors import RunError
from workbench.core.running.start import run
from workbench.core.trace.layout import SHARDS
from workbench.lab.batch.execution import reason
from workbench.lab.batch.sweeps import Item, make_item
from workbench.lab.batch.task import POLL_INTERVAL_S, Order, code_of, ended_well, is_host_error, lost, refusal


def run_chunk(order: str, chunk: str) -> dict[str, Any]:
    """Compute many runs, and write their shard, or return it if this process cannot read the sweep's folder.

    order: fields of an `Order`, as JSON. chunk: base, engine and cluster of the sweep, and the changes of each run, as
    JSON. The result has `done` (number of runs done), `failed` (errors by name), `missing` (number of runs that were
    not begun), `host` and `seconds`. If the task cannot be done, the result has `refused`, `missing` with a reason, or
    `lost` instead, as that of `task.run_notebook` has.
    """
    task, fields = Order(**json.loads(order)), json.loads(chunk)
    if answer := refusal(task):
        return answer
    _exempt_modules()
    begun = time.perf_counter()
    try:
        with code_of(task):
            rows = _rows(task, fields)
            kept = _keep(task, rows)
    except Exception as error:  # a fault of this host or its code: the client has checked the runs
        return lost(task, reason(error))
    failed = {row.run: row.error for row in rows if row.state != "done"}
    missing = len(fields["changes"]) - len(rows)
    counts = {"done": len(rows) - len(failed), "failed": failed, "missing": missing}
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


def _rows(task: Order, fields: Mapping[str, Any]) -> list[ShardRow]:
    rows: list[ShardRow] = []
    looked, longest, shared = time.monotonic(), 0.0, task.shared
    for changes in fields["changes"]:
        if time.monotonic() - looked > POLL_INTERVAL_S:
            looked = time.monotonic()
            if task.stopped or (shared and task.abandoned):
                break
        if task.too_late(longest):
            break
        item = make_item(fields["base"], changes, fields["engine"], fields["cluster"])
        rows.append(_row(item))
        longest = max(longest, rows[-1].seconds)
    return rows


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
    table = table_of(rows)
    keys = sha256("".join(row.key for row in rows).encode()).hexdigest()[:16]
    name = f"{time.time_ns():020d}-{keys}{SUFFIX}"
    if task.shared:
        write(table, Path(task.folder, SHARDS, name))
        return {}
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd")
    content = out.getvalue()
    return {"name": name, "shard": content, "sum": sha256(content).hexdigest()}


def unpack_shard(answer: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return name and content of a shard in a result. Raises `RunError` if its hash differs."""
    name, content = str(answer["name"]), bytes(answer["shard"])
    if sha256(content).hexdigest() != answer["sum"] or Path(name).name != name:
        raise RunError("a shard has changed on its way from the engine")
    return name, content

"""Dumps of PyTorch's flight recorder, made up for tests in the format of PyTorch 2.13."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Fields = dict[str, Any]
DEFAULT = "0", "default_pg"


def operation(
    number: int, name: str = "nccl:all_reduce", group: tuple[str, str] = DEFAULT, **more: Any
) -> Fields:
    """Return an entry of a dump: an operation, collective or not by its name. It has ended if `ended=True`."""
    ended = more.pop("ended", False)
    pair = name.startswith(("nccl:send", "nccl:recv"))
    return {
        "record_id": number,
        "pg_id": int(group[0]),
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": number if pair else 0,
        "op_id": number,
        "profiling_name": name,
        "time_created_ns": 1_000_000_000 + number,
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3]],
        "output_dtypes": ["Float"],
        "state": "completed" if ended else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": ended,
        "timeout_ms": 6000,
        "is_p2p": pair,
        **more,
    }


def dump(
    entries: Sequence[Fields],
    groups: Mapping[tuple[str, str], Sequence[int]],
    status: Mapping[str, tuple[int, int]] | None = None,
) -> Fields:
    """Return the dump of one rank. `status`: id of a group -> its last entered and last ended operation."""
    config = {
        name: {"name": name, "desc": text, "ranks": str(list(ranks))}
        for (name, text), ranks in groups.items()
    }
    known = {
        key: {
            "last_enqueued_collective": entered,
            "last_started_collective": -1,
            "last_completed_collective": ended,
        }
        for key, (entered, ended) in (status or {}).items()
    }
    return {
        "version": "2.10",
        "pg_config": config,
        "comm_lib_version": "2.27",
        "pg_status": known,
        "entries": list(entries),
    }


def write(folder: Path, dumps: Mapping[int, Fields], as_json: bool = False) -> Path:
    """Write the dumps of some ranks, under the names of PyTorch."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, fields in dumps.items():
        if as_json:
            (folder / f"trace_rank_{rank}.json").write_text(json.dumps(fields))
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(fields, 2))
    return folder


def four(folder: Path, as_json: bool = False) -> Path:
    """Write the dumps of four ranks, of which rank 2 had not entered the third all-reduce."""
    ranks = {DEFAULT: range(4)}
    before = [operation(1, ended=True), operation(2, ended=True)]
    dumps = {r: dump([*before, operation(3)], ranks, {"0": (3, 2)}) for r in (0, 1, 3)}
    return write(folder, dumps | {2: dump(before, ranks, {"0": (2, 2)})}, as_json)

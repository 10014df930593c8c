"""Run folders of the workbench: computing, sending and waiting times of every worker in every round."""

from pathlib import Path

import numpy as np
import pandas as pd

from workbench.analysis.recordings.sources import Source
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.plan import MASTER
from workbench.core.experiment import Description
from workbench.core.trace import records
from workbench.core.trace.layout import RUN, ledgers_path
from workbench.core.trace.trace import Trace
from workbench.mpi.engine.ledger import MergedLedgers

WAYS = ("send", "wait", "receive")  # phases of an answer between its worker and the master
ROUNDING_S = 1e-9  # max overlap of successive transfers that counts as rounding, s


def tells(path: Path) -> bool:
    """Return whether the path is the folder of a run that has ended."""
    return (path / RUN).is_file()


def read(path: Path) -> pd.DataFrame:
    """Return seconds by rank, round and phase: see `of_trace`."""
    return of_trace(Trace.load(path))


def of_trace(trace: Trace) -> pd.DataFrame:
    """Return seconds by rank, round and phase: compute, send, wait (for the port), receive, exchange, decode.

    An all-reduce of the MPI library is "exchange" as a whole, because its messages are not visible. For computing, the
    processor's seconds are returned as well.
    """
    events = trace.events
    took = events.assign(seconds=events["end"] - events["begun"])
    parts = [took[took["kind"] == kind].assign(phase=kind) for kind in ("compute", "decode")]
    exchange = (took["kind"] == "send") & (took["rank"] > 0) & (took["messages"] > 1)
    parts.append(took[exchange].assign(phase="exchange"))
    # without its code, it is unknown which rank sends to which
    named = isinstance(trace.experiment, Description)
    transits = pd.DataFrame(columns=WAYS) if named else passages(trace)
    for phase in WAYS:
        if transits[phase].any():
            parts.append(transits.assign(phase=phase, seconds=transits[phase]))
    rows = pd.concat(parts).rename(columns={"rank": "worker", "round": "step"})
    rows = rows.groupby(["worker", "step", "phase"])["seconds"].sum().reset_index()
    if (spent := None if named else processor_of(trace)) is not None:
        computed, first = (rows["phase"] == "compute") & (rows["worker"] > 0), int(trace.columns["round"][0])
        computed &= rows["step"] < first + len(spent)
        at = rows[computed]
        rows.loc[computed, "processor_seconds"] = spent[at["step"] - first, at["worker"] - 1]
    hosts = {worker + 1: host for host, workers in hosts_of(trace).items() for worker in workers}
    return rows.assign(host=[hosts.get(worker, "") for worker in rows["worker"]])


def processor_of(trace: Trace) -> Array | None:
    """Return processor seconds of every worker's computing, (rounds, workers), or None if they are not recorded.

    They are meaningful only if computing is real. Emulated computing is mostly sleep. With a device, the
    processor's time is not that of the work. A user-defined problem without a device sets ``device = "cpu"``. Older
    ledgers have only the total of a rank. This total is used if the rank exchanges messages only with the master.
    """
    e, folder = trace.experiment, trace.folder
    spec = e.problem_spec
    # the device of another user's problem is unknown
    known = "cpu" if type(spec).__module__.startswith("workbench.") else ""
    real = trace.info.get("emulate") == "nothing" and getattr(spec, "device", known) == "cpu"
    if not real or folder is None or not ledgers_path(folder).is_file():
        return None
    star = e.plan.committers == (MASTER,) and not e.plan.parent[1:].any()
    first, rounds = int(trace.columns["round"][0]), len(trace.columns["round"])
    found, none = np.zeros((rounds, e.workers)), np.zeros(0)
    try:
        ledgers = MergedLedgers(records.read_ledgers(folder)).ledgers
    except SettingError:  # the ledger is damaged, but the events are intact
        return None
    for ledger in ledgers:
        mine = ledger.get("count_worked", ledger.get("count_busy", none) if star else none)[
            first : first + rounds
        ]
        if (rank := int(ledger["rank"])) != MASTER:
            found[: len(mine), rank - 1] = 1e-6 * mine
    return found if found.size and found.all() else None


def hosts_of(trace: Trace) -> dict[str, list[int]]:
    """Return the workers, from 0, of every host, if the run was on several."""
    found: dict[str, list[int]] = {}
    for worker, host in enumerate(trace.info.get("places", ())[1:]):
        found.setdefault(host, []).append(worker)
    return found


def passages(trace: Trace) -> pd.DataFrame:
    """Return received answers, with their seconds in transit (send), waiting for the port, and being received.

    The arrival of a message at a busy port is not recorded. If transit times are neither real nor drawn, they equal the
    link's latency. Otherwise a message is assumed to be in transit for its sender's usual time, and to wait for the
    rest. On the machine's own clock, the first message of a round wakes its receiver. That takes long if others still
    compute on its core, and is not caused by the link. The first message is therefore assumed to take the usual time of
    all messages.
    """
    events, e = trace.events, trace.experiment
    sends = events[(events["kind"] == "send") & (events["rank"] > 0) & (events["messages"] == 1)]
    # only answers are sent to the parent; in a ring, ranks have none
    above = e.plan.parent[sends["rank"].to_numpy(int)]
    sends = sends[(above == sends["to"]) | (above < 0)].sort_values(["to", "begun", "end"], kind="stable")
    gone = sends["begun"] - sends["start"]
    queued = sends.groupby("to")["end"].shift() >= sends["begun"] - ROUNDING_S
    round_ = sends.groupby(["to", "round"])
    waking = (round_.cumcount() == 0) & (round_["rank"].transform("size") > 1) & is_real(trace)
    queued |= waking
    free = gone.where(~queued)
    usual = free.groupby(sends["rank"]).transform("median").mask(waking).fillna(free.median())
    if not is_real(trace) and e.delay_stream().sending(0, 1.0) is None:
        queued, usual = pd.Series(True, sends.index), pd.Series(e.link.latency, sends.index)
    send = gone.where(~queued, gone.clip(upper=usual))
    return sends.assign(send=send, wait=gone - send, receive=sends["end"] - sends["begun"])


def is_real(trace: Trace) -> bool:
    """Return whether transit times of messages are those of the machine, and not emulated or simulated."""
    return trace.info.get("emulate") in ("delays", "nothing")


SOURCE = Source(name="run", title="a run folder", tells=tells, read=read)

"""What goes to engines of ipyparallel, and what becomes of it: JSON and bytes there, JSON and truth values back."""

import json
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.base.errors import ClusterError
from workbench.core.plan import MASTER
from workbench.launch.processes import Place, is_alive
from workbench.launch.site import Holder
from workbench.trace.layout import CHECKPOINT

LOOK_EVERY = 0.02  # s


def on_engine(what: str, *args: Any) -> Any:
    """Runs on an engine: only there may MPI be started."""
    from workbench.running.ipyparallel import seat

    return getattr(seat, what)(*args)


def call(client: Any, ids: Sequence[int], what: str, *args: Any) -> list[Any]:
    """Have several engines do something at the same time; their results, in this order, come later."""
    return [client.direct_view(id).apply_async(on_engine, what, *args) for id in ids]


def answers(results: list[Any], patience: float) -> list[Any]:
    """Wait for results; raises `ClusterError` where an engine failed, or is silent for so many seconds."""
    until = time.monotonic() + patience
    while not all(result.ready() for result in results):
        if time.monotonic() > until:
            raise ClusterError(f"engines: no answer for {patience:g} s; are they busy with something else?")
        time.sleep(LOOK_EVERY)
    for result in results:
        if (error := failure(result)) is not None:
            raise ClusterError(f"engines: cannot take part in runs ({error})")
    return [result.get() for result in results]


def failure(result: Any) -> str | None:
    """What went wrong with a call that is over."""
    try:
        result.get(0)
    except Exception as error:
        name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
        return f"{name}: {text}"
    return None


def died(places: Sequence[Place]) -> str | None:
    """Who of this machine's ranks is not there any more."""
    host = socket.gethostname()
    gone = [rank for rank, place in enumerate(places) if place.host == host and not is_alive(place.pid)]
    if len(gone) == len(places) > 1:
        return f"all ranks died (rank 0: {places[MASTER]})"
    return ", ".join(f"rank {rank} ({places[rank]})" for rank in gone) + " died" if gone else None


class Calls(Holder):
    """One run's calls, one to each engine, in the order of the ranks."""

    def __init__(
        self, client: Any, ids: Sequence[int], words: dict[str, Any], arrays: bytes, places: list[Place]
    ):
        self.places, self.folder = places, words["folder"]
        table = json.dumps([[place.pid, place.host] for place in places])
        self.results = call(client, ids, "serve", json.dumps(words), arrays, table)

    @property
    def there(self) -> bool:
        """Can the run still end by itself? Not without the master, nor after a part broke off."""
        master = self.results[MASTER]
        return is_alive(self.places[MASTER].pid) and not master.ready() and self._broken() is None

    def reason(self) -> str:
        """Who died, or broke off, and what would help."""
        why = self._broken() or died(self.places) or "the master said no last word; is the disk full?"
        resume = f", and wb.resume({self.folder!r}) goes on from the last checkpoint on processes of its own"
        saved = (Path(self.folder) / CHECKPOINT).is_file()
        return f"{why}; wb.interactive opens new engines{resume if saved else ''}"

    def _broken(self) -> str | None:
        """A part that ended otherwise than by the run's end or its rank's death."""
        for rank, result in enumerate(self.results):
            if result.ready() and (error := failure(result)) and not error.startswith("EngineError"):
                return f"rank {rank} ({self.places[rank]}) broke off ({error})"
        return None

    def over(self, patience: float) -> bool:
        """Wait until all are; says whether they are."""
        until = time.monotonic() + patience
        while not (over := all(result.ready() for result in self.results)) and time.monotonic() < until:
            time.sleep(LOOK_EVERY)
        return over

    @property
    def clean(self) -> bool:
        """Are all parts over, and the ranks as good as new?"""
        return self.over(0.0) and not any(map(failure, self.results)) and all(r.get() for r in self.results)

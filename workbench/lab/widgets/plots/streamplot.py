"""Stream of rounds, drawn live: one row per worker, one column per round.

Plotly would redraw the whole heat map for every new column. Here the page stores a table of bytes, and a canvas draws
the visible part. The kernel sends new or changed columns at most ten times per second. For real runs, the current round
is drawn as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import numpy as np
import traitlets as t
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError, path_of
from workbench.core.running.run import Run, recorded
from workbench.core.trace.layout import RUN
from workbench.core.trace.stream import REDRAWN_ROUNDS, STATES, Stream
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.stream import colors, finding, order_of
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.callbacks import Pane, guarded
from workbench.lab.widgets.plots.liveplot import FINAL_STATES, POLL_INTERVAL_S
from workbench.lab.widgets.plots.player import Player
from workbench.lab.widgets.plots.plot import Followed, Stills
from workbench.mpi.running.real import attach

RESTART_GAP_S = 2.0  # if event times go back by more than this, s, their clock has restarted
MIN_REST_S = 0.03  # min pause between polls for other threads of this process, s
MAX_MESSAGE_BYTES = 2**20  # max bytes of one message


class StreamPlot(Followed):
    """Stream of a run that is under way or over. Functions of `on_pick` are called after a click, or Enter.

    >>> import workbench as wb
    >>> plot = StreamPlot(wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> plot.wait()
    True
    >>> plot.stream.grid.shape
    (5, 4, 8)
    """

    _esm = t.Unicode(script("stream")).tag(sync=True)
    shape = t.List([0, 0, 0]).tag(sync=True)  # workers, slices per round, number of the first round
    label = t.Unicode("no run yet").tag(sync=True)
    status = t.Unicode().tag(sync=True)
    styles = t.Dict({theme: colors(theme) for theme in ("light", "dark")}).tag(sync=True)
    states = t.List(list(STATES)).tag(sync=True)
    # of a finished run, for the view of blocks of rounds: workers in their order, from 0, and the finding
    order: t.List[int] = t.List().tag(sync=True)
    finding = t.Unicode().tag(sync=True)

    def __init__(self, run: Run | None = None, **traits: Any) -> None:
        super().__init__(**traits)
        self.run: Run | None = None
        self._whole = False
        self._lock = RLock()
        self._picked: list[Callable[[int, int], None]] = []
        if run is not None:
            self.show(run)

    def show(self, run: Run) -> None:
        """Show another run. Returns at once."""
        with self._lock:
            self.run, self.stream, self._new = run, Stream(run.experiment), run.watcher()
            self._whole = False  # whether the run's final trace is shown
            # s by which the run's clock, at its newest event, is ahead of this kernel's clock
            self._ahead = -np.inf
            with self.hold_sync():
                self.label = (
                    f"{run.label} on {run.engine}: what {run.experiment.workers} workers do, round by round"
                )
                self._begin(self.stream)
                self.active = run.state not in FINAL_STATES
            if not self.active:
                self._conclude()
                return
            self._thread = Thread(target=self._follow, args=(run,), name="workbench-stream", daemon=True)
            self._thread.start()

    def _begin(self, table: Stream) -> None:
        self.stream, self.shape = table, [table.workers, table.slices, table.first]
        self.order, self.finding = [], ""
        self.edition += 1

    def on_pick(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener` with the round and the worker that the user selects."""
        self._picked.append(listener)

    def trace(self) -> Trace | None:
        """Return the known part of the run: the final trace, or during the run the events of its newest rounds."""
        run = self.run
        if run is None or self._whole:
            return None if run is None else run.result()
        with self._lock:
            events, _ = self.stream.recent()
            missing = np.full(self.stream.first, np.nan)
            ends = np.concatenate([missing, self.stream.ends])
            times = {"round": np.arange(len(ends)), "time": ends}
            return Trace(run.experiment, run.engine, times, dict(events), np.zeros(0))

    def can_open(self, round: int) -> bool:
        """Return whether the events of a round are available."""
        with self._lock:
            return self._whole or self.stream.recent()[1] <= round < self.stream.first + len(self.stream)

    # ---------------------------------------------------------------- follow the run

    def _follow(self, run: Run) -> None:
        over, due = False, time.monotonic()
        while not over:
            now = time.monotonic()
            due = max(due + POLL_INTERVAL_S, now + MIN_REST_S)
            time.sleep(due - now)
            with self._lock:
                if self.run is not run:
                    return
                over = run.state in FINAL_STATES
                if over:
                    self._conclude()
                else:
                    with run.resting:
                        self._look()

    def _look(self) -> None:
        """Send new columns."""
        assert self.run is not None
        new, now = self._new(), time.monotonic()
        first = self.stream.add(new)
        if len(new["end"]) and self.run.engine != "sim":
            ahead = float(new["end"].max()) - now
            # Events arrive without delay. If the run restarts with another scheme, event times begin at 0 again.
            self._ahead = ahead if ahead < self._ahead - RESTART_GAP_S else max(self._ahead, ahead)
        self.shape = [*self.shape[:2], self.stream.first]
        timed = np.isfinite(self._ahead) and self.run.state not in FINAL_STATES
        begun = self.stream.under_way(now + self._ahead) if timed else None
        if first is not None or begun is not None:
            self._columns(len(self.stream) if first is None else first, begun)
        self.status = self.run.note

    def _conclude(self) -> None:
        """Show the trace of the finished run, which has all rounds unless the run was stopped too early."""
        assert self.run is not None
        whole = None if self.run.state == "failed" else Stream.of(self.run.result())
        if whole is not None and len(whole) >= len(self.stream):
            self._whole = True
            self._begin(whole)
            self.order, self.finding = order_of(whole).tolist(), finding(whole)
            self._columns(0)
        else:
            self._look()
            self._columns(len(self.stream))  # also removes the unfinished round from the page
        self.status, self.active = f"{self.run.state}: {self.run.note}", False

    def _columns(self, first: int, begun: NDArray[np.uint8] | None = None) -> None:
        """Send columns from an index on, in several messages, and the shares of each worker."""
        table = self.stream
        columns = table.grid[first:] if begun is None else np.concatenate([table.grid[first:], begun[None]])
        shares = np.stack([table.utilisation(), table.lateness()]).astype(np.float32).tobytes()
        step = max(1, MAX_MESSAGE_BYTES // max(1, table.workers * table.slices))
        fields = {"kind": "columns", "edition": self.edition, "rounds": first + len(columns)}
        for i in range(0, max(len(columns), 1), step):
            block = columns[i : i + step]
            head = {**fields, "first": first + i, "count": len(block)}
            self.send(head, buffers=[block.tobytes(), shares])

    def stop(self) -> None:
        """Ask the run to end after its current round."""
        if self.run is not None:
            self.run.stop()

    def on_message(self, content: dict[str, Any]) -> None:
        """Handle a message: a view requests data, or the user wants to stop or to open a round."""
        kind = content.get("kind")
        if kind == "stop":
            self.stop()
        elif kind == "from" and self.run is not None:
            with self._lock:
                self._columns(min(max(int(content["first"]), 0), len(self.stream)))
        elif kind == "pick":
            for listener in self._picked:
                listener(int(content["round"]), int(content["worker"]))


class Rounds(Pane):
    """Stream of rounds. A clicked round is shown below it, as a Gantt chart in slow motion.

    >>> import workbench as wb
    >>> rounds = Rounds(wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> rounds.look_into(3, 1)
    >>> rounds.player.drawn
    True
    """

    def __init__(self, run: Run | Trace | None = None) -> None:
        self.stream, self.player = StreamPlot(), Player()
        self.stream.on_pick(self.look_into)
        self.round = 0
        # without the player at first, because it loads plotly.js, which blocks the page for a second
        super().__init__([self.stream])
        if run is not None:
            self.show(run)

    def show(self, run: Run | Trace) -> None:
        """Show a run that is under way or over."""
        self.stream.show(recorded(run) if isinstance(run, Trace) else run)
        self.children = [self.message, self.stream]

    def _ipython_display_(self) -> None:
        """Display the stream, with static images for readers without a kernel."""
        plots = {self.stream.label: self.stream, "the round that was opened": self.player}
        Stills(plots).show(self._repr_mimebundle_())

    @guarded
    def look_into(self, round: int, worker: int = 0) -> None:
        """Open a round. During the run, only the newest ones can be opened."""
        trace = self.stream.trace()
        if trace is None:
            return
        if not self.stream.can_open(round):
            last = len(trace.columns["time"]) - 1
            why = f"before its end only rounds {max(last - REDRAWN_ROUNDS + 1, 0)} to {last} can be opened; wait for it"
            raise SettingError(f"round = {round}: {why}")
        self.round = round
        self.player.play(trace, round)
        self.children = [self.message, self.stream, self.player]
        self.report("")


def stream(run: Run | Trace | str | Path) -> Rounds:
    """Show the state of every worker, round by round, during a run or after it. A click opens a round.

    `run`: result of `wb.start`, `wb.attach` or `wb.run`, or the folder of a run. It may be over or under way.

    Raises `SettingError` if it is neither a run nor the folder of one.

    >>> import workbench as wb
    >>> rounds = stream(wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> len(rounds.stream.stream)
    5
    """
    if isinstance(run, str | Path):
        folder = path_of(run, "folder")
        return Rounds(Trace.load(folder) if (folder / RUN).is_file() else attach(folder))
    if not isinstance(run, Run | Trace):
        raise SettingError(f"run = {run!r:.60}: give what wb.start or wb.run returns, or a run folder")
    return Rounds(run)

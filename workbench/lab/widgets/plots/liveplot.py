"""Live curves of one or more runs, simulated or real, on one axis, with a Stop button.

The kernel sends new rows at most ten times per second. The page draws them once per animation frame. A view that is
opened late (a reloaded page, a second window, Voila) requests all rows. A view with a gap requests the missing rows.
Axes, scales and theme are changed in the page, without the kernel.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from threading import RLock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

import ipywidgets as w
import numpy as np
import traitlets as t
from numpy.typing import NDArray

from workbench.core.base.settings import SettingError
from workbench.core.contract.adaptive import Change
from workbench.core.running.run import Rows, Run
from workbench.core.trace.metrics import RISING_METRICS
from workbench.lab.figures.inputs import labels
from workbench.lab.figures.labels import metric_words, plotted
from workbench.lab.figures.speedups import AXES
from workbench.lab.figures.style import Theme, new_figure, palette, styles
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.plots.plot import Followed, Stills

if TYPE_CHECKING:
    from workbench.lab.batch.background import SweepRun
    from workbench.lab.widgets.plots.sweepplot import SweepPlot

POLL_INTERVAL_S = 0.1  # s between polls of the runs
MAX_RESENT_ROWS = 500  # max number of rows that are sent again because their losses were computed later
HEIGHT_PX = 480  # px
FINAL_STATES = ("finished", "stopped", "failed")
_SUMS = ("bytes", "samples")  # columns that are shown as cumulative sums


class RowBlock(NamedTuple):
    """Rows of one run from row `first` on, as they are sent to the page. Bytes and samples are cumulative."""

    first: int
    columns: Rows


class LivePlot(Followed):
    """Live plot of a metric against time, rounds, bytes or samples, for active and finished runs.

    >>> import workbench as wb
    >>> runs = wb.start_all([wb.Experiment(scheme=s, workers=12, rounds=5) for s in ("UMW", "CR")])
    >>> plot = LivePlot(runs)
    >>> plot.wait()
    True
    >>> [curve["name"] for curve in plot.curves]
    ['UMW', 'CR']
    """

    _esm = t.Unicode(script("live")).tag(sync=True)
    # name, color, dash, symbol and width of each curve
    curves: t.List[dict[str, Any]] = t.List().tag(sync=True)
    changes: t.List[dict[str, Any]] = t.List().tag(sync=True)  # changes of scheme: curve, first round, reason
    # name, state, note, share and begins of each run
    status: t.List[dict[str, Any]] = t.List().tag(sync=True)
    x = t.Enum(list(AXES), "time").tag(sync=True)
    y = t.Unicode("loss").tag(sync=True)
    scale_x = t.Enum(["auto", "linear", "log"], "auto").tag(sync=True)
    scale_y = t.Enum(["auto", "linear", "log"], "auto").tag(sync=True)
    target = t.Float(None, allow_none=True).tag(sync=True)  # value of the target line, which can be dragged
    metrics = t.Dict({"loss": metric_words("loss")}).tag(sync=True)  # name -> label
    # suffixes of metrics that increase as the model improves
    rising = t.List(list(RISING_METRICS)).tag(sync=True)
    titles = t.Dict(dict(AXES)).tag(sync=True)
    styles = t.Dict().tag(sync=True)  # theme -> plotly layout

    def __init__(self, runs: Sequence[Run] = (), **traits: Any) -> None:
        super().__init__(styles={"light": look("light"), "dark": look("dark")}, **traits)
        self.runs: list[Run] = []
        self._sent: list[_Sent] = []
        self._lock = RLock()
        self._following = False  # whether a thread will look at the shown runs again
        self._done: list[Callable[[], None]] = []
        self._gone = False  # whether it was closed
        if runs:
            self.show(runs)

    def show(self, runs: Sequence[Run], keep: bool = False) -> None:
        """Show these runs, in addition to the current ones if `keep`. Returns at once."""
        with self._lock:
            self.runs = [*(self.runs if keep else ()), *runs]
            self._sent = [_Sent(run) for run in self.runs]
            with self.hold_sync():
                self.curves = curves_of(self.runs)
                self.edition += 1
                self.active = any(run.state not in FINAL_STATES for run in self.runs)
            self._look()
            # a thread that has seen the end of earlier runs may still call `when_over`
            if self.active and not self._following:
                self._following = True
                self._thread = Thread(target=self._follow, name="workbench-live-plot", daemon=True)
                self._thread.start()
        if not self.active:
            self._tell()

    def _ipython_display_(self) -> None:
        """Display the plot, with a static image of the curves for readers without a kernel."""
        Stills({"curves": self}).show(self._repr_mimebundle_())

    def started_by(self, button: w.Button, call: Callable[[], None]) -> None:
        """Call `call` on a click on `button`. From the click until the call returns, the page shows a moving bar."""

        def clicked(_: w.Button) -> None:
            try:
                call()
            finally:
                self.send({"kind": "answered"})

        button.add_class("wb-starts").on_click(clicked)

    def stop(self) -> None:
        """Ask all runs to end after their current round."""
        for run in self.runs:
            run.stop()

    def close(self) -> None:
        """Close the plot. Its runs continue, but are no longer followed."""
        self._gone = True
        self._done.clear()
        super().close()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call `call` each time that all shown runs are over, usually in another thread."""
        self._done.append(call)

    # ---------------------------------------------------------------- follow the runs

    def _follow(self) -> None:
        over = False
        while not over and not self._gone:
            under_way = next((run for run in self.runs if run.state not in FINAL_STATES), None)
            if under_way is not None:
                # waits for the first run that is active, so that its end is shown at once
                under_way.wait(POLL_INTERVAL_S)
            if self._gone:
                return
            with self._lock:
                self._following = False  # stays so if an exception ends this thread
                over = all(run.state in FINAL_STATES for run in self.runs)
                self._look()
                self.active = self._following = not over
        self._tell()

    def _tell(self) -> None:
        for call in self._done:
            call()

    def _look(self) -> None:
        """Send new rows."""
        found = {i: update for i, sent in enumerate(self._sent) if (update := sent.news()) is not None}
        names = {name: None for update in found.values() for name in update.columns if name not in AXES}
        # traits that do not change are not sent
        self.metrics = self.metrics | {name: metric_words(name) for name in names}
        self._frame(found)
        self.changes = [_change(i, each) for i, run in enumerate(self.runs) for each in run.changes]
        if self.changes:
            self.curves = curves_of(self.runs)  # an adaptive run is named after its schemes so far
        self.status = [s.status(c["name"]) for s, c in zip(self._sent, self.curves, strict=True)]

    def _frame(self, blocks: Mapping[int, RowBlock]) -> None:
        """Send one frame, in single precision, which is enough for a screen."""
        if not blocks:
            return
        heads = [{"curve": i, "first": p.first, "columns": list(p.columns)} for i, p in blocks.items()]
        buffers = [np.stack(list(p.columns.values())).astype(np.float32).tobytes() for p in blocks.values()]
        self.send({"kind": "rows", "edition": self.edition, "parts": heads}, buffers=buffers)

    def on_message(self, content: dict[str, Any]) -> None:
        """Handle a message: a view requests missing rows, or the user wants to stop."""
        if content.get("kind") == "stop":
            self.stop()
        elif content.get("kind") == "from":
            with self._lock:
                have = [*content["rows"], *[0] * len(self._sent)]
                again = {i: sent.again(int(have[i])) for i, sent in enumerate(self._sent)}
                self._frame({i: update for i, update in again.items() if update is not None})


class _Sent:
    """State of one run's curve in the page.

    Losses may come later than their rows. The rows after the last known loss are sent again when a later one is
    known, or at the end of the run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows = 0
        self.settled = 0  # number of first rows that are not read again before the run ends
        self.known = 0  # number of known losses in the rows after these
        self.sums = dict.fromkeys(_SUMS, 0.0)  # sums over the rows that are not read again, by column
        self.holes = self.closed = False

    def news(self) -> RowBlock | None:
        """Return the rows that the page lacks, or None."""
        over = self.run.state in FINAL_STATES
        if self.closed:
            return None
        if over and self.holes:
            self.settled, self.known, self.sums, self.rows = 0, 0, dict.fromkeys(_SUMS, 0.0), -1
        self.closed = over
        rows = self.run.rows(self.settled)
        count, losses = len(rows["round"]), np.isfinite(rows["loss"])
        if self.settled + count == self.rows and losses.sum() == self.known:
            return None
        update = RowBlock(self.settled, _cumulative(rows, self.sums))
        self._settle(update, losses)
        return update if count else None

    def _settle(self, update: RowBlock, losses: NDArray[np.bool_]) -> None:
        count = len(losses)
        self.rows = update.first + count
        last = int(np.flatnonzero(losses)[-1]) + 1 if losses.any() else 0
        done = max(last, count - MAX_RESENT_ROWS)
        self.holes |= not losses[:done].all()
        if done:
            self.sums = {
                name: float(update.columns[name][done - 1]) for name in _SUMS if name in update.columns
            }
        self.settled = update.first + done
        self.known = int(losses[done:].sum())

    def again(self, first: int) -> RowBlock | None:
        """Return all rows from `first` on that were already sent."""
        rows = _cumulative(self.run.rows(), dict.fromkeys(_SUMS, 0.0))
        if first >= min(self.rows, len(rows["round"])):
            return None
        return RowBlock(first, {name: column[first : self.rows] for name, column in rows.items()})

    def status(self, name: str) -> dict[str, Any]:
        """Return the run's entry in the table under the curves."""
        run = self.run
        share: float | None = max(self.rows, 0) / run.experiment.rounds
        # until the first round, the bar is animated without a length
        begins = not share and run.state not in FINAL_STATES
        if begins and run.state == "running":  # the share is None if it is unknown
            share = run.stage
        shown = None if share is None else round(share, 3)
        note = f"{run.note}; now {changes[-1].after}" if (changes := run.changes) else run.note
        return {"name": name, "state": run.state, "note": note, "share": shown, "begins": begins}


def _cumulative(rows: Rows, sums: Mapping[str, float]) -> Rows:
    """Return the shown columns, in the order of `Trace.rounds`."""
    shown = {name: np.asarray(rows[name], dtype=float) for name in [*AXES, *plotted(rows)] if name in rows}
    added = {name: sums.get(name, 0.0) + np.cumsum(shown[name]) for name in _SUMS if name in shown}
    rounds = {"round": shown["round"] + 1.0} if "round" in shown else {}
    return {**shown, **added, **rounds}


def _change(curve: int, change: Change) -> dict[str, Any]:
    """Describe a change of scheme, with its reason in lines that fit beside a curve."""
    lines = [fill(clause, 60).replace("\n", "<br>") for clause in change.reason.split("; ")]
    text = "<br>".join([f"{change.before} → {change.after}", *lines])
    return {"curve": curve, "round": change.round, "words": text}


def curves_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return name and style of each run's curve. Runs of one scheme have one colour and different dashes."""
    pairs = zip(labels(runs), styles(run.experiment.scheme for run in runs), strict=True)
    return [{"name": name, **style._asdict(), "width": 3} for name, style in pairs]


def look(theme: Theme) -> dict[str, Any]:
    """Return the common style as a layout of plotly."""
    figure = new_figure(theme, "", height=HEIGHT_PX)
    figure.update_layout(margin={"t": 24}, font_color=palette(theme).text, legend_itemwidth=44)
    return dict(json.loads(figure.to_json())["layout"])


def watch(runs: "Run | Sequence[Run] | SweepRun") -> "LivePlot | SweepPlot":
    """Show runs live on one axis, with a Stop button, or a sweep with its results so far.

    `runs`: a run, as `wb.start` and `wb.attach` return it, a list of runs, or a sweep, as `wb.batch.start` and
    `wb.batch.attach` return it.

    >>> import workbench as wb
    >>> plot = wb.watch(wb.start(wb.Experiment(scheme="UMW", workers=4, rounds=5)))
    >>> plot.wait()
    True
    """
    shown = [runs] if isinstance(runs, Run) else runs
    if not isinstance(shown, Sequence):
        from workbench.lab.batch.background import (
            SweepRun,  # imported late, because sweeps import papermill, and plots of runs do not need it
        )
        from workbench.lab.widgets.plots.sweepplot import SweepPlot

        if isinstance(shown, SweepRun):
            return SweepPlot(shown)
    if not isinstance(shown, Sequence) or not all(isinstance(run, Run) for run in shown):
        raise SettingError(f"runs = {runs!r:.60}: give what wb.start returns, or a list of such")
    return LivePlot(shown)

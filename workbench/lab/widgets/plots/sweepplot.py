"""Live figure of a sweep: means and bands, remaining time, failures, Stop and Resume."""

from __future__ import annotations

import time
from html import escape
from threading import Event, Lock, Thread, current_thread

import ipywidgets as w
import pandas as pd
import plotly.graph_objects as go

from workbench.analysis.tables.status import read_plan
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.lab.batch.background import Progress, SweepRun, host_lines, reasons
from workbench.lab.figures.gallery.bands import abscissa, bands, group_label
from workbench.lab.figures.gallery.importance import importance
from workbench.lab.figures.gallery.parallel import parallel
from workbench.lab.figures.labels import result
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.assets import Sheet
from workbench.lab.widgets.callbacks import (
    Pane,
    button,
    guarded,
    offered,
    progress,
    row,
    seen,
    sentence,
    trust_box,
    trusted,
)
from workbench.lab.widgets.plots.plot import Plot, Stills

POLL_INTERVAL_S, MAX_READING_SHARE = 0.5, 0.2  # s between polls; max share of the time for reading the table
VIEWS = {"mean and band": "bands", "parallel coordinates": "parallel", "what decides": "importance"}
FINAL_STATES = ("done", "failed", "stopped")
MAX_SHOWN_FAILURES = 8  # max number of listed reasons of failures
MAX_GROUPS = 12  # max number of groups that are drawn together
ALL_PARAMETERS = "all that differs"


class SweepPlot(Pane):
    """Live figure of a sweep that is under way or over, in any kernel.

    >>> import tempfile, workbench as wb
    >>> plan = {"base": {"rounds": 3, "workers": 4}, "grid": {"scheme": ["UMW", "SGD"]}}
    >>> plot = SweepPlot(wb.batch.start(plan, tempfile.mkdtemp() + "/two", pictures=False))
    >>> plot.wait(300), plot.progress.counts, plot.plot.drawn
    (True, {'done': 2}, True)
    """

    def __init__(self, sweep: SweepRun) -> None:
        self.sweep = sweep
        self._choosing = False  # whether the list of groups is being renewed by this object
        self.table: Runs | None = None
        self.progress: Progress = sweep.progress()
        search = read_plan(sweep.folder).get("sweep", {}).get("search") or {}
        self._target, self._metric = search.get("target"), search.get("metric", "loss")
        self.plot = Plot()
        self.bar, self.hosts, self.failures = w.HTML(), w.HTML(), w.HTML()
        self.stop_button = button("Stop", sweep.stop, "end the sweep; what is done stays")
        self.resume_button = button("Resume", self._resume, "do what is missing, interrupted or failed")
        self.of = w.Dropdown(description="Result", options=[search.get("of", "time")])
        self.view = w.Dropdown(description="Figure", options=list(VIEWS.items()))
        self.along = w.Dropdown(description="Parameter", options=[ALL_PARAMETERS])
        self.stop_button.add_class("wb-stop")
        self.groups = w.SelectMultiple(description="Groups", options=[], rows=6)
        seen(False, self.groups)
        for menu in (self.of, self.view, self.along, self.groups):
            menu.observe(lambda _: self._draw(), "value")
        self.trust = trust_box("this sweep")
        buttons = row(self.stop_button, self.resume_button, self.trust)
        every = row(buttons, self.view, self.of, self.along, self.groups)
        super().__init__()
        self.children = [
            self.message, Sheet(), self.bar, self.hosts, every, self.note, self.plot, self.failures,
        ]  # fmt: skip
        self._over, self._read, self._took, self._lock = Event(), -1, 0.0, Lock()
        self._begin()

    def _begin(self) -> None:
        with self._lock:
            self._over.clear()
            self._thread = Thread(target=self._follow, name="workbench-sweep", daemon=True)
        self._thread.start()

    @guarded
    def _resume(self) -> None:
        self.sweep.resume(trust=trusted(self.trust))
        self.report("")
        self._begin()  # the earlier thread may have seen the end, and ends

    def _ipython_display_(self) -> None:
        """Display the widget, with a static image of the figure for readers without a kernel."""
        Stills({"what came of the sweep": self.plot}).show(self._repr_mimebundle_())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the sweep is over and drawn. Return whether it is."""
        return self._over.wait(timeout)

    def _follow(self) -> None:
        while True:
            self.look()
            with self._lock:
                if self._thread is not current_thread():
                    return
                if self.progress.state in FINAL_STATES:
                    self._over.set()
                    return
            time.sleep(POLL_INTERVAL_S)

    @guarded
    def look(self) -> None:
        """Show the current state.

        If more runs are done, read the table, unless reading has taken too much of the time.
        """
        self.progress = p = self.sweep.progress()
        share = None if p.state in ("starting", "stopping") else p.share
        self.bar.value = progress("progress of the sweep", str(p), share, p.found)
        self.hosts.value, self.failures.value = _hosts(p), _failures(p)
        over = p.state in FINAL_STATES
        self.stop_button.disabled = over or p.state == "stopping"
        self.resume_button.disabled = not over or p.state == "done"
        done, now = p.counts.get("done", 0), time.monotonic()
        if done != self._read and (over or now - self._took > 0):
            self._read = done
            self.table = self.sweep.runs(self._target, self._metric)
            self._menus(self.table)
            self._draw()
            self._took = time.monotonic() + (time.monotonic() - now) * (1 / MAX_READING_SHARE - 1)

    def _menus(self, table: Runs) -> None:
        numbers = table.done.select_dtypes("number").columns
        results = [name for name in map(str, numbers) if name not in table.settings]
        offered(self.of, list(dict.fromkeys([self.of.value, *results])))
        offered(self.along, [ALL_PARAMETERS, *(name for name in table.differing if name != "seed")])

    def _drawn(self, theme: Theme) -> go.Figure:
        assert self.table is not None
        if self.view.value == "parallel":
            return parallel(self.table, self.of.value, theme)
        if self.view.value == "importance":
            return importance(self.table, self.of.value, theme)
        means = self.table.mean(self.of.value)
        if not means.attrs["by"]:
            means = self.table.mean(self.of.value, by=["scheme"])
        x = self.along.value if self.along.value in means.attrs["by"] else None
        return bands(self._chosen(means, x), x, theme)

    def _chosen(self, means: pd.DataFrame, x: str | None) -> pd.DataFrame:
        """Return the means of the groups that the user chose, if a legend cannot hold all groups.

        Show how many are left out.
        """
        labels = group_labels(means, x)
        names = list(dict.fromkeys(labels))
        many = len(names) > MAX_GROUPS
        if list(self.groups.options) != names * many:
            self._choosing = True
            self.groups.options, self.groups.value = names * many, tuple(names[:MAX_GROUPS] * many)
            self._choosing = False
        seen(many, self.groups)
        chosen = self.groups.value or tuple(names[:MAX_GROUPS])
        text = f"{len(chosen)} of {len(names)} groups are drawn; choose others in the list" if many else ""
        self.note.value = sentence(text)
        if not many:
            return means
        kept = means[[label in chosen for label in labels]]
        kept.attrs.update(means.attrs)
        return kept

    @guarded
    def _draw(self) -> None:
        if self._choosing:
            return
        if self.view.value != "bands":
            self.note.value = ""
            seen(False, self.groups)
        self.along.layout.display = "" if self.view.value == "bands" else "none"
        if self.table is None or not len(self.table.done):
            return
        self.report("")
        try:
            self.plot.show(self._drawn)
        except SettingError as error:
            self.report(f"{result(self.of.value)[0]}: {error}")


def _hosts(p: Progress) -> str:
    """Return what each host does, if there are several, and the link to the executor's dashboard."""
    lines = [sentence(text) for text in host_lines(p)]
    if p.link.startswith(("http://", "https://")):
        lines.append(
            f'<a href="{escape(p.link)}" target="_blank" rel="noopener">dashboard of the executor</a>'
        )
    return "".join(lines)


def group_labels(means: pd.DataFrame, x: str | None) -> list[str]:
    """Return the label of every mean's group: its values of all grouping columns except the one on the axis.

    >>> means = pd.DataFrame({"scheme": ["GC", "GC"], "link.latency": [0.1, 0.2], "workers": [4, 4]})
    >>> means.attrs["by"] = ["scheme", "workers", "link.latency"]
    >>> group_labels(means, "link.latency")
    ['GC, workers=4', 'GC, workers=4']
    """
    by = means.attrs["by"]
    x = abscissa(means, by) if x is None else x
    others = [name for name in by if name != x or x == "scheme"]
    return [group_label({str(n): v for n, v in each.items()}) for each in means[others].to_dict("records")]


def _failures(p: Progress) -> str:
    found = reasons(p.failures)
    lines = [sentence(text, bad=True) for text in found[:MAX_SHOWN_FAILURES]]
    more = len(found) - MAX_SHOWN_FAILURES
    return "".join(lines) + (sentence(f"and {more} other reasons") if more > 0 else "")

"""Diagnosis of a run, a recording or a hang: culprits and mitigations.

The diagnosis is imported at first use, because it loads SciPy's statistics and pandas. That takes a second, and the
explorer's first figure needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import ipywidgets as w

from workbench.analysis.tables.about import RunNotes
from workbench.analysis.tables.rows import places
from workbench.core.experiment import Description, Experiment
from workbench.core.trace.layout import RUN
from workbench.core.trace.trace import Trace
from workbench.lab import figures
from workbench.lab.figures.inputs import labels
from workbench.lab.widgets.callbacks import button, guarded, offered, row, seen, sentence, sides
from workbench.lab.widgets.explorer.tab import Drawing, Tab, shown
from workbench.lab.widgets.explorer.tabs.running import Running
from workbench.lab.widgets.plots.plot import Plot

if TYPE_CHECKING:
    from workbench.analysis.recordings.verdict import Diagnosis


class Lateness(Tab):
    """Tab with a choice of a shown or saved run, or of a file. `look` starts the diagnosis."""

    key, title, place = "lateness", "Who is late?", 2.5

    def parts(self) -> list[w.Widget]:
        """Return the choice, the heat map with its costs, and the findings."""
        self.run = w.Dropdown(description="Run")
        self.file = w.Text(
            description="or a file",
            placeholder="CSV, trace, folder, name",
            tooltip="a table of times, a profiler's trace, a run folder, dumps of a hang, a public recording",
            continuous_update=False,
        )
        self.button = button("Look", self.start, "ask the diagnosis")
        self.map, self.costs = Plot(), Plot()
        about = (
            "Who makes the steps of a run or of a recording long, and what would help: choose one, then Look."
        )
        self.text = w.HTML(sentence(about))
        seen(False, self.map, self.costs)
        self.forecast = button("Forecast", self._forecast, "use the settings of the run, and add this scheme")
        self._advised: list[Experiment] = []
        seen(False, self.forecast)
        actions = row(self.forecast)
        return [row(self.run, self.file, self.button), self.text, actions, sides(self.map, self.costs)]

    @guarded
    def opened(self) -> None:
        """Offer the runs that exist now."""
        traces = self.desk.tab(Running).traces
        self.traces = dict(zip(labels(traces), traces, strict=True))
        self.options = {
            f"kept: {RunNotes.read(place.about).name or place.name}": place.folder
            for place in places(self.desk.folder)
            if (place.folder / RUN).is_file()
        }
        offered(self.run, [*self.traces, *self.options])

    over = opened

    def start(self) -> None:
        """Diagnose in a thread, because the diagnosis takes some seconds."""
        self.button.disabled = True
        seen(False, self.forecast)
        self.text.value = sentence("looking …")
        Thread(target=self.look, name="workbench-look", daemon=True).start()

    @guarded
    def look(self) -> None:
        """Show card, culprits and mitigations of the chosen file, or else of the chosen run."""
        from workbench.analysis import recordings  # loads pandas and SciPy's statistics, which take a second
        from workbench.analysis.recordings.diagnosis import diagnose
        from workbench.analysis.recordings.hangs.hang import Hang
        from workbench.analysis.recordings.verdict import Diagnosis

        self.report("")
        seen(False, self.map, self.costs)
        try:
            what = self._chosen()
            found = diagnose(what)
            if isinstance(found, Hang):  # has no times of steps
                self.text.value = found.card()
                return
            recording = what if isinstance(what, recordings.Recording) else recordings.load(what)
            times = ("The times of all workers", str(recording.card()))
            card = found.card([times]) if isinstance(found, Diagnosis) else sentence(str(found))
        except Exception:
            self.text.value = ""
            raise
        finally:
            self.button.disabled = False
        self.text.value = card
        self.map.show(lambda theme: figures.lateness(recording, theme))
        if isinstance(found, Diagnosis):  # results from averages have no costs to draw
            self._offer(what, found)
            self.costs.show(lambda theme: figures.culprits(found, theme))

    def _offer(self, what: Any, found: Diagnosis) -> None:
        """Offer a forecast of the scheme that would help, where the experiment is known."""
        trace = Trace.load(what) if isinstance(what, Path) and (what / RUN).is_file() else what
        known = isinstance(trace, Trace) and not isinstance(trace.experiment, Description)
        best = next((each for each in found.mitigations or () if each.scheme != "UMW"), None)
        self._advised = []
        if known and best is not None:
            e = trace.experiment
            self._advised = [e, e.replace(scheme=best.scheme, scheme_args=best.scheme_args)]
            self.forecast.description = f"Forecast {best.what}"
        seen(bool(self._advised), self.forecast)

    @guarded
    def _forecast(self) -> None:
        self.desk.controls.take(self._advised)
        self.desk.front(self.desk.tabs[0])

    def _chosen(self) -> Any:
        """Return the input of the diagnosis: a run, a pipelined job or dumps of a hang, else a recording of one job."""
        from workbench.analysis import recordings  # see `look`
        from workbench.analysis.recordings.hangs import dumps

        if text := self.file.value.strip():
            path = Path(text).expanduser()
            is_own = any(recordings.known()[source].tells(path) for source in ("bytedance", "run"))
            return path if is_own or dumps.tells(path) else recordings.load(path).job()
        if self.run.value is None:
            raise ValueError("run: there is none yet; run something, or type a file")
        return self.traces.get(self.run.value) or self.options[self.run.value]

    def figures(self) -> Mapping[str, Drawing]:
        return shown({"who was late when": self.map, "who makes the steps long": self.costs})

"""Stream of rounds: the state of every worker, during a run and after it."""

from collections.abc import Mapping

import ipywidgets as w

from workbench.core.running.run import Run
from workbench.lab.figures.gallery.stream import stream
from workbench.lab.figures.inputs import labels
from workbench.lab.widgets.callbacks import guarded, seen
from workbench.lab.widgets.explorer.tab import Drawing, Tab
from workbench.lab.widgets.explorer.tabs.running import Running
from workbench.lab.widgets.plots.streamplot import Rounds


class Stream(Tab):
    """Tab with a choice of a run, whose rounds are drawn while it runs."""

    key, title, place = "stream", "Rounds", 1.5

    def parts(self) -> list[w.Widget]:
        self.menu, self.rounds = w.Dropdown(description="Run", options=[]), Rounds()
        self.runs: list[Run] = []
        seen(False, self.rounds)
        self.menu.observe(lambda _: self._show(), "value")
        self.report("run something first: what its workers do is shown here, round by round")
        return [self.menu, self.rounds]

    @guarded
    def opened(self) -> None:
        runs = self.desk.tab(Running).plot.runs
        named = tuple(zip(labels(runs), range(len(runs)), strict=True))
        if not runs or (runs == self.runs and named == self.menu.options):
            return
        chosen = self.menu.value if runs == self.runs else len(runs) - 1
        self.runs = []  # while the menu changes, no run is shown
        self.menu.options = named
        self.menu.value = chosen
        self.runs = list(runs)
        self._show()

    over = opened

    @guarded
    def _show(self) -> None:
        if self.menu.value is None or not self.runs:
            return
        run = self.runs[self.menu.value]
        self.report("")
        seen(True, self.rounds)
        if run is not self.rounds.stream.run:
            self.rounds.show(run)

    def figures(self) -> Mapping[str, Drawing]:
        """Return the stream of a finished run."""
        run = self.rounds.stream.run
        if run is None or run.state not in ("finished", "stopped"):
            return {}
        trace = run.result()
        return {"rounds": lambda theme: stream(trace, theme=theme)}

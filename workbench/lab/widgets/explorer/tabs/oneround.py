"""One round in slow motion, with the allocation and the decode weights of its nodes."""

from collections.abc import Sequence

import ipywidgets as w

from workbench.core.contract.plan import MASTER
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.allocation import allocation
from workbench.lab.figures.gallery.weights import weights
from workbench.lab.figures.inputs import labels
from workbench.lab.figures.round_events import name
from workbench.lab.widgets.callbacks import guarded, seen, sides
from workbench.lab.widgets.explorer.tab import Drawing, Tab, shown
from workbench.lab.widgets.explorer.tabs.running import Running
from workbench.lab.widgets.forms.fields import Field, menu
from workbench.lab.widgets.forms.form import Form
from workbench.lab.widgets.plots.player import Player
from workbench.lab.widgets.plots.plot import Click, Plot


class OneRound(Tab):
    """Tab with a choice of a run, a round and a node. A click on a row of the chart also chooses the node."""

    key, title, place = "round", "One round", 2

    def parts(self) -> list[w.Widget]:
        """Return the form, the chart, and the details of the chosen node."""
        self.traces: list[Trace] = []
        self.form = Form("", [])
        self.player, self.placement, self.decoding = Player(), Plot(), Plot()
        self.form.on_change(self._changed)
        self.player.on_click(self._clicked)
        self._empty()
        return [self.form, sides(self.player, w.VBox([self.placement, self.decoding]))]

    def _empty(self) -> None:
        seen(False, self.player, self.placement, self.decoding)
        self.report("run something first: the rounds of a run are shown here")

    @guarded
    def over(self) -> None:
        self.traces = self.desk.tab(Running).traces
        if self.traces:
            self._show()
        else:
            self._empty()

    def _show(self) -> None:
        names, before = labels(self.traces), self.form.values
        place = min(int(before.get("run") or len(names)), len(names) - 1)
        values = {"run": str(place), "round": before.get("round", "0"), "node": "0"}
        self.form.reshape(self._lines(names, place), values)
        self._draw()

    def _lines(self, names: Sequence[str], place: int) -> list[Field]:
        trace, which = self.traces[place], {str(i): name for i, name in enumerate(names)}
        rounds, ranks = len(trace.columns["time"]), trace.experiment.plan.ranks
        about = "0 is the master; a click on the chart chooses it too"
        return [
            menu("run", "run", which),
            Field("round", "round", "from 0", kind="whole", default="0", low=0, high=rounds - 1),
            Field("node", "node", about, kind="whole", default="0", low=0, high=ranks - 1),
        ]

    @property
    def trace(self) -> Trace:
        """Chosen run."""
        return self.traces[int(self.form.values["run"])]

    def _changed(self, names: set[str]) -> None:
        if "run" in names:
            self._show()
        elif "round" in names:
            self._draw()
        else:
            self._detail()

    @guarded
    def _draw(self) -> None:
        round = self._number("round", len(self.trace.columns["time"]), "the run has rounds")
        if round is not None:
            self.player.play(self.trace, round)
            self._detail()

    def _number(self, field: str, count: int, there: str) -> int | None:
        """Return the number in a field, or None if it is not from 0 to count - 1; mark the field then."""
        number = self.form.shown()[field]
        good = isinstance(number, int) and 0 <= number < count
        text = self.form.values[field][:20]
        self.form.blame({} if good else {field: f"{field} = {text}: {there} 0 to {count - 1}"})
        return number if good else None

    @guarded
    def _clicked(self, click: Click) -> None:
        if isinstance(click.get("y"), int | float):
            self.form.fill({"node": str(round(click["y"]))})
            self._detail()

    @guarded
    def _detail(self) -> None:
        """Show the samples that the chosen node stores, and its decode weights."""
        self.report("")
        trace, plan = self.trace, self.trace.experiment.plan
        seen(False, self.placement, self.decoding)
        at = self._number("round", len(trace.columns["time"]), "the run has rounds")
        rank = None if at is None else self._number("node", plan.ranks, "there are ranks")
        if at is None or rank is None:
            return
        if rank != MASTER:
            self.placement.show(lambda theme: allocation(trace.experiment, rank, at, theme=theme))
        if plan.children[rank] or rank == MASTER:
            self.decoding.show(lambda theme: weights(trace, at, rank, theme=theme))

    def figures(self) -> dict[str, Drawing]:
        rank = name(int(self.form.values.get("node", "0")))
        plots = {"one round": self.player, f"what {rank} holds": self.placement}
        return shown({**plots, f"decode weights of {rank}": self.decoding})

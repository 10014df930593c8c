"""One round in slow motion, and what its nodes hold and decode."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets as w

from workbench.core.plan import MASTER
from workbench.figures import held, weights
from workbench.figures.inputs import labels
from workbench.figures.moments import name
from workbench.trace.trace import Trace
from workbench.widgets.forms.fields import Field
from workbench.widgets.forms.form import Form
from workbench.widgets.guard import Pane, guarded, sides
from workbench.widgets.plots.player import Player
from workbench.widgets.plots.plot import Click, Plot


class OneRound(Pane):
    """Choose a run, a round and a node; a click on the chart chooses the node as well."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.form = Form("", [])
        self.player, self.parts, self.decoding = Player(), Plot(), Plot()
        self.form.on_change(self._changed)
        self.player.on_click(self._clicked)
        super().__init__([self.form, sides(self.player, w.VBox([self.parts, self.decoding]))])
        self._empty()

    def _empty(self) -> None:
        for plot in (self.player, self.parts, self.decoding):
            plot.layout.display = "none"
        self.tell("run something first: the rounds of a run are shown here")

    def show(self, traces: Sequence[Trace]) -> None:
        """Offer these runs."""
        self.traces = [trace for trace in traces if len(trace.columns["time"])]
        if not self.traces:
            self._empty()
            return
        names = labels(self.traces)
        place = min(int(self.form.values.get("run") or len(names)), len(names) - 1)
        self.form.reshape(
            self._lines(names, place),
            {"run": str(place), "round": self.form.values.get("round", "0"), "node": "0"},
        )
        self._draw()

    def _lines(self, names: Sequence[str], place: int) -> list[Field]:
        trace = self.traces[place]
        rounds, ranks = len(trace.columns["time"]), trace.experiment.plan.ranks
        return [
            Field(
                "run",
                "run",
                "",
                kind="choice",
                choices=tuple(map(str, range(len(names)))),
                words=tuple(names),
            ),
            Field("round", "round", "from 0", kind="whole", default="0", low=0, high=rounds - 1),
            Field(
                "node",
                "node",
                "0 is the master; a click on the chart chooses it too",
                kind="whole",
                default="0",
                low=0,
                high=ranks - 1,
            ),
        ]

    @property
    def trace(self) -> Trace:
        """The chosen run."""
        return self.traces[int(self.form.values["run"])]

    def _changed(self, names: set[str]) -> None:
        if "run" in names:
            self.show(self.traces)
        elif "round" in names:
            self._draw()
        else:
            self._detail()

    @guarded
    def _draw(self) -> None:
        round, rounds = self.form.values["round"], len(self.trace.columns["time"])
        good = round.isdigit() and int(round) < rounds
        self.form.blame({} if good else {"round": f"round = {round}: the run has rounds 0 to {rounds - 1}"})
        if good:
            self.player.layout.display = ""
            self.player.play(self.trace, int(round))
            self._detail()

    @guarded
    def _clicked(self, click: Click) -> None:
        if isinstance(click.get("y"), int | float):
            self.form.fill({"node": str(round(click["y"]))})
            self._detail()

    @guarded
    def _detail(self) -> None:
        """What the chosen node holds, and how it decodes."""
        self.tell("")
        trace, node, number = self.trace, self.form.values["node"], self.form.values["round"]
        plan = trace.experiment.plan
        good = node.isdigit() and int(node) < plan.ranks
        self.form.blame({} if good else {"node": f"node = {node}: there are ranks 0 to {plan.ranks - 1}"})
        for plot in (self.parts, self.decoding):
            plot.layout.display = "none"
        if not good or not number.isdigit():
            return
        rank, at = int(node), int(number)
        if rank != MASTER:
            self.parts.layout.display = ""
            self.parts.show(lambda theme: held(trace.experiment, rank, at, theme=theme))
        if plan.children[rank] or rank == MASTER:
            self.decoding.show(lambda theme: weights(trace, at, rank, theme=theme))
            self.decoding.layout.display = ""

    def figures(self) -> dict[str, Plot]:
        """Plots that can be kept, by name."""
        if not self.traces:
            return {}
        rank = int(self.form.values["node"])
        shown = {
            "one round": self.player,
            f"what {name(rank)} holds": self.parts,
            f"decode weights of {name(rank)}": self.decoding,
        }
        return {words: plot for words, plot in shown.items() if plot.layout.display != "none"}

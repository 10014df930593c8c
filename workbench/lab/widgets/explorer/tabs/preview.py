"""Preview: forecast round times and costs of all schemes, allocation of one, and the phase diagram."""

from collections.abc import Callable
from functools import partial
from threading import Lock, Thread

import ipywidgets as w

from workbench.core.contract.plan import MASTER
from workbench.core.experiment import Experiment
from workbench.lab.figures.gallery.allocation import allocation
from workbench.lab.figures.gallery.code import code
from workbench.lab.figures.gallery.phase_diagram import phase_diagram
from workbench.lab.figures.gallery.round_times import round_times
from workbench.lab.figures.gallery.tree import tree
from workbench.lab.figures.scheme_grid import SchemeGrid
from workbench.lab.widgets.callbacks import guarded, row, seen, sentence, sides
from workbench.lab.widgets.explorer.ahead import LATENCIES, Ahead, alphas_of, forecast_grid, look_ahead
from workbench.lab.widgets.explorer.tab import Drawing, Tab, shown
from workbench.lab.widgets.explorer.tables import costs, finding
from workbench.lab.widgets.forms.setup import Setup, Shape, with_shape
from workbench.lab.widgets.plots.forecasts import Forecasts
from workbench.lab.widgets.plots.plot import Click, Plot, low

Situation = tuple[Setup, Shape, int]  # settings, their shape, number of workers
VIEWS = {"Who holds what": tree, "Code": code}
TIMES, PHASE_DIAGRAM = "Time per round", "Fastest scheme"
MAX_HEIGHT_PX = 520  # max height of a picture, px, so that a small screen shows all of it


class Preview(Tab):
    """Pictures that follow the settings as fast as a slider moves."""

    key, title, place = "preview", "Before a run", 0

    def parts(self) -> list[w.Widget]:
        """Return the forecasts, and a picture of one scheme or the phase diagram. Narrow pages show one at a time."""
        self.ahead: list[Ahead] = []
        self.times, self.picture, self.detail = Forecasts(), Plot(), Plot()
        views = [TIMES, *VIEWS, PHASE_DIAGRAM]
        self.view = w.ToggleButtons(options=views, description="Figure", style={"button_width": "auto"})
        self._picture = next(iter(VIEWS))  # the last chosen view other than the forecasts
        self.entry = w.Dropdown(description="Scheme")
        seen(False, self.detail)
        self._map = _Map(self._show_map, self.report)
        self._wanted, self._naming = "", False
        self.view.observe(lambda _: self._changed_view(), "value")
        self.entry.observe(lambda _: self._choose(), "value")
        self.picture.on_click(self._clicked)
        self.finding = w.HTML()
        self._forecast = w.VBox([self.finding, self.times])
        self._beside = w.VBox([self.picture, self.detail])
        for widget in (self._beside, self.entry):
            widget.add_class("wb-behind")
        return [row(self.view, self.entry), self.note, sides(self._forecast, self._beside)]

    @guarded
    def changed(self) -> None:
        """Forecast the experiments, and show why others cannot be used."""
        self.ahead = look_ahead(self.desk.experiments, known=self.ahead)
        reasons = dict.fromkeys(filter(None, (self.desk.reason, *(a.reason for a in self.ahead))))
        self.report("; ".join(reasons))
        self.desk.refuse([(a.experiment, a.reason) for a in self.ahead if a.reason])
        known = {a.name: a.forecast for a in self.ahead if a.forecast is not None}
        seen(bool(known), self.times)
        if known:
            self.times.show(costs(self.ahead), TIMES, lambda theme: round_times(known, theme=theme))
        self.finding.value = finding(self.ahead)
        self._name_entries()
        self._draw()

    @property
    def _situation(self) -> Situation | None:
        """Settings of the phase diagram, or None without valid settings."""
        setup, shape = self.desk.setup, self.desk.controls.shapes.shape()
        return (setup, shape, self.desk.experiments[0].workers) if setup and shape else None

    def _name_entries(self) -> None:
        """Offer the schemes. The user's choice is selected again once the chosen scheme is valid."""
        names = [a.name for a in self.ahead]
        if list(self.entry.options) != names:
            self._naming = True
            self.entry.options = names
            self.entry.value = self._wanted if self._wanted in names else next(reversed(names), None)
            self._naming = False

    def _choose(self) -> None:
        if not self._naming:
            self._wanted = self.entry.value
            self._draw()

    def _changed_view(self) -> None:
        """Show the chosen view. On narrow pages, the other view is then hidden."""
        behind, before = self._beside, self._forecast
        if self.view.value != TIMES:
            behind, before, self._picture = before, behind, self.view.value
            seen(False, self.detail)
            self._draw()
        behind.add_class("wb-behind")
        before.remove_class("wb-behind")
        (self.entry.add_class if self.view.value == TIMES else self.entry.remove_class)("wb-behind")

    @guarded
    def _draw(self) -> None:
        """Draw the chosen picture of the chosen scheme, or the phase diagram."""
        who_wins, chosen = self._picture == PHASE_DIAGRAM, self._chosen()
        seen(not who_wins, self.entry)
        if who_wins and PHASE_DIAGRAM not in self.picture.label:
            seen(False, self.picture)  # until the diagram is there
        self._map.wanted(self._situation if who_wins else None)
        if not who_wins and chosen is not None:
            draw = VIEWS[self._picture]
            self.picture.show(lambda theme: low(draw(chosen, theme=theme), MAX_HEIGHT_PX))

    def _chosen(self) -> Experiment | None:
        index = self.entry.index
        return None if index is None or index >= len(self.ahead) else self.ahead[index].experiment

    # ---------------------------------------------------------------- the phase diagram

    def _show_map(self, found: SchemeGrid | None, share: float) -> None:
        if found is None:
            self.note.value = sentence(f"looking for the fastest scheme: {100 * share:.0f} %")
            return
        self.note.value = ""
        if self._picture == PHASE_DIAGRAM and (here := self._situation) is not None:
            setup, shape, _ = here
            latency = float((setup.common.get("link") or {}).get("latency", 0.0))
            self.picture.show(
                lambda theme: low(phase_diagram(found, shape.alpha, latency, theme=theme), MAX_HEIGHT_PX)
            )

    @guarded
    def _clicked(self, click: Click) -> None:
        chosen, here = self._chosen(), self._situation
        if self._picture == PHASE_DIAGRAM:
            if here is not None and isinstance(click.get("x"), int | float) and click["trace"] == "fastest":
                stragglers = alphas_of(here[1])[round(click["y"])]
                self.desk.controls.set_alpha_and_latency(stragglers, LATENCIES[round(click["x"])])
        elif chosen is not None and click["trace"] in ("nodes", "data held"):
            self.show_part(chosen, int(click["about" if click["trace"] == "nodes" else "y"]))

    def show_part(self, experiment: Experiment, rank: int) -> None:
        """Show the samples that one worker stores, below the picture."""
        seen(False, self.detail)
        if rank > MASTER:
            self.detail.show(lambda theme: allocation(experiment, rank, theme=theme))

    def figures(self) -> dict[str, Drawing]:
        plots = {"forecast of round times": self.times, self._picture: self.picture}
        return shown({**plots, "what a worker holds": self.detail})


class _Map:
    """Thread that computes the phase diagram. A newer setting cancels the work on an older one.

    If only stragglers and latency differ from the last setting, the last diagram is used again.
    """

    def __init__(
        self, on_result: Callable[[SchemeGrid | None, float], None], report: Callable[[str], None]
    ) -> None:
        self.on_result, self.report, self.lock = on_result, report, Lock()
        self.newest: object = None
        self.thread: Thread | None = None
        self.last: tuple[object, SchemeGrid] | None = None

    def wanted(self, setting: Situation | None) -> None:
        """Compute the diagram of this setting, or nothing for None."""
        with self.lock:
            self.newest = token = object()
            if setting is None:
                return
            key = _whatever_the_place(setting)
            if self.last is not None and self.last[0] == key:
                self.on_result(self.last[1], 1.0)
                return
            work = partial(self._work, setting, key, token)
            self.thread = Thread(target=work, name="workbench-map", daemon=True)
            self.thread.start()

    @guarded
    def _work(self, setting: Situation, key: object, token: object) -> None:
        last = -1.0

        def progress(share: float) -> bool:
            nonlocal last
            if self.newest is not token:
                return False
            if share - last >= 0.1:
                self.on_result(None, share)
                last = share
            return True

        found = forecast_grid(*setting, progress)
        if found is not None and self.newest is token and found.names:
            self.last = key, found
            self.on_result(found, 1.0)


def _whatever_the_place(setting: Situation) -> object:
    """Return a hashable setting without stragglers and latency, which are the axes of the diagram."""
    setup, shape, workers = setting
    bare = with_shape(setup, shape.replace(stragglers=0), workers)
    link = {**(bare.common.get("link") or {}), "latency": 0.0}
    return bare.entries, {**bare.common, "link": link}, shape.children

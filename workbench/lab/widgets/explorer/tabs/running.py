"""Runs: start, watch and stop them, and compare their times to a target."""

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite

import ipywidgets as w
import plotly.graph_objects as go

from workbench.analysis.planning.quantities import quantity_of
from workbench.core.base.text import duration
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.running.run import Run
from workbench.core.running.start import ENGINES, start_all
from workbench.core.trace.metrics import is_goal
from workbench.core.trace.trace import Trace
from workbench.lab.figures.gallery.convergence import convergence
from workbench.lab.figures.speedups import common_target, speedups
from workbench.lab.figures.style import Theme
from workbench.lab.widgets.callbacks import button, guarded, offered, row, seen, sentence
from workbench.lab.widgets.explorer.tab import Drawing, Tab
from workbench.lab.widgets.explorer.tables import speeds
from workbench.lab.widgets.forms.summaries import MAX_VALUE
from workbench.lab.widgets.plots.liveplot import LivePlot
from workbench.mpi import clusters

ANSWERS_PER_S = 25_000  # approximate number of workers' answers that are simulated per second
# time of a simulation, and time of a round, above which the user is asked before the start, s
DOUBTED_S, DOUBTED_ROUND_S = 1800.0, 86_400.0
DOUBT_ROUNDS = 3  # number of rounds of the forecast for this question
ENGINE_LABELS = {"sim": "virtual clock (simulated)", "mpi": "real processes (MPI)"}


class Running(Tab):
    """Tab with the live plot. The button Run is in the explorer's header."""

    key, title, place = "running", "Run", 1

    def parts(self) -> list[w.Widget]:
        """Return the menus, the plot, messages about the runs, and the speedups."""
        self.add_class("wb-watching")  # for the layout, since :has(.wb-live) makes changes of the page slower
        self.plot = LivePlot()
        self._started: Sequence[Run] = ()
        self.plot.when_over(self._over)
        self.plot.observe(lambda _: self._speeds(), "target")
        self.plot.observe(lambda _: self._aim(), "y")
        engines = [(ENGINE_LABELS.get(name, name), name) for name in ENGINES]
        self.engine = w.Dropdown(options=engines, description="Engine")
        self.cluster = w.Dropdown(options=[], description="Cluster")
        self.keep = w.Checkbox(description="keep the curves that are drawn", value=False, indent=False)
        self.button = w.Button(description="Run", button_style="primary", tooltip="run all schemes")
        self.table = w.HTML()
        self.doubt = w.HTML()
        anyway = button("Run anyway", self._anyway), button("Cancel", lambda: seen(False, self.question))
        self.question = row(self.doubt, *anyway).add_class("wb-banner")
        seen(False, self.question)
        self.engine.observe(lambda _: self._clusters(), "value")
        self.plot.started_by(self.button, self.start)
        self._clusters()
        return [row(self.engine, self.cluster, self.keep), self.note, self.question, self.plot, self.table]

    def _clusters(self) -> None:
        """Offer the clusters of the engine. A simulation needs none."""
        found = clusters_of(self.engine.value)
        offered(self.cluster, found)
        seen(bool(found), self.cluster)

    def changed(self) -> None:
        """Enable Run, or show why the settings cannot be run."""
        reason = self.desk.reason
        self.button.disabled = bool(reason)
        self.note.value = sentence(f"cannot run: {reason}" if reason else "", bad=True)

    @guarded
    def start(self) -> None:
        """Start all schemes with the chosen engine. If they would take very long, ask the user first."""
        self.report("")
        text = doubt(self.desk.experiments, self.engine.value)
        self.doubt.value = sentence(text)
        seen(bool(text), self.question)
        if not text:
            self.begin()

    @guarded
    def _anyway(self) -> None:
        seen(False, self.question)
        self.begin()

    def begin(self) -> None:
        """Start all schemes without asking the user."""
        options = {"cluster": self.cluster.value} if self.cluster.value else {}
        self._started = start_all(self.desk.experiments, self.engine.value, **options)
        self.show(self._started)

    def close(self) -> None:
        """Close the tab, and stop its simulations. Real runs continue, and are listed."""
        for run in self._started:
            if run.engine == "sim":
                run.stop()
        super().close()

    def show(self, runs: Sequence[Run], keep: bool = False) -> None:
        """Show runs. With `keep`, or if the user chose to keep them, the runs that are drawn already stay."""
        self.table.value, keep = "", keep or self.keep.value
        if not keep:
            self.plot.target = None
        self.plot.show(runs, keep=keep)

    @property
    def traces(self) -> list[Trace]:
        """Traces of the runs that have ended and have rounds."""
        return _traces(self.plot.runs)

    @property
    def made(self) -> list[Trace]:
        """Traces of the shown runs that were started here. Others were recorded before."""
        return _traces([run for run in self.plot.runs if run in self._started])

    @guarded
    def _over(self) -> None:
        self._warn()
        if self.plot.target is None:
            self._aim()
        self._speeds()
        self.desk.over()

    @guarded
    def _aim(self) -> None:
        """Set the target to a value that all runs reach. Metrics that are neither a loss nor a score have no target."""
        traces, metric = self._measured, self.plot.y
        found = common_target(traces, metric) if traces and is_goal(metric) else float("nan")
        self.plot.target = found if isfinite(found) else None

    def _warn(self) -> None:
        texts = [f"{run.label}: {text}" for run in self.plot.runs for text in run.warnings]
        failed = [run for run in self.plot.runs if run.error is not None]
        texts += [f"{run.label}: {run.error}" for run in failed]
        self.desk.refuse([(run.experiment, str(run.error)) for run in failed])
        self.report("; ".join(dict.fromkeys(texts)))

    @property
    def _measured(self) -> list[Trace]:
        """Traces that have the plotted metric."""
        return [trace for trace in self.traces if self.plot.y in trace.columns]

    @guarded
    def _speeds(self) -> None:
        target, traces, self.table.value = self.plot.target, self._measured, ""
        if traces and target is not None:
            self.table.value = speeds(speedups(traces, target, self.plot.y), target)

    def figures(self) -> dict[str, Drawing]:
        return {"convergence": self._drawn} if self.traces else {}

    def _drawn(self, theme: Theme) -> go.Figure | None:
        traces, plot = self._measured, self.plot
        return convergence(traces, plot.y, plot.x, plot.target, theme) if traces else None


def _traces(runs: Sequence[Run]) -> list[Trace]:
    """Return the traces of the runs that are over and have rounds."""
    ended = [run for run in runs if run.state in ("finished", "stopped")]
    return [trace for trace in (run.result() for run in ended) if len(trace.columns["time"])]


def clusters_of(engine: str) -> list[str]:
    """Return the names of the clusters on which an engine can run: none for simulations."""
    return [] if engine == "sim" else clusters.names()


def doubt(experiments: Sequence[Experiment], engine: str) -> str:
    """Return a question about runs that would take very long; "" for others.

    >>> e = Experiment(scheme="UMW", workers=4, rounds=100)
    >>> doubt([e], "sim"), doubt([e.replace(rounds=10**8)], "sim")
    ('', 'rounds = 100,000,000: computing 400,000,000 answers takes about 4 h 26 min; run that?')
    >>> doubt([e.replace(delays={"kind": "constant", "shift": 1e30})], "mpi")
    'delays: a round of UMW takes about 8e+24 years, and there are 100; run that?'
    """
    answers = sum(e.rounds * e.workers for e in experiments)
    if (seconds := answers / ANSWERS_PER_S) > DOUBTED_S:
        most = max(e.rounds for e in experiments)
        return f"rounds = {most:,}: computing {answers:,} answers takes about {duration(seconds)}; run that?"
    for e in experiments:
        with suppress(ValueError, OSError):  # no question for an experiment without a forecast
            found = forecast(e.replace(faults=()), rounds=DOUBT_ROUNDS).mean
            if found > DOUBTED_ROUND_S or (engine != "sim" and found * e.rounds > DOUBTED_S):
                text = f"a round of {e.scheme} takes about {quantity_of(min(found, MAX_VALUE))}"
                return f"delays: {text}, and there are {e.rounds}; run that?"
    return ""

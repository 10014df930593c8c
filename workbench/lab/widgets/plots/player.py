"""One round in slow motion: a Gantt chart with play, step and scrub."""

import traitlets as t

from workbench.core.trace.trace import Trace
from workbench.lab.figures import gantt, moments
from workbench.lab.figures.round_events import events_of
from workbench.lab.figures.style import time_unit
from workbench.lab.widgets.assets import script
from workbench.lab.widgets.plots.plot import Plot, low

MAX_HEIGHT_PX = 660  # px, so that the buttons and the whole chart are visible together


class Player(Plot):
    """Gantt chart of a round. A click on a row passes its rank to the callback, as `y` of `on_click`.

    >>> import workbench as wb
    >>> player = Player()
    >>> player.play(wb.run(wb.Experiment(scheme="UMW", workers=3, rounds=2)), round=1)
    >>> player.moments[-1][1]
    'the master has the gradient'
    """

    _esm = t.Unicode(script("plot", "player")).tag(sync=True)
    moments: t.List[list[object]] = t.List().tag(sync=True)  # [time (s), text] in order
    end = t.Float(0.0).tag(sync=True)  # s
    unit = t.Float(1.0).tag(sync=True)  # factor by which seconds are multiplied for the axis
    unit_name = t.Unicode("s").tag(sync=True)

    def play(self, trace: Trace, round: int) -> None:
        """Show a round. Raises `SettingError` if the trace has no such round, or its events were not kept."""
        r = events_of(trace, round)
        unit = time_unit(r.duration)
        with self.hold_sync():
            self.show(lambda theme: low(gantt(trace, round, theme=theme), MAX_HEIGHT_PX))
            self.end, self.unit, self.unit_name = r.duration, unit.scale, unit.name
            self.moments = [[moment.time, moment.text] for moment in moments(trace, round)]

"""The figure of parallel coordinates: one axis per setting, and one line per run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tests.support.every_figure import runs
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.lab.figures import parallel


def test_parallel_has_a_line_for_every_finished_run() -> None:
    table = runs()
    axes = {axis.label: axis for axis in parallel(table).data[0].dimensions}
    scheme = axes["scheme"]
    assert [scheme.ticktext[code] for code in scheme["values"]] == table.done["scheme"].tolist()
    assert list(axes["time of the whole run (s)"]["values"]) == pytest.approx(table.done["time"].tolist())
    assert list(axes["seed"]["values"]) == table.done["seed"].tolist()


def test_parallel_axes_of_many_decades_are_logarithmic() -> None:
    rates = np.geomspace(1e-3, 1e5, 18)
    rows = {"state": "done", "delays.rate": rates, "workers": [2, 3] * 9, "time": np.linspace(1, 2, 18)}
    rate, workers, time = parallel(Runs(pd.DataFrame(rows), ("delays.rate", "workers"))).data[0].dimensions
    np.testing.assert_allclose(rate["values"], np.log10(rates))
    assert list(rate.ticktext[:2]) == ["0.001", "0.01"]
    assert list(workers.ticktext) == ["2", "3"]
    assert rate.ticktext[-1] == "1e5"  # as fields and summaries show it
    assert time.tickvals is None


def test_parallel_axes_have_units() -> None:
    rows = {"state": "done", "link.latency": [0.1, 0.2], "link.downloads": [True, "?"], "batch": [5, None]}
    table = Runs(pd.DataFrame(rows | {"time": [1.0, 2.0]}), ("link.latency", "link.downloads", "batch"))
    labels = [axis.label for axis in parallel(table).data[0].dimensions[:-1]]
    assert labels == ["latency of the links (s)", "downloads of the links", "batch (samples)"]


def test_parallel_refuses_an_unknown_result() -> None:
    with pytest.raises(SettingError, match=r"of = 'auc': is not a column of numbers"):
        parallel(runs(), "auc")


def test_parallel_has_room_for_the_texts_of_its_first_axis() -> None:
    names = ["GC", "a scheme of a user with a long name"] * 4
    rows = {"state": "done", "scheme": names, "workers": [2, 3, 4, 5] * 2, "time": np.linspace(1, 2, 8)}
    figure = parallel(Runs(pd.DataFrame(rows), ("scheme", "workers")))
    first, texts = figure.layout.margin.l, figure.data[0].dimensions[0].ticktext
    assert max(map(len, texts)) <= 28
    assert len(set(texts)) == 2
    assert first >= 0.58 * 13 * max(map(len, texts))

"""The figure of parallel coordinates: one axis per setting, and one line per run."""

from __future__ import annotations

import pytest

from tests.support.every_figure import runs
from workbench.core.base.settings import SettingError
from workbench.lab.figures import parallel


def test_parallel_has_a_line_for_every_finished_run() -> None:
    table = runs()
    axes = {axis.label: axis for axis in parallel(table).data[0].dimensions}
    scheme = axes["scheme"]
    assert [scheme.ticktext[code] for code in scheme["values"]] == table.done["scheme"].tolist()
    assert list(axes["time of the whole run"]["values"]) == pytest.approx(table.done["time"].tolist())
    assert list(axes["seed"]["values"]) == table.done["seed"].tolist()


def test_parallel_refuses_an_unknown_result() -> None:
    with pytest.raises(SettingError, match=r"of = 'auc': is not a column of numbers"):
        parallel(runs(), "auc")

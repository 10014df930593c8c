"""The figure of the importance of settings: its numbers are those of the table."""

from __future__ import annotations

import pandas as pd
import pytest

from tests.support.every_figure import runs
from workbench.analysis.tables.importance import importance as shares
from workbench.analysis.tables.table import Runs
from workbench.core.base.settings import SettingError
from workbench.lab.figures import importance


def test_importance_figure_is_sorted() -> None:
    bars = importance(runs()).data[0]
    table = shares(runs())
    assert list(bars.x) == pytest.approx(table["share"].tolist())
    assert bars.y[0] == "scheme"


def test_importance_figure_refuses_runs_without_differences() -> None:
    same = pd.DataFrame({"state": "done", "workers": [4] * 3, "time": [1.0, 2.0, 3.0]})
    with pytest.raises(SettingError, match="no setting but the seed differs"):
        importance(Runs(same, ("workers",)))


def test_importance_figure_refuses_a_result_that_never_varies() -> None:
    same = pd.DataFrame({"state": "done", "workers": [4, 5, 6], "rounds": [5.0] * 3})
    with pytest.raises(SettingError, match=r"of = 'rounds': is 5 in all 3 runs; choose a result that varies"):
        importance(Runs(same, ("workers",)), "rounds")

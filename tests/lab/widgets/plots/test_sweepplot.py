"""The live figure of a sweep: the results in its folder, in three figures with buttons."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.analysis.tables.status import Status, write_plan
from workbench.core.trace.layout import TRACE
from workbench.lab.widgets import SweepPlot, watch
from workbench.lab.widgets.assets import Sheet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a sweep's folder with six finished runs, a failed one, and a missing one."""
    names = []
    for scheme in ("UMW", "GC", "SGD"):
        for seed in range(2):
            names.append(f"{scheme}{seed}")
            e = wb.Experiment(scheme=scheme, workers=4, rounds=4, seed=seed, problem="unit")
            wb.run(e).save(tmp_path / names[-1] / TRACE)
            Status("done", e.model_dump(mode="json")).write(tmp_path / names[-1])
    (tmp_path / "broken").mkdir()
    Status("failed", error="QuorumLost: <round> 1").write(tmp_path / "broken")
    write_plan(tmp_path, {}, [*names, "broken", "missing"], total=8)
    return tmp_path


def test_sweep_plot_shows_results_and_failures(folder: Path) -> None:
    plot = watch(wb.batch.attach(folder))
    assert isinstance(plot, SweepPlot)
    assert plot.wait(60)
    assert "failed: 6 of 8 runs done, 1 failed" in plot.bar.value
    assert 'value="0.8750"' in plot.bar.value
    assert "broken: QuorumLost: &lt;round&gt; 1" in plot.failures.value
    assert (plot.stop_button.disabled, plot.resume_button.disabled) == (True, False)
    assert plot.plot.label == "Time of the whole run by scheme"
    assert plot.table is not None
    assert plot.plot.current() == wb.figures.bands(wb.runs(folder).mean("time"))
    plot.view.value = "parallel"
    assert plot.plot.label == "Time of the whole run of 6 runs"
    plot.view.value = "importance"
    assert plot.plot.label == "What decides the time of the whole run"
    plot.of.value = "messages"
    assert plot.plot.label == "What decides the messages"
    assert plot.message.value == ""
    assert any(isinstance(part, Sheet) for part in plot.children)  # Enter presses its buttons

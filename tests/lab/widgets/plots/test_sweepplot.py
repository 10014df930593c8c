"""The live figure of a sweep: the results in its folder, in three figures with buttons."""

from __future__ import annotations

from pathlib import Path
from threading import Event

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


def test_sweep_plot_groups_failures_by_their_reason(folder: Path) -> None:
    for number in range(3):
        (folder / f"dead{number}").mkdir()
        Status("failed", error="QuorumLost: round 7").write(folder / f"dead{number}")
    write_plan(folder, {}, [path.name for path in folder.iterdir() if path.is_dir()], total=10)
    plot = watch(wb.batch.attach(folder))
    assert isinstance(plot, SweepPlot)
    assert plot.wait(60)
    assert plot.failures.value.count("QuorumLost: round 7") == 1
    assert "3 runs, such as dead" in plot.failures.value
    assert plot.failures.value.count('role="alert"') == 2


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


def test_sweep_plot_follows_a_sweep_that_is_resumed_while_its_end_is_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, seen, gates = SweepPlot.look, [Event(), Event()], [Event(), Event()]
    turns = iter(zip(seen, gates, strict=True))

    def slow(plot: SweepPlot) -> None:
        look(plot)
        now, gate = next(turns)
        now.set()
        gate.wait(60)

    monkeypatch.setattr(SweepPlot, "look", slow)
    plot = SweepPlot(wb.batch.attach(folder))
    monkeypatch.setattr(plot.sweep, "resume", lambda trust: None)
    first = plot._thread
    assert seen[0].wait(60)
    plot.resume_button.click()
    gates[0].set()
    first.join(60)
    assert seen[1].wait(60)
    assert not plot._over.is_set()
    gates[1].set()
    assert plot.wait(60)


def test_sweep_plot_offers_groups_that_a_legend_cannot_hold(tmp_path: Path) -> None:
    """Schemes without the swept parameter are drawn too."""
    names = []
    for workers in range(3, 12):
        for scheme, args in (("UMW", {}), ("GC", {"stragglers": 1}), ("GC", {"stragglers": 2})):
            names.append(f"{scheme}{workers}{args.get('stragglers', '')}")
            e = wb.Experiment(scheme=scheme, scheme_args=args, workers=workers, rounds=2, problem="unit")
            wb.run(e).save(tmp_path / names[-1] / TRACE)
            Status("done", e.model_dump(mode="json")).write(tmp_path / names[-1])
    write_plan(tmp_path, {}, names, total=len(names))
    plot = watch(wb.batch.attach(tmp_path))
    assert plot.wait(60)
    plot.along.value = "scheme_args.stragglers"
    assert len(plot.groups.options) == 18
    assert "12 of 18 groups are drawn" in plot.note.value
    assert plot.note in plot.children
    plot.groups.value = ("UMW, workers=3", "GC, workers=3")
    figure = plot.plot.current()
    assert figure is not None
    curves = {line.name: list(line.x) for line in figure.data if line.showlegend}
    assert curves == {"UMW, workers=3": [1, 2], "GC, workers=3": [1, 2]}
    plot.along.value = "workers"
    assert (plot.groups.layout.display, plot.note.value) == ("none", "")

"""Discovery of figures by file name."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from inspect import unwrap
from pathlib import Path

import pytest

import workbench as wb
from workbench.lab import figures
from workbench.lab.figures import gallery

HERE = Path(__file__).parent
NEW = """import plotly.graph_objects as go
from workbench.lab.figures.style import Theme, new_figure


def loads(plan: object, theme: Theme = "light") -> go.Figure:
    return new_figure(theme, "Loads")
"""


def test_figure_in_a_new_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AttributeError, match="no attribute 'loads'"):
        figures.loads  # noqa: B018
    (tmp_path / "loads.py").write_text(NEW)
    monkeypatch.setattr(gallery, "__path__", [*gallery.__path__, str(tmp_path)])
    try:
        assert "loads" in dir(figures)
        assert figures.loads(None).layout.title.text == "Loads"
        from workbench.lab.figures import loads

        assert loads is figures.loads
    finally:
        sys.modules.pop("workbench.lab.figures.gallery.loads", None)
        vars(figures).pop("loads", None)
        vars(gallery).pop("loads", None)


@pytest.mark.parametrize("name", figures.names())
def test_figure_file_function_and_test_share_a_name(name: str) -> None:
    assert unwrap(getattr(figures, name)) is getattr(
        import_module(f"workbench.lab.figures.gallery.{name}"), name
    )
    assert name in dir(figures)
    assert name in figures.__all__
    assert (HERE / "gallery" / f"test_{name}.py").is_file()


def test_figure_is_loaded_lazily() -> None:
    """One figure needs the planner's libraries. Loading another figure does not import them."""
    program = (
        "import sys, workbench.lab.figures as f; before = set(sys.modules); f.code;"
        " print([m for m in before if m.startswith('workbench.lab.figures.gallery.')], 'scipy.optimize' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert result.strip() == "[] False"


@pytest.fixture(scope="module")
def changed() -> list[wb.Trace]:
    """Return a run without adaptive selection, and adaptive ones that change the scheme."""
    delays = {"kind": "constant", "shift": 1e-3}
    e = wb.Experiment(scheme="GC", workers=4, rounds=6, problem_args={"samples": 40}, delays=delays)
    return wb.compare([e, *(e.replace(adaptive=True, seed=seed) for seed in range(2))])


def test_figures_name_the_schemes_of_adaptive_runs(changed: list[wb.Trace]) -> None:
    name = "adaptive (GC, then UMW)"
    assert [change.scheme for change in changed[1].changes] == ["UMW"]
    for draw in (figures.gantt, figures.stream):
        assert draw(changed[1]).layout.title.text.startswith(f"{name}, 4 workers")
    assert name in repr(changed[1])


def test_legends_of_adaptive_runs_are_distinct(changed: list[wb.Trace]) -> None:
    name = "adaptive (GC, then UMW)"
    lines = [line.name for line in figures.convergence(changed).data if line.mode != "markers"]
    assert lines == ["GC", f"{name} seed=0", f"{name} seed=1"]
    assert [box.name for box in figures.round_times(changed).data if box.type == "box"] == lines
    # the runs of a mean may have changed to different schemes
    means = [line.name for line in figures.convergence_bands(changed).data]
    assert means == ["GC (1 run)", "adaptive (GC) (2 runs)"]

"""The output and the files of `make run`."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from choreographer.browsers.chromium import Chromium

import workbench as wb
from workbench.lab.batch import quickstart


@pytest.fixture(scope="module")
def traces() -> list[wb.Trace]:
    common = {
        "problem": "softmax",
        "problem_args": {"data": "iris"},
        "rounds": 30,
        "link": {"bandwidth": 1e5},
    }
    return wb.compare(wb.tune(wb.baselines(3, 2, 1, **common)))


def test_quickstart_summary_equals_the_table(traces: list[wb.Trace]) -> None:
    target = quickstart.common_target(traces)
    assert target == max(t.rounds["loss"].min() for t in traces)
    table = quickstart.summary(traces).set_index("scheme")
    assert list(table.index) == ["UMW", "GC", "RAR", "SGD", "CR"]
    for t in traces:
        first = int(np.argmax(t.rounds["loss"].to_numpy() <= target))
        assert table.loc[t.label, "seconds"] == t.rounds["time"][first]
        assert table.loc[t.label, "times_as_long"] == pytest.approx(
            table.loc[t.label, "seconds"] / table.loc["CR", "seconds"]
        )


def test_quickstart_names_the_winner(traces: list[wb.Trace]) -> None:
    story = quickstart.story(traces)
    seconds = quickstart.summary(traces).set_index("scheme")["seconds"]
    assert f"first to do so is **{seconds.idxmin()}**" in story
    assert all(f"**{t.label}**: {t.columns['time'][-1] / 30:.3g} s a round" in story for t in traces)


def test_quickstart_keep_writes_folders_and_a_page(traces: list[wb.Trace], tmp_path: Path) -> None:
    paths = quickstart.keep(traces, tmp_path)
    assert all(path.exists() for path in paths)
    assert (tmp_path / "convergence.html").stat().st_size > 1e6  # contains all scripts
    assert wb.Trace.load(tmp_path / "CR").same(traces[-1])


def test_quickstart_keep_without_a_browser(
    traces: list[wb.Trace],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr(Chromium, "find_browser", classmethod(lambda cls, **options: None))
    assert quickstart.keep(traces, tmp_path)[-1] == tmp_path / "convergence.html"
    assert "no Chrome or Chromium was found" in capsys.readouterr().err


def test_quickstart_tuning_never_increases_the_time(traces: list[wb.Trace]) -> None:
    for t in traces:
        plain = t.experiment.replace(optimiser_args={})
        assert t.rounds["loss"].iloc[-1] <= wb.run(plain).rounds["loss"].iloc[-1] * (1 + 1e-9)


def test_quickstart_winner_is_independent_of_the_grid(traces: list[wb.Trace]) -> None:
    """No value from a quarter to four times the chosen one has a final loss that is 3 % lower."""
    for t in (traces[0], traces[3]):
        for times in np.geomspace(0.25, 4.0, 33):
            args = {**t.experiment.optimiser_args}
            name = "step" if "step" in args else "c1"
            other = t.experiment.replace(optimiser_args={**args, name: args[name] * times})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # some of these steps diverge
                end = wb.run(other).rounds["loss"].iloc[-1]
            assert not end < 0.97 * t.rounds["loss"].iloc[-1]

"""Sources of the schemes, and the marks of schemes that were written from a paper's abstract alone."""

from __future__ import annotations

import workbench as wb
from workbench.core.contract.scheme import ABSTRACT_NOTE, mark_note, marked

ABSTRACTS = {"AdaptiveK", "DBW", "ErasureHead", "LAGC", "SGC"}


def test_schemes_that_follow_abstracts_are_marked() -> None:
    names = wb.schemes.names()
    assert {name for name in names if marked(name, name) != name} == ABSTRACTS
    assert mark_note(set(names) - ABSTRACTS) == ""
    assert all(mark_note(["UMW", name]) == ABSTRACT_NOTE for name in ABSTRACTS)


def test_legends_of_compared_runs_have_the_mark_and_its_note() -> None:
    traces = [wb.run(wb.Experiment(scheme=name, workers=6, rounds=5)) for name in ("UMW", "LAGC")]
    figure = wb.figures.convergence(traces)
    assert sorted(curve.name for curve in figure.data) == ["LAGC†", "UMW"]
    assert ABSTRACT_NOTE in figure.layout.title.subtitle.text + figure.layout.title.text
    assert wb.figures.speedups(traces, target=1.0)["follows"].tolist() == ["paper", "abstract"]

"""Notes of a plan."""

from __future__ import annotations

from tests.support.plans import advise, measured


def test_plan_notes_what_was_not_measured() -> None:
    profile = measured(6, "straggle", 1e-3, 4e5)
    advice = advise(profile, workers=12, schemes=["UMW"], problem="logistic")
    assert any("measured with 6 workers, planned for 12" in note for note in advice.notes)
    assert any("measured with problem least_squares" in note for note in advice.notes)

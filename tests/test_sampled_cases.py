"""What a commit draws: so many cases, the same for all workers; over some commits every case has its turn."""

from __future__ import annotations

import pytest

from tests.support.sampled_cases import drawn, few, turn


def is_slow(marks: object) -> bool:
    return "slow" in {mark.name for mark in marks}  # type: ignore[attr-defined]


def test_all_but_so_many_are_slow() -> None:
    cases = [("a", 1), ("b", 2), pytest.param("c", 3, id="third", marks=pytest.mark.mpi), ("d", 4)]
    found = few("some", 1, cases)
    assert sum(not hasattr(case, "marks") or not is_slow(case.marks) for case in found) == 1
    assert [case.values if hasattr(case, "values") else case for case in found] == [
        ("a", 1), ("b", 2), ("c", 3), ("d", 4),
    ]  # fmt: skip
    assert found[2].id == "third"
    assert "mpi" in {mark.name for mark in found[2].marks}
    assert few("one argument", 0, "x")[0].values == ("x",)


def test_of_several_tests_so_many_have_their_turn() -> None:
    def made(place: int) -> object:
        @turn("tests", place, 3, 2)
        def test() -> None: ...

        return test

    assert sum(is_slow(getattr(made(place), "pytestmark", ())) for place in range(3)) == 1


def test_every_case_has_its_turn_at_some_commit() -> None:
    assert drawn("some", 9, 2) == drawn("some", 9, 2)
    assert set().union(*(drawn("some", 9, 2, seed=f"{commit}") for commit in range(60))) == set(range(9))

"""`--rotate SEED`: the sample of expensive cases depends on the seed only, and a failed run prints the seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sampled_cases import rotated, sampled_cases, sampled_indices, sampled_test

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from tests.support.sampled_cases import sampled_cases

@pytest.mark.parametrize("case", sampled_cases("some", 2, range(9)))
def test_case(case): assert False
"""


def is_slow(marks: object) -> bool:
    return "slow" in {mark.name for mark in marks}  # type: ignore[attr-defined]


def test_sampled_cases_marks_all_but_count_as_slow() -> None:
    cases = [("a", 1), ("b", 2), pytest.param("c", 3, id="third", marks=pytest.mark.mpi), ("d", 4)]
    found = sampled_cases("some", 1, cases)
    assert sum(not hasattr(case, "marks") or not is_slow(case.marks) for case in found) == 1
    assert [case.values if hasattr(case, "values") else case for case in found] == [
        ("a", 1), ("b", 2), ("c", 3), ("d", 4),
    ]  # fmt: skip
    assert found[2].id == "third"
    assert "mpi" in {mark.name for mark in found[2].marks}
    assert sampled_cases("one argument", 0, "x")[0].values == ("x",)


def test_sampled_test_marks_all_but_count_as_slow() -> None:
    def made(index: int) -> object:
        @sampled_test("tests", index, 3, 2)
        def test() -> None: ...

        return test

    assert sum(is_slow(getattr(made(index), "pytestmark", ())) for index in range(3)) == 1


def test_sampled_indices_are_a_function_of_the_seed_and_reach_every_case() -> None:
    assert sampled_indices("some", 9, 2, seed=5) == sampled_indices("some", 9, 2, seed=5)
    assert set().union(*(sampled_indices("some", 9, 2, seed=seed) for seed in range(60))) == set(range(9))


@rotated
@pytest.mark.parametrize(("seed", "workers"), [(None, "0"), (20261125, "2")])
def test_rotate_is_printed_and_repeats_the_failures(
    seed: int | None, workers: str, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers =\n    slow: long")
    option = [] if seed is None else ["--rotate", str(seed)]
    run = pytester.runpytest_subprocess("-m", "not slow", "-n", workers, *option)
    run.stdout.fnmatch_lines([f"sampled cases: --rotate {seed or 0}", "*repeat*", f"*--rotate {seed or 0}*"])
    wanted = sampled_indices("some", 9, 2, seed=seed or 0)
    for index in range(9):
        assert (f"test_case[{index}]" in run.stdout.str()) == (index in wanted)


def test_rotate_refuses_what_is_not_a_number(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    run = pytester.runpytest_subprocess("--rotate", "today")
    run.stderr.fnmatch_lines(["*--rotate: invalid int value: 'today'*"])

"""The repetition of failed tests in `make test`, also for a test that xdist renamed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sampled_cases import rotated

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_passes(): pass

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("where", ["user@host"])
def test_fails(where): assert False
"""


@rotated
def test_last_failed_finds_a_test_of_a_group(pytester: pytest.Pytester) -> None:
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(TESTS)
    first = pytester.runpytest_subprocess("-n", "1", "--dist", "loadgroup")
    first.assert_outcomes(passed=1, failed=1)
    again = pytester.runpytest_subprocess("--last-failed", "--last-failed-no-failures", "none")
    again.assert_outcomes(failed=1)

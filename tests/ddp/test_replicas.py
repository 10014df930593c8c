"""Disagreement of replicas: the worst sample, two ranks and the cause are named."""

from __future__ import annotations

from workbench.ddp.replicas import disagreement, first_pass, unequal_states


def test_equal_reports_agree_up_to_rounding() -> None:
    reports = {r: first_pass([4, 9], ["a", "b"], [1.0, 2.0 + 1e-5 * r], ["Dropout '1'"]) for r in range(3)}
    assert disagreement(reports) is None
    assert disagreement(reports, tolerance=1e-7) is not None


def test_worst_sample_is_named() -> None:
    reports = {
        0: first_pass([1, 2, 3], [], [1.0, 1.0, 1.0], []),
        2: first_pass([2, 3, 4], [], [1.1, 3.0, 7.0], ["BatchNorm1d '3'"]),
    }
    found = disagreement(reports)
    assert found is not None
    assert found.startswith(
        "sample 3: its loss is 1 and 3, though its inputs are equal, between ranks 0 and 2"
    )
    assert "BatchNorm1d '3': depends on" in found


def test_not_a_number_is_a_difference() -> None:
    reports = {0: first_pass([1], [], [float("nan")], []), 1: first_pass([1], [], [1.0], [])}
    assert "the forward pass depends" in str(disagreement(reports))


def test_samples_of_one_rank_are_not_compared() -> None:
    assert disagreement({0: first_pass([1], ["a"], [1.0], []), 1: first_pass([2], ["b"], [9.0], [])}) is None


def test_unequal_states_count_the_tensors() -> None:
    states = {0: {"w": "1", "b": "1"}, 1: {"w": "2", "b": "2"}}
    assert str(unequal_states(states)).startswith("w and 1 more: differs between ranks 0 and 1")
    assert unequal_states({3: {"w": "1"}}) is None

"""Configurations of an adaptive run, and the samples that a change moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.core.base.settings import SettingError
from workbench.core.contract.configurations import Configuration, StoredParts, configurations_of, reason_fixed
from workbench.core.contract.plan import Plan
from workbench.core.contract.scheme import Scheme
from workbench.core.running.precision import lost_digits


def samples_of(plan: Plan) -> list[set[int]]:
    """Return the samples that each worker holds."""
    cuts = plan.bounds.tolist()
    return [{s for part in work.parts for s in range(cuts[part], cuts[part + 1])} for work in plan.work[1:]]


CASES = [(4, 8), (6, 23), (6, 60)]
OWN = [Configuration("GC", {"stragglers": s}, n, samples) for n, samples in CASES for s in (0, 2)]
EVERY = {str(own) + str(own.samples): (own, configurations_of(own, "least_squares")) for own in OWN}


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_stored_parts_missing_are_those_not_held(data: st.DataObject) -> None:
    own, ways = data.draw(st.sampled_from(list(EVERY.values())))
    held, has = StoredParts(own.plan), samples_of(own.plan)
    for way in data.draw(st.lists(st.sampled_from(ways), max_size=4)):
        wanted = samples_of(way.plan)
        lacks = [len(want - have) for want, have in zip(wanted, has, strict=True)]
        assert held.missing(way.plan).tolist() == lacks
        held.add(way.plan)
        has = [have | want for have, want in zip(has, wanted, strict=True)]


def test_configurations_of_an_exact_scheme_are_exact() -> None:
    own = Configuration("GC", {"stragglers": 2}, 6, 60)
    ways = configurations_of(own, "least_squares")
    assert ways[0] is own
    assert {"UMW", "GC", "CR"} <= {way.name for way in ways}
    assert all(way.scheme.is_exact and not reason_fixed(way.scheme, way.plan) for way in ways)
    assert not any(StoredParts(own.plan).missing(Configuration("UMW", {}, 6, 60).plan))


def test_configurations_keep_the_digits_of_messages() -> None:
    """Messages of four bytes have fewer digits, so a run refuses some codes that messages of eight bytes allow."""
    own = Configuration("GC", {"stragglers": 2}, 12, 240)
    single = configurations_of(own, "least_squares", width=4)
    more = [way for way in configurations_of(own, "least_squares") if way not in single]
    assert more
    for way in single:
        lost_digits(way.scheme, 12, 4)
    for way in more:
        with pytest.raises(SettingError, match="least_digits"):
            lost_digits(way.scheme, 12, 4)


def test_configurations_of_an_inexact_scheme_change_parameters_only() -> None:
    waits = configurations_of(Configuration("SGD", {"stragglers": 2}, 8, 80), "least_squares")
    assert {way.name for way in waits} == {"SGD"}
    assert len(waits) > 2
    deadlines = configurations_of(
        Configuration("FRC", {"replication": 2, "deadline": 1.0}, 8, 80), "least_squares"
    )
    assert sorted(way.parameters["deadline"] for way in deadlines) == [0.5, 0.7, 1.0, 1.4, 2.0]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ASGD", "rounds overlap"),
        ("M-SGC", "rounds overlap"),
        ("CADA", "values of earlier rounds"),
        ("AdaptiveK", "values of earlier rounds"),
        ("DropCompute", "by the clock"),
        ("RAR", "no master"),
        ("UC-MMC", "several times a round"),
    ],
)
def test_reason_fixed_explains_why_a_scheme_cannot_change(name: str, why: str) -> None:
    scheme = Scheme.catalogue.get_class(name)()
    assert why in reason_fixed(scheme, scheme.plan(12, 240))


def test_configuration_bounds_are_independent_of_loads() -> None:
    held = StoredParts(Configuration("UMW", {}, 3, 10).plan)
    assert held.missing(Configuration("GC", {"stragglers": 2}, 3, 10).plan).tolist() == [6, 7, 7]
    assert np.array_equal(held.bounds, [0, 4, 7, 10])

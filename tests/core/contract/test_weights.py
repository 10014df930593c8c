"""Weights over (part, version): their algebra equals that of a dense table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workbench.core.base.types import Array
from workbench.core.contract.plan import Work, uncoded_plan
from workbench.core.contract.programs import plain_sum, weighted_sum
from workbench.core.contract.protocol import Compute
from workbench.core.contract.weights import SparseWeights, VersionedWeights
from workbench.core.engine.virtual.arithmetic import Coefficients

VERSIONS, PARTS = 4, 3
TABLES = st.lists(
    arrays(float, (VERSIONS, PARTS), elements=st.integers(-3, 3).map(float)), min_size=1, max_size=20
)


def mixed(table: Array) -> SparseWeights:
    keys = np.flatnonzero(table)
    return SparseWeights(keys, table.ravel()[keys])


def dense(value: SparseWeights) -> Array:
    table, stale = np.zeros((VERSIONS, PARTS)), VersionedWeights.of(value, PARTS)
    np.add.at(table, (stale.versions, stale.parts), stale.weights)
    return table


@given(TABLES)
def test_versioned_weights_add_like_a_table(tables: list[Array]) -> None:
    weights = np.arange(1.0, 1 + len(tables))
    np.testing.assert_allclose(dense(plain_sum([mixed(t) for t in tables])), np.sum(tables, axis=0))
    wanted = np.einsum("k,kvp->vp", weights, np.array(tables))
    np.testing.assert_allclose(dense(weighted_sum(weights, [mixed(t) for t in tables])), wanted)


@given(TABLES, st.sampled_from([0.5, np.float64(2.0), 3]))
def test_versioned_weights_scale_from_either_side(tables: list[Array], factor: float) -> None:
    first, last = mixed(tables[0]), mixed(tables[-1])
    found = (0 - -factor * first - last / 2 - 0) * factor
    np.testing.assert_allclose(dense(found), (factor * tables[0] - tables[-1] / 2) * factor)


@given(TABLES)
def test_versioned_weights_drop_zeros_and_sum_over_versions(tables: list[Array]) -> None:
    stale = VersionedWeights.of(mixed(tables[0]), PARTS)
    assert (stale.weights != 0).all()
    np.testing.assert_allclose(stale.total(PARTS), tables[0].sum(axis=0))
    rows = {version: dict(weighted) for weighted, version in _asked(stale)}
    assert rows == {v: {p: w for p, w in enumerate(row) if w} for v, row in enumerate(tables[0]) if row.any()}


def _asked(stale: object) -> list[tuple[object, int]]:
    asked: list[tuple[object, int]] = []

    def note(weighted: object, version: int) -> Array:
        asked.append((weighted, version))
        return np.zeros(1)

    stale.gradient(note)  # type: ignore[attr-defined]
    return asked


@given(
    arrays(float, (2, PARTS), elements=st.integers(-1, 1).map(float)),
    st.tuples(*[st.integers(0, VERSIONS - 1)] * 2),
)
def test_versioned_weights_of_several_models(rows: Array, models: tuple[int, int]) -> None:
    plan = replace(uncoded_plan(PARTS, PARTS), versions=VERSIONS)
    work = Work(np.arange(PARTS), rows, PARTS)
    for asked, each in ((models, models), (models[0], [models[0]] * len(rows))):  # also for a single model
        for value, row, model in zip(
            Coefficients(plan).compute(1, Compute(work, asked, 0)), rows, each, strict=True
        ):
            np.testing.assert_array_equal(dense(value), row * (np.arange(VERSIONS) == model)[:, None])
            assert value.weights.all()

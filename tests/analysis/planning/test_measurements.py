"""Recorded times that are replayed: which loads are replayed together, and in which blocks of rounds."""

from __future__ import annotations

import numpy as np

import workbench as wb
from workbench.analysis.planning.delay_fits import judged
from workbench.analysis.planning.measurements import block_rounds, pooled
from workbench.analysis.planning.measuring import simulated
from workbench.core.base.types import Array


def spells(rounds: int, seed: int, leave: float = 0.1) -> Array:
    """Return times of six workers that are slow together, for ten rounds on average, (rounds, workers)."""
    rng, slow, rows = np.random.default_rng(seed), False, []
    for _ in range(rounds):
        slow = rng.random() > leave if slow else rng.random() < 0.04
        rows.append((4.0 if slow else 1.0) * rng.lognormal(0.0, 0.1, 6))
    return np.array(rows)


def rows(times: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, times.tolist()))


def test_loads_are_replayed_together_if_only_their_spells_differ() -> None:
    """Sixty rounds have few spells. Most loads with more or fewer of them, by chance, count as similar."""
    found = list[Array]()
    for seed in range(4):
        times = [spells(60, 4 * seed + k) for k in range(4)]
        found += pooled(tuple(rows(t) for t in times), (1.0,) * 4)
        np.testing.assert_array_equal(found[-2][:60], times[2])
    assert np.mean([len(each) for each in found]) > 0.8 * 240


def test_loads_of_other_distributions_are_replayed_apart() -> None:
    """Times relative to each load's typical time are compared, so a longer load alone is not a difference."""
    rng = np.random.default_rng(0)
    alike = [rng.lognormal(0.0, 0.1, (60, 6)), 7 * rng.lognormal(0.0, 0.1, (60, 6))]
    other = rng.lognormal(0.0, 0.6, (60, 6))
    found = pooled(tuple(rows(t) for t in [*alike, other]), (1.0, 7.0, 1.0))
    assert [len(each) for each in found] == [120, 120, 60]


def test_a_model_that_fits_few_of_the_loads_is_not_used() -> None:
    """A model can fit sixty rounds of long spells by chance. If most loads have no fit, all are replayed."""
    rng = np.random.default_rng(0)
    plain = [1 + rng.exponential(0.5, (60, 12)) for _ in range(3)]
    odd = [np.hstack([spells(60, k), rng.lognormal(0, 0.3, 6) * spells(60, k + 9)]) for k in range(3)]
    found, kinds = judged([plain[0], *odd])
    assert [best.fits for best, *_ in found] == [True, False, False, False]
    assert kinds == [None] * 4
    assert judged([*plain, odd[0]])[1][3] is None
    assert None not in judged([*plain, odd[0]])[1][:3]


def test_blocks_are_as_long_as_rounds_are_correlated() -> None:
    """Independent rounds have blocks of the root of their number, and long spells have longer ones."""
    rng = np.random.default_rng(1)
    assert block_rounds(rng.lognormal(0.0, 0.5, (400, 6))) == 20
    assert (block_rounds(np.ones((9, 2))), block_rounds(np.ones((1, 2)))) == (3, 1)
    lengths = [block_rounds(spells(400, 1, leave)) for leave in (0.1, 0.03)]
    assert 20 < lengths[0] < lengths[1] <= 134


def test_a_note_states_how_many_independent_blocks_are_replayed() -> None:
    """Forty rounds of six loads with independent rounds are blocks of about the root of 240."""
    found = simulated(wb.Experiment(scheme="UMW", workers=6), rounds=40)
    assert found.notes() == []
    unfit = tuple((one.replace(distance=0.5), *rest) for one, *rest in found.delay_models)
    (note,) = found.replace(delay_models=unfit).notes()
    rounds = len(found.relative[found.main])
    assert f"{rounds} rounds in about {rounds // round(rounds**0.5)} independent blocks" in note

"""ErasureHead, SGC and BGC: their differences from the codes of paper 4."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import workbench as wb
from tests.support.approximate_runs import N, Q, came, experiment, missed, simulated
from workbench.core.schemes.approximate_relatives import scattered, sparse

EXPONENTIAL = {"kind": "shifted_exponential", "shift": 1.0, "rate": 1.0}


def test_erasure_head_stops_once_every_group_has_answered() -> None:
    e = experiment("ErasureHead", 60, deadline=3.0, delays=EXPONENTIAL)
    line = simulated(e)[0]
    seconds = np.diff(line.times, prepend=0.0)
    covered = came(line, N).reshape(60, 4, 2).any(axis=2)
    complete = covered.all(axis=1)
    assert 5 < complete.sum() < 55
    np.testing.assert_array_equal(seconds[~complete].round(9), 3.0)
    assert (seconds[complete] < 3.0).all()
    np.testing.assert_allclose(line.residuals, 2 * (~covered).sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(wb.forecast(e).seconds, seconds)


def test_erasure_head_counts_answers_or_groups() -> None:
    """The authors' program ends a round with k answers or with one of every group, whichever is first."""
    line = simulated(experiment("ErasureHead", 60, wait_for=5, delays=EXPONENTIAL))[0]
    assert set(line.messages) == {4, 5}
    four = np.array(line.messages) == 4
    assert np.array(line.residuals)[four] == pytest.approx(0, abs=1e-12)


def test_erasure_head_is_no_later_than_frc_and_as_good() -> None:
    delays = {"kind": "pareto", "shift": 1.0, "shape": 1.5}
    for end in ({"deadline": 4.0}, {"wait_for": 6}):
        frc = simulated(experiment("FRC", 60, delays=delays, **end))[0]
        head = simulated(experiment("ErasureHead", 60, delays=delays, **end))[0]
        np.testing.assert_allclose(frc.residuals, head.residuals, atol=1e-12)
        assert (np.diff(head.times, prepend=0) <= np.diff(frc.times, prepend=0) + 1e-9).all()
        assert head.times[-1] < 0.9 * frc.times[-1]


def test_sgc_is_unbiased() -> None:
    """The mean of the decoding vector over all sets of k of n survivors is all ones, for any drawn code."""
    for seed, k in ((0, 5), (3, 2), (7, 8)):
        scheme = wb.schemes.get("SGC")(replication=3, wait_for=k, code_seed=seed, decoding="sum")
        code = scheme.build_code(N)
        sets = [scheme.weigh(code, answered) for answered in combinations(range(N), k)]
        sums = [
            w.weights @ code.matrix[list(a)] for w, a in zip(sets, combinations(range(N), k), strict=True)
        ]
        np.testing.assert_allclose(np.mean(sums, axis=0), 1.0, atol=1e-12)
        assert np.mean([w.residual for w in sets]) == pytest.approx(np.mean((np.array(sums) - 1) ** 2) * N)


def test_sgc_with_a_deadline_is_unbiased() -> None:
    """No worker is permanently slow here, so each answer is late with the same probability."""
    delays = {"kind": "heterogeneous", "shift": 1.0, "slow": 0.0, "active_straggles": Q}
    e = experiment("SGC", 3000, deadline=9.0, straggling=Q, delays=delays, decoding="sum")
    weights = [np.ones(N) if w is None else w for w in simulated(e)[1].weights]
    spread = np.std(weights, axis=0) / 3000**0.5
    assert (np.abs(np.mean(weights, axis=0) - 1) < 4.5 * spread).all()
    assert (spread > 0).all()


@pytest.mark.parametrize(("scheme", "decoding"), [("SGC", "sum"), ("BGC", "one_step")])
def test_bgc_optimal_decoding_is_never_worse_than_the_plain_sum(scheme: str, decoding: str) -> None:
    own = {"straggling": Q, "active_straggles": 0.2, "shuffle": "random", "replication": 3, "deadline": 9.0}
    own |= {} if scheme == "SGC" else {"straggling": None}
    own = {name: value for name, value in own.items() if value is not None}
    plain, best = (simulated(experiment(scheme, 60, decoding=d, **own))[0] for d in (decoding, "optimal"))
    assert (np.array(best.residuals) <= np.array(plain.residuals) + 1e-9).all()
    assert np.mean(best.residuals) < 0.8 * np.mean(plain.residuals)


def test_scattered_parts_have_equal_copies_and_balanced_pairs() -> None:
    held = np.array([scattered(12, 4, 1.0, seed).matrix for seed in range(300)])
    assert (held.sum(axis=1) == 4).all()
    together = np.einsum("cwi,cwj->ij", held, held) / 300
    pairs = together[~np.eye(12, dtype=bool)]
    assert pairs.mean() == pytest.approx(4 * 4 / 12, abs=0.02)
    assert np.abs(pairs - 16 / 12).max() < 0.25


def test_bgc_one_step_weights_are_the_papers() -> None:
    """The weight is n/(r s) for each of r answers (Charles et al. 2017, section 2)."""
    scheme = wb.schemes.get("BGC")(replication=3, decoding="one_step")
    weights, residual = scheme.weigh(scheme.build_code(N), (1, 4, 6, 7))
    np.testing.assert_allclose(weights, N / (4 * 3))
    miss = weights @ scheme.build_code(N).matrix[[1, 4, 6, 7]] - 1
    assert residual == pytest.approx(miss @ miss)


def test_sparse_codes_cover_or_omit_parts_without_a_holder() -> None:
    bare = [seed for seed in range(20) if not sparse(N, 2, seed, False).matrix.any(axis=0).all()]
    assert bare
    for seed in bare:
        drawn, whole = (sparse(N, 2, seed, cover).matrix for cover in (False, True))
        assert (whole.sum(axis=0) == np.maximum(drawn.sum(axis=0), 1)).all()
        everybody = experiment("BGC", 3, deadline=1e3, cover=False, code_seed=seed)
        assert min(simulated(everybody)[0].residuals) >= (~drawn.any(axis=0)).sum() - 1e-9


def test_sgc_shuffling_spreads_the_missed_parts() -> None:
    """Future work of paper 4: without shuffling, the parts of slow workers are missed.

    With shuffling, all parts are missed equally often.
    """
    apart = {}
    for shuffle in ("none", "random"):
        own = {"straggling": Q, "decoding": "sum", "shuffle": shuffle}
        e = experiment("SGC", 600, seed=3, deadline=9.0, active_straggles=0.3, **own)
        apart[shuffle] = np.ptp(missed(e, simulated(e)[0]).mean(axis=0))
    assert apart["none"] > 0.4
    assert apart["random"] < 0.1


@pytest.mark.parametrize(
    ("scheme", "args", "fields"),
    [
        ("ErasureHead", {"replication": 3}, ["scheme_args.replication = 3", "1, 2, 4, 8"]),
        (
            "SGC",
            {"deadline": 2.0, "decoding": "sum"},
            ["scheme_args.straggling", "0 to below 1", "'optimal'"],
        ),
        ("SGC", {"straggling": 1.0}, ["scheme_args.straggling = 1.0", "take 0 to below 1"]),
        ("BGC", {"replication": 9}, ["scheme_args.replication = 9", "1 to 8"]),
        ("BGC", {"decoding": "sum"}, ["scheme_args.decoding = 'sum'", "'one_step'"]),
    ],
)
def test_approximate_relatives_refuse_wrong_parameters(
    scheme: str, args: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(wb.SettingError) as error:
        wb.Experiment(scheme=scheme, scheme_args=args, workers=N)
    assert all(word in str(error.value) for word in fields), str(error.value)
    assert "\n" not in str(error.value)

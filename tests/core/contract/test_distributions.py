"""Delay models with scipy's distributions, mixtures, groups, and Fritchman's channel: properties for any fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.analysis.planning.profile import scaled, with_fixed
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.checking.delays import PROPERTIES
from workbench.core.checking.property import Property
from workbench.core.contract.delays import CounterRNG, DelayModel, Delays, DelayStream, Exponential, law_of
from workbench.core.contract.delays.combined import Combined

FEW_EXAMPLES = settings(max_examples=15)
POSITIVE = st.floats(0.3, 3.0)
SIMPLE = st.one_of(
    st.builds(lambda a, b: {"kind": "weibull", "shape": a, "scale": b}, st.floats(0.7, 4), POSITIVE),
    st.builds(
        lambda a, b, c: {"kind": "lognormal", "mu": a, "sigma": b, "shift": c}, st.floats(-2, 2), POSITIVE, POSITIVE
    ),
    st.builds(lambda a, b: {"kind": "gamma", "shape": a, "scale": b}, POSITIVE, POSITIVE),
    st.builds(
        lambda a, b: {"kind": "distribution", "distribution": "invgauss", "args": {"mu": a}, "scale": b},
        POSITIVE, POSITIVE,
    ),
    st.just({"kind": "distribution", "distribution": "burr12", "args": {"c": 2.0, "d": 3.0}, "scale": 2.0}),
    st.builds(
        lambda a, b, c: {"kind": "fritchman", "shift": 1.0, "p_slow": a, "p_next": b, "slow_states": c},
        st.floats(0.05, 0.9), st.floats(0.2, 0.9), st.integers(1, 4),
    ),
    st.builds(
        lambda p: {"kind": "heterogeneous", "shift": 1.0, "straggles": p},
        st.lists(st.floats(0, 1), min_size=1, max_size=4),
    ),
)  # fmt: skip
LEAVES = st.one_of(
    SIMPLE, st.builds(lambda a: {"kind": "shifted_exponential", "shift": 1.0, "rate": a}, POSITIVE)
)


@st.composite
def mixtures(draw: st.DrawFn, components: Any = LEAVES) -> dict[str, Any]:
    first, others = draw(components), draw(st.lists(components, min_size=1, max_size=2))
    share = draw(st.floats(0.1, 0.9))
    rest = [(1 - share) / len(others)] * len(others)
    return {"kind": "mixture", "components": [first, *others], "shares": [1 - sum(rest), *rest]}


@st.composite
def grouped(draw: st.DrawFn, base: Any = LEAVES, common: Any = LEAVES) -> dict[str, Any]:
    found = {"kind": "groups", "base": draw(base), "common": draw(common), "size": draw(st.integers(1, 5))}
    speeds = draw(st.none() | st.lists(st.floats(0.5, 2), min_size=1, max_size=2))
    return {**found, "effect": draw(st.sampled_from(["add", "multiply"])), "speeds": speeds}


NESTED = st.recursive(LEAVES, lambda parts: st.one_of(mixtures(parts), grouped(parts, parts)), max_leaves=5)
MODELS = st.one_of(SIMPLE, mixtures(), grouped(), mixtures(grouped()), grouped(mixtures()), NESTED)


OWN = {"kind": "heterogeneous", "shift": 1.0, "straggles": [0.9, 0.1]}
STILL = {"kind": "constant", "shift": 1.0}


@pytest.mark.parametrize("checked", PROPERTIES, ids=lambda checked: checked.name)
@FEW_EXAMPLES
@given(spec=MODELS, seed=st.integers(0, 2**32))
@example(spec={"kind": "groups", "base": OWN, "common": STILL, "speeds": [1.0, 2.0]}, seed=1)
@example(spec={"kind": "groups", "base": OWN, "common": OWN, "size": 1, "effect": "multiply"}, seed=1)
@example(spec={"kind": "groups", "base": STILL, "common": OWN, "members": [[1, 2, 3], [4]]}, seed=1)
def test_delay_models_pass_the_property(checked: Property[Any], spec: dict[str, Any], seed: int) -> None:
    model: Any = law_of(spec)
    if not checked.but(model):
        checked.test(model, {"seed": seed, "workers": 8, "samples": 3})


@FEW_EXAMPLES
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_flat_mixtures_and_groups_keep_their_draws(data: st.DataObject, seed: int) -> None:
    """Their components draw from the run's own random numbers, and only the choice or the hosts from a branch."""
    keyed = CounterRNG(seed)
    spec = data.draw(mixtures(SIMPLE))
    model: Any = law_of(spec)
    for r in range(3):
        which = np.searchsorted(
            np.cumsum(spec["shares"])[:-1], keyed.branch(0).rng(r, 0).random(6), side="right"
        )
        drawn = model.draw(keyed, r, 6, 0, None)
        parts = [law_of(part).draw(keyed, r, 6, 0, None) for part in spec["components"]]
        np.testing.assert_array_equal(drawn[0], which)
        np.testing.assert_array_equal(drawn[1 + len(parts) :], np.concatenate(parts))
    model = law_of(data.draw(grouped(SIMPLE, SIMPLE)))
    own, common = model.split(model.draw(keyed, 2, 6, 0, None))[1]
    place = model.group_of(6)
    np.testing.assert_array_equal(own, model.base.draw(keyed, 2, 6, 0, None))
    hosts = model.common.draw(keyed.branch(0), 2, place.max() + 1, 0, None)
    np.testing.assert_array_equal(common, hosts[:, place])


@FEW_EXAMPLES
@given(spec=MODELS, seed=st.integers(0, 2**32), round=st.integers(0, 9))
def test_delay_models_draw_the_same_in_any_order_and_number(
    spec: dict[str, Any], seed: int, round: int
) -> None:
    model = law_of(spec)
    small, large = DelayStream(model, seed, 6), DelayStream(model, seed, 12)
    large.whole(5, np.full(12, 3))
    first = small.whole(round, np.full(6, 3))
    np.testing.assert_array_equal(first, large.whole(round, np.full(12, 3))[:6])
    assert [small.piece(round, worker, 0, 3) for worker in range(6)] == pytest.approx(first.tolist())


@FEW_EXAMPLES
@given(spec=MODELS, factor=st.floats(0.1, 10), fixed=st.integers(0, 5))
def test_scaled_models_take_that_factor_longer(spec: dict[str, Any], factor: float, fixed: int) -> None:
    model, streams = law_of(spec), []
    for each in (model, scaled(model, factor), with_fixed(model, fixed)):
        streams.append(DelayStream(each, 3, 8))
    one, other, later = (stream.whole(2, np.full(8, 4)) for stream in streams)
    np.testing.assert_allclose(other, one * factor, rtol=1e-9)
    np.testing.assert_allclose(later, streams[0].whole(2, np.full(8, 4 + fixed)), rtol=1e-9)


@FEW_EXAMPLES
@given(spec=MODELS, name=st.sampled_from(["SGD", "UMW", "ASGD", "CR"]), seed=st.integers(0, 99))
def test_forecasts_equal_the_engine_with_every_delay_model(
    spec: dict[str, Any], name: str, seed: int
) -> None:
    args: dict[str, Any] = {"CR": {"children": 3, "layers": 2}, "SGD": {"stragglers": 2}}.get(name, {})
    e = wb.Experiment(
        scheme=name, scheme_args=args, workers=12, delays=spec, rounds=6, seed=seed,
        problem="unit", problem_args={"samples": 24}, link={"delays": {"kind": "lognormal", "mu": 0.0}},
    )  # fmt: skip
    np.testing.assert_allclose(
        wb.forecast(e).seconds, np.diff(wb.run(e).rounds["time"], prepend=0.0), rtol=1e-9
    )


@rotated
@FEW_EXAMPLES
@given(shape=st.floats(0.7, 4), k=st.integers(1, 6))
def test_survival_gives_the_mean_of_order_statistics(shape: float, k: int) -> None:
    model = law_of({"kind": "weibull", "shape": shape, "scale": 1.0})
    times = np.sort(np.stack([DelayStream(model, 1, 6).whole(r, np.ones(6)) for r in range(3000)]), axis=1)
    wanted = wb.theory.order_statistic_mean(model.survival, k, 6)  # type: ignore[attr-defined]
    assert abs(times[:, k - 1].mean() - wanted) < 5 * times[:, k - 1].std() / 3000**0.5


@pytest.mark.parametrize(
    ("spec", "distribution"),
    [
        ({"kind": "weibull", "shape": 1.5, "scale": 2.0, "shift": 1.0}, scipy.stats.weibull_min(1.5, 1.0, 2.0)),
        ({"kind": "lognormal", "mu": 4.0, "sigma": 1.0}, scipy.stats.lognorm(1.0, scale=np.exp(4.0))),
        ({"kind": "gamma", "shape": 2.5, "scale": 0.5}, scipy.stats.gamma(2.5, scale=0.5)),
        (
            {"kind": "distribution", "distribution": "truncnorm", "args": {"a": -1.0, "b": 3.0}, "shift": 2.0,
             "scale": 1.0},
            scipy.stats.truncnorm(-1.0, 3.0, 2.0, 1.0),
        ),
    ],
)  # fmt: skip
def test_distribution_draws_are_scipys(spec: dict[str, Any], distribution: Any) -> None:
    stream = DelayStream(law_of(spec), 7, 1000)
    times = np.concatenate([stream.whole(r, np.ones(1000)) for r in range(4)])
    assert scipy.stats.kstest(times, distribution.cdf).pvalue > 1e-4


def test_groups_are_delayed_together() -> None:
    common = {"kind": "exponential", "mean": 5.0}
    model = law_of({"kind": "groups", "base": {"kind": "constant", "shift": 1.0}, "common": common,
                    "members": [[1, 4], [2, 3, 5]]})  # fmt: skip
    times = DelayStream(model, 1, 7).whole(3, np.ones(7))
    assert times[0] == times[3]
    assert times[1] == times[2] == times[4]
    assert len(set(times.tolist())) == 4  # workers 6 and 7 are in no group


@FEW_EXAMPLES
@given(
    alpha=st.floats(0.05, 0.9), beta=st.floats(0.1, 1), states=st.integers(1, 4), seed=st.integers(0, 2**32)
)
def test_fritchman_is_the_authors_channel(alpha: float, beta: float, states: int, seed: int) -> None:
    """State 0 is left with probability alpha.

    State s > 0 changes with probability beta to (s + 1) mod (N + 1), as in the authors' code. N: number of slow states.
    """
    model = law_of({"kind": "fritchman", "p_slow": alpha, "p_next": beta, "slow_states": states})
    stream = DelayStream(model, seed, 5)
    state = stream.draw(0)[0]
    for r in range(1, 8):
        u = CounterRNG(seed).rng(r, 0).random((1, 5))[0]
        moved = [
            (s + 1) % (states + 1) if x < (beta if s else alpha) else s for s, x in zip(state, u, strict=True)
        ]
        state = stream.draw(r)[0]
        assert state.tolist() == moved


def test_fritchman_with_one_slow_state_is_markov() -> None:
    one = {"kind": "fritchman", "p_slow": 0.1, "p_next": 0.3, "slow_states": 1, "factor": 7.0}
    other = {"kind": "markov", "p_slow": 0.1, "p_recover": 0.3, "factor": 7.0}
    a, b = (DelayStream(law_of(spec), 4, 50) for spec in (one, other))
    np.testing.assert_array_equal(a.whole(9, np.full(50, 2)), b.whole(9, np.full(50, 2)))


def test_heterogeneous_workers_straggle_with_their_own_probability() -> None:
    share = (0.05, 0.5, 0.9)
    stream = DelayStream(law_of({"kind": "heterogeneous", "shift": 1.0, "straggles": share}), 2, 3)
    late = np.stack([stream.whole(r, np.ones(3)) for r in range(2000)]) > 1
    assert np.abs(late.mean(axis=0) - share).max() < 0.05


@pytest.mark.parametrize(
    ("spec", "found_text"),
    [
        (
            {"kind": "distribution", "distribution": "lognorn"},
            "distribution = 'lognorn': .*did you mean 'lognorm'",
        ),
        ({"kind": "distribution", "distribution": "os"}, "distribution = 'os': no such name"),
        (
            {"kind": "distribution", "distribution": "rv_continuous"},
            "distribution = 'rv_continuous': no such name",
        ),
        ({"kind": "distribution", "distribution": "gamma"}, "args = .*gamma needs other ones; give a"),
        (
            {"kind": "distribution", "distribution": "gamma", "args": {"a": -1.0}},
            "args = .*outside the range",
        ),
        (
            {"kind": "distribution", "distribution": "norm", "args": {}},
            "shift = 0.0: norm has negative times",
        ),
        ({"kind": "mixture", "shares": [0.5, 0.4]}, "shares = .*whose sum is 1"),
        ({"kind": "mixture", "shares": [1.0]}, "shares = .*take 2 numbers"),
        ({"kind": "mixture", "components": [], "shares": []}, "components = .*at least one"),
        ({"kind": "groups", "members": [[1, 2], [2, 3]]}, "members = .*one group only"),
        ({"kind": "groups", "members": [[1, 20]]}, "members: 20 is too large"),
        ({"kind": "groups", "speeds": [1.0, 0.0]}, "speeds = .*above 0"),
        ({"kind": "groups", "speeds": [1.0] * 5}, "speeds = .*5 values for 12 workers"),
        (
            {"kind": "groups", "base": {"kind": "shifted_exponential", "per": "part"}},
            "base: .*cannot be combined",
        ),
        ({"kind": "heterogeneous", "straggles": [0.5, 1.5]}, "straggles = .*from 0 to 1"),
        ({"kind": "heterogeneous", "straggles": [0.5] * 7}, "straggles = .*7 values for 12 workers"),
        ({"kind": "fritchman", "slow_states": 0}, "slow_states = 0: take 1 or more"),
        ({"kind": "weibull", "shape": 0.0}, "shape = 0.0"),
        ({"kind": "lognormal", "sigma": -1.0}, "sigma = -1.0"),
    ],
)
def test_delay_models_refuse_a_wrong_field_in_one_sentence(spec: dict[str, Any], found_text: str) -> None:
    with pytest.raises(SettingError, match=rf"^delays\.?.*{found_text}") as caught:
        wb.Experiment(workers=12, delays=spec)
    assert "\n" not in str(caught.value)


def test_user_defined_models_are_found_in_mixtures_and_links() -> None:
    class Mine(DelayModel):
        """User-defined delay model with delays of 2 s."""

        kind = "mine_in_mixtures"

        def draw(self, keyed: Any, round: int, workers: int, slot: int, before: Any) -> Any:
            return np.zeros((1, workers))

        def compute(self, draw: Any, samples: Any) -> Any:
            return np.where(np.asarray(samples) > 0, 2.0, 0.0) + draw[0]

    mine = {"kind": "mine_in_mixtures"}
    delays = {"kind": "mixture", "components": [mine, mine], "shares": [0.5, 0.5]}
    e = wb.Experiment(
        workers=4, scheme="UMW", delays=delays, link={"groups": [{"workers": [2], "delays": mine}]}
    )
    assert [type(part) for part in e.parts].count(Mine) == 3
    assert wb.forecast(e, 3).mean == 4.0


def both() -> type[Combined]:
    """Define a user's delay model that is made of others: the sum of two of them."""

    class Both(Combined):
        """Sum of two delay models, with random numbers of its own for each."""

        kind = "both"
        one: Delays = Exponential(mean=1.0)
        other: Delays = Exponential(mean=1.0)

        @property
        def parts(self) -> Mapping[str, DelayModel]:
            return {"one": self.one, "other": self.other}

        def draw(self, keyed: CounterRNG, round: int, workers: int, slot: int, before: Array | None) -> Array:
            each = enumerate(zip(self.parts.values(), self.before_of(before), strict=True))
            draws = [part.draw(keyed.nested(k), round, workers, slot, own) for k, (part, own) in each]
            return self.stacked(np.zeros(workers), draws)

        def compute(self, draw: Array, samples: Any) -> Array:
            each = zip(self.parts.values(), self.split(draw)[1], strict=True)
            return np.sum([part.compute(own, samples) for part, own in each], axis=0)

    return Both


@pytest.mark.parametrize(
    ("model", "leaves", "mean", "variance"),
    [
        (lambda Both: Both(), 2, 2.0, 2.0),
        (lambda Both: Both(one=Both(), other=Both()), 4, 4.0, 4.0),
        (lambda Both: law_of({"kind": "mixture", "components": [Both(), Both()], "shares": [0.5, 0.5]}), 4, 2.0, 2.0),
        (lambda Both: law_of({"kind": "groups", "base": Both(), "common": Both(), "size": 1}), 4, 4.0, 4.0),
        (
            lambda Both: Both(other=law_of(
                {"kind": "groups", "base": Both(), "common": Exponential(mean=1.0), "size": 1}
            )),
            4, 4.0, 4.0,
        ),
        (
            lambda Both: law_of({"kind": "groups", "size": 1, "common": Exponential(mean=1.0), "base": law_of(
                {"kind": "mixture", "components": [Both(), Both(one=Both())], "shares": [0.5, 0.5]}
            )}),
            6, 3.5, 3.75,  # of the mixture: 2.5 + 0.25
        ),
    ],
)  # fmt: skip
def test_parts_of_a_users_combination_share_no_random_numbers(
    model: Any, leaves: int, mean: float, variance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts have their own random numbers, at any depth, and seconds have the variance of independent parts."""
    checked, drawn, plain = model(both()), list[Array](), Exponential.draw

    def draw(self: Exponential, *args: Any) -> Array:
        drawn.append(plain(self, *args))
        return drawn[-1]

    monkeypatch.setattr(Exponential, "draw", draw)
    stream = DelayStream(checked, 1, 500)
    times = np.stack([stream.whole(r, np.ones(500)) for r in range(80)])
    assert len(drawn) == 80 * leaves
    assert len({tuple(each.ravel()) for each in drawn}) == len(drawn)
    assert times.mean() == pytest.approx(mean, abs=0.06)
    assert times.var() == pytest.approx(variance, rel=0.06)

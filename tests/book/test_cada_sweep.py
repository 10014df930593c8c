"""The sweep of paper 3: its limit without laziness, and claims about the whole sweep."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench_book import Setting, cada_sweep, get, texts
from workbench_book.cada import COSTS, MEANT, PUBLISHED, STATED, costs, experiments
from workbench_book.cada_sweep import SWEPT, Sweep, at, claim, claims_of, holding, limit, until
from workbench_book.verdicts import of_result

from tests.support.sampled_cases import rotated
from workbench.core.running.start import run

UNITS = (0.01, 0.1, 1.0)
ratios = st.lists(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=2), min_size=len(UNITS), max_size=len(UNITS)
).map(np.array)


def made(changes: dict[int, float] | None = None) -> Sweep:
    """Make a sweep with the paper's ratios at every unit. `changes`: index of a unit -> factor on CADA's costs."""
    found = {}
    for label in SWEPT:
        paper = PUBLISHED[label.split(",")[0]] if label != "D-Adam" else PUBLISHED["CADA"]
        scale = [(changes or {}).get(i, 1.0) if label in ("CADA",) else 1.0 for i in range(len(UNITS))]
        found[label] = {cost: np.outer(scale, [paper[cost]] * 2) for cost in COSTS}
    return Sweep(UNITS, 0.1, 6000, found)


def numbers(sweep: Sweep) -> object:
    facts = {
        "gcada-sweep": {"units": UNITS, "target": 0.1, "rounds": 6000, "costs": sweep.costs},
        "gcada-fig2": {"short": {}, "note": ""},
    }
    return of_result(get("gcada-numbers").find(Setting(quick=True, measure=False, facts=facts)))


def test_the_verdict_follows_from_the_whole_sweep() -> None:
    """With the published ratios at every unit, the verdict is agreement.

    If the ratios at any single unit are far off, the verdict is a difference.
    """
    assert numbers(made()).kind == "agrees"  # type: ignore[attr-defined]
    for place in range(len(UNITS)):
        verdict = numbers(made({place: 1e-3}))
        assert verdict.kind == "differs"  # type: ignore[attr-defined]
        assert verdict.text.startswith("differs at 1 of 3 constants, agrees at 2")  # type: ignore[attr-defined]


def test_cada_sweep_reports_a_target_that_is_never_reached(
    quick: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CADA does not reach the target at one unit.

    Its ratio is infinite, the band has a gap, and the JSON file is valid.
    """
    sweep = made({2: np.inf})
    monkeypatch.setattr(cada_sweep, "swept", lambda setting: sweep)
    result = get("gcada-sweep").find(quick)
    assert "CADA does not always reach it at c × 1" in result.text[0]
    assert all(claim.holds for claim in result.claims if claim.text.startswith("G-CADA"))
    facts = {"gcada-sweep": result.to_json()["facts"], "gcada-fig2": {"short": {}, "note": ""}}
    numbers_ = get("gcada-numbers").find(replace(quick, facts=facts))
    for each in (*result.pictures, *numbers_.pictures):
        assert texts.picture("x", 0, each)
    assert ">never" in texts.table(numbers_)


def test_cada_sweep_does_not_judge_identities() -> None:
    """The ratio of communication to computation is (M_G + 1) / M_G for any run."""
    facts = {
        "gcada-sweep": {"units": UNITS, "target": 0.1, "rounds": 6000, "costs": made().costs},
        "gcada-fig2": {"short": {}, "note": ""},
    }
    lines = get("gcada-numbers").find(Setting(quick=True, measure=False, facts=facts)).lines
    same = [line for line in lines if "identity" in line.what]
    assert len(same) == 3
    assert all(set(line.values) == {"exact"} and not line.swept for line in same)
    assert sum(bool(line.swept) for line in lines) == 6


@given(ratios)
def test_cada_sweep_claim_holds_only_for_every_unit_and_seed(table: np.ndarray) -> None:
    found = claim("x", table, UNITS)
    assert (found.holds is True) == bool((table > 1).all())
    assert (found.holds is False) == bool((table <= 1).all())
    assert len(holding(table)) == len(UNITS)


def test_cada_sweep_claims_have_no_slack() -> None:
    """Ratios of 0.99 do not support a claim of more than 1. A tolerance of 5 % would accept them."""
    costs_ = {label: {name: np.ones((3, 2)) for name in COSTS} for label in SWEPT}
    costs_["CADA"] = {name: np.full((3, 2), 0.99) for name in COSTS}
    grouped = [c for c in claims_of(Sweep(UNITS, 0.1, 10, costs_)) if c.text.startswith("G-CADA")]
    assert [c.holds for c in grouped] == [False] * 6


@pytest.mark.parametrize("label", [STATED, MEANT])
def test_the_limit_without_laziness(label: str) -> None:
    """A round of D-Adam lasts until the slowest worker, and one of a grouped scheme until the slowest group.

    A group takes the time of its fastest member. Mean times are computed by inclusion and exclusion.
    """

    def longest(rates: list[Fraction]) -> Fraction:
        """Return the mean of the maximum of independent exponential times."""
        total = Fraction(0)
        for chosen in product((0, 1), repeat=len(rates)):
            if any(chosen):
                rate = sum(r for r, c in zip(rates, chosen, strict=True) if c)
                total += (-1) ** (sum(chosen) + 1) / Fraction(rate)
        return total

    groups, size = {STATED: (3, 4), MEANT: (4, 3)}[label]
    exact = longest([Fraction(1)] * 12) / longest([Fraction(size)] * groups)
    assert limit(label, "time") == pytest.approx(float(exact), rel=1e-12)
    assert limit(label, "communication") == 24 / (groups + groups * size)
    assert limit(label, "computation") == 12 / (groups * size)


def test_with_a_tiny_constant_cada_is_distributed_adam(quick: Setting) -> None:
    """All workers are requested in every round. The same seed then gives the same draws and costs."""
    every = dict(experiments(quick, unit=1.0))
    adam, cada = (until(at(every[label], 1e-9, 60, seed=3), 2.0) for label in ("D-Adam", "CADA"))
    assert cada == pytest.approx(adam, rel=1e-12)


def test_a_shorter_run_has_the_same_rounds(quick: Setting) -> None:
    """Trying a quarter of the rounds first therefore changes nothing.

    A target that is never reached has an infinite cost.
    """
    e = at(dict(experiments(quick, unit=0.1))[MEANT], 1.0, 120, seed=0)
    assert until(e, 2.0) == costs(run(e, events=False), 2.0)
    assert until(e.replace(rounds=8), 1e-9) == dict.fromkeys(COSTS, float("inf"))


@rotated
def test_the_sweep_reaches_from_nobody_lazy_to_lazy(quick: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a small sweep, the first unit has as many messages per round as the limit. The last unit has fewer."""
    monkeypatch.setattr(cada_sweep, "QUICK_UNITS", (1e-9, 0.3))
    monkeypatch.setattr(cada_sweep, "QUICK_TARGET", 4.0)
    result = get("gcada-sweep").find(replace(quick, seed=1))
    sweep = Sweep.from_facts(result.to_json()["facts"])
    assert sweep.seeds == 3
    assert (sweep.ratio("D-Adam", "CADA", "communication")[0] == 1).all()
    assert (sweep.ratio("D-Adam", "CADA", "communication")[1] != 1).any()
    assert len(result.pictures) == 3
    labels = {trace.get("name") for trace in result.pictures[0].data}
    assert {"time", "time, the paper", "communication, the paper", "computation, the paper"} <= labels
    axes = result.pictures[0].light
    assert (axes["xaxis"]["type"], axes["yaxis"]["type"]) == ("log", "log")
    assert [c.text.split(" needs")[0] for c in result.claims].count("CADA") == 2

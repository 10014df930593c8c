"""The card of a recording: shares, bursts and changes, each stated only if there is evidence."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from tests.support.synthetic_recordings import healthy, public, recording
from workbench.analysis.planning.delay_fits import FittedModel
from workbench.analysis.recordings import card as card_of
from workbench.analysis.recordings.card import changes, shares, split
from workbench.analysis.recordings.spells import bursts, lengths
from workbench.core.base.settings import SettingError
from workbench.core.base.types import Array
from workbench.core.contract.delays import delay_models


@pytest.mark.parametrize("who", ["chronic", "together", "passing"])
def test_card_separates_the_sources_of_variation(who: str) -> None:
    rng = np.random.default_rng(0)
    times = np.ones((200, 12)) * (1 + 0.01 * rng.random((200, 12)))
    times *= {
        "chronic": 1 + np.arange(12) / 6,
        "together": 1 + rng.random((200, 1)),
        "passing": 1 + 2 * (rng.random((200, 12)) < 0.1),
    }[who]
    card = recording(times).card()
    assert getattr(card, who) > 0.9
    assert np.isclose(card.chronic + card.together + card.passing, 1.0)


def test_shares_recover_the_simulated_shares() -> None:
    rng = np.random.default_rng(1)
    own, step, rest = rng.normal(0, 1, 500), rng.normal(0, 2, (600, 1)), rng.normal(0, 3, (600, 500))
    found = shares(own + step + rest)
    np.testing.assert_allclose(found, np.array([1, 4, 9]) / 14, atol=0.05)


def test_bursts_are_compared_with_chance() -> None:
    rng = np.random.default_rng(2)
    for p in (0.05, 0.3, 0.8):
        found, alone = bursts(rng.random((300, 40)) < p)
        assert abs(found / alone - 1) < 0.05
    state, chain = np.zeros(40, bool), []
    for _ in range(400):
        state = np.where(state, rng.random(40) < 0.8, rng.random(40) < 0.02)
        chain.append(state)
    found, alone = bursts(np.array(chain))
    assert found > 3 * alone
    assert lengths(np.zeros((5, 2), bool)).size == 0


def test_changes_finds_the_step_of_a_change() -> None:
    rng = np.random.default_rng(3)
    ratio = 1 + 0.1 * rng.random((300, 6))
    ratio[120:, 4] *= 1.5
    (found,) = changes(ratio, list("abcdef"), list(range(1000, 1300)))
    assert (found.worker, abs(found.step - 1120) <= 3) == ("e", True)
    assert 1.4 < found.factor < 1.6
    up_and_down = np.concatenate([np.zeros(80), np.ones(80), np.zeros(80)]) + 0.2 * rng.random(240)
    both = list(changes(np.exp(up_and_down)[:, None], ["a"], list(range(240))))
    assert [round(each.step, -1) for each in both] == [80, 160]


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
def test_split_has_a_low_false_alarm_rate(correlation: float) -> None:
    rng = np.random.default_rng(4)
    wrong = 0
    for _ in range(200):
        noise, series = rng.normal(size=300), np.zeros(300)
        for i in range(1, 300):
            series[i] = correlation * series[i - 1] + noise[i]
        wrong += split(series)[1] < 0.05
    assert wrong <= 20  # expected: 10, at most 5 % of 200


def test_card_reports_that_no_law_fits() -> None:
    rng = np.random.default_rng(5)
    times = 10.0 ** rng.integers(0, 4, (200, 10))  # four speeds; no delay model has more than two
    text = str(recording(times).card())
    assert "no delay model fits; the nearest is" in text


def test_card_refuses_a_single_worker() -> None:
    with pytest.raises(SettingError, match="has one worker only"):
        recording(np.ones((5, 1))).card()


def test_card_counts_and_excludes_missing_times() -> None:
    times = healthy(60, 5, np.random.default_rng(6))
    times[3, 2] = np.nan
    card = recording(times).card()
    assert np.isclose(card.missing, 1 / 300)
    assert card.steps == 60


def test_card_of_public_recordings_matches_their_papers() -> None:
    """In paper 4, some workers are slow for the whole run, and most others are within a few per cent."""
    card = wb.traces.load(public("ec2_traces.csv")).job("ec2-7").card()
    assert [worker for worker, _ in card.slow] == [1]
    assert card.delay_model is not None
    assert card.delay_model.delays.kind == "heterogeneous"  # type: ignore[attr-defined]


def test_card_of_a_repeated_table_has_no_variation() -> None:
    card = recording(np.ones((20, 3))).card()
    assert (card.chronic, card.late, card.burst) == (0.0, 0.0, 0.0)


LAWS = [k for k in sorted(delay_models()) if k != "replay" and "workbench." in delay_models()[k].__module__]


@pytest.mark.parametrize("kind", LAWS)
def test_card_of_each_law_is_text(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model has its default parameters. `heterogeneous` and `changing` also name workers that are slow."""
    times = np.ones((30, 4)) + 0.1 * np.random.default_rng(0).random((30, 4))
    for more in (
        {},
        {"slow_workers": [2, 3]} if kind == "heterogeneous" else {"worker": 2} if kind == "changing" else {},
    ):
        delay_model = FittedModel(
            delays={"kind": kind, **more},
            distance=0.0,
            tail=1.0,
            correlation_gap=0.0,
            worst_correlation="lag",
        )
        monkeypatch.setattr(card_of, "fitted_models", lambda *_, delay_model=delay_model: [delay_model])
        (line,) = [line for line in str(recording(times).card()).splitlines() if "delay model fits" in line]
        assert line.startswith(f"a {kind} delay model fits")
        for name, value in delay_model.delays.model_dump(exclude={"kind"}).items():
            assert (f"{name} = " in line) == (value is not None)


def test_card_fits_the_named_distributions() -> None:
    """`delays` then has the best of them, here with times of two samples."""
    found = recording(np.random.default_rng(0).wald(2.0, 3.0, (200, 5)))
    card = found.card(kinds=["invgauss", "gamma", "burr12"])
    assert card.delay_model is not None
    assert (len(card.delay_models), card.delay_model.delays.kind) == (3, "distribution")  # type: ignore[attr-defined]
    delays = found.delays("fitted", samples=2, kinds=["invgauss", "gamma"])
    assert (delays.distribution, delays.expected(2)) == ("invgauss", pytest.approx(2.0, rel=0.05))  # type: ignore[attr-defined]
    with pytest.raises(
        SettingError, match=r"^distribution = 'invgaus': no such name; did you mean 'invgauss'"
    ):
        found.card(kinds=["invgaus"])
    with pytest.raises(
        SettingError, match=r"^kind = 'replay': cannot be fitted; take constant, .* or one of scipy"
    ):
        found.delays("fitted", samples=1, kinds=["replay"])
    with pytest.raises(SettingError, match=r"^kinds = \['fritchman'\]: none of them can be fitted"):
        found.delays("fitted", samples=1, kinds=["fritchman"])
    assert "delay model (" not in str(card)


@pytest.mark.parametrize(
    "kind", ["shifted_exponential", "exponential", "pareto", "markov", "heterogeneous", "constant"]
)
def test_card_of_a_run_with_each_delay_model(kind: str) -> None:
    e = wb.Experiment(scheme="UMW", workers=8, rounds=100, delays={"kind": kind})
    job = wb.traces.load(wb.run(e))
    card = job.card()
    assert card.delay_model is not None
    assert f"a {card.delay_model.delays.kind} delay model fits" in str(card)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("steps", "seeds"), [(15, 4), (30, 4)])
def test_card_of_healthy_workers_reports_no_late_majority(steps: int, seeds: int) -> None:
    wrong, found = 0, 0
    for seed in range(seeds):
        times = 1 + np.random.default_rng(seed).pareto(2.5, size=(steps, 84))
        wrong += bool(slow_of(times))
        times[:, 7] *= 2.0
        found += slow_of(times) == [7]
    assert wrong <= 1
    assert found >= seeds - 1


def slow_of(times: Array) -> list[int]:
    return [int(worker) for worker, _ in recording(times).card().slow]

"""The run of a lecture: started with the current sliders, compared at the end, attached from another page."""

from __future__ import annotations

import pytest
from workbench_lectures.knobs import Knobs, SliderHost
from workbench_lectures.race import Race

import workbench as wb
from tests.support.lecture_clock import SMALL, Clock
from tests.support.widget_messages import View, receives
from workbench.core.base.settings import setting


class Rounds(Knobs):
    """Number of rounds of the run."""

    rounds: int = setting(30, "rounds", ge=1, le=60)


def entries(knobs: Rounds) -> list[wb.Experiment]:
    return [wb.Experiment(scheme=name, **{**SMALL, "rounds": knobs.rounds}) for name in ("UMW", "SGD")]


def race_of(clock: Clock, **knobs: int) -> tuple[Race, SliderHost[Rounds]]:
    desk = SliderHost(Rounds(**knobs))
    return Race(desk, entries, ["rounds"], clock=clock), desk


def shown(race: Race) -> list[int]:
    return [len(run.rows()["round"]) for run in race.plot.runs]


def settle(race: Race) -> None:
    for run in race.plot.runs:
        assert run.wait(60)


def test_race_shows_all_schemes_then_compares() -> None:
    clock = Clock()
    race, desk = race_of(clock)
    desk.move(rounds=20)
    race.button.click()
    settle(race)
    assert shown(race) == [0, 0]
    assert race.plot.active
    clock.now += 5.0  # 5 of 10 s
    half = shown(race)
    assert 0 < max(half) < 20 or max(half) == 20 > min(half)
    clock.now += 60.0
    assert race.plot.wait(60)
    view = View(race.plot)
    view.ask()
    assert [view.rows(i) for i in (0, 1)] == [20, 20]
    assert race.plot.target is not None
    assert "time to" in race.table.value
    assert race.message.value == ""
    before = race.table.value
    race.plot.target = 1.5 * race.plot.target
    assert race.table.value != before


def test_race_is_stopped_from_the_page() -> None:
    clock, snapshots = Clock(), []
    desk = SliderHost(Rounds())
    race = Race(desk, entries, clock=clock, changed=lambda: snapshots.append(race.kept()))
    race.start()
    settle(race)
    clock.now += 4.0
    receives(race.plot, {"kind": "stop"})
    assert race.plot.wait(60)
    assert snapshots[0]["film"]["stopped"] is None
    assert snapshots[-1]["film"]["stopped"] == pytest.approx(4.0 * race.playback.pace)  # type: ignore[union-attr]
    assert [line["state"] for line in race.plot.status] == ["stopped", "stopped"]


@pytest.mark.parametrize("stopped", [False, True])
def test_race_is_attached_from_another_page(stopped: bool) -> None:
    clock = Clock()
    first, desk = race_of(clock, rounds=25)
    first.lasts.fill({"lasts": "30"})
    first.plot.x = "round"
    first.start()
    settle(first)
    desk.move(rounds=7)  # changed after the start, without effect on the runs
    clock.now += 12.0
    if stopped:
        first.plot.stop()
    kept, rows = first.kept(), shown(first)
    second, _ = race_of(clock)
    second.recall(kept)
    settle(second)
    assert shown(second) == rows
    assert [run.experiment.rounds for run in second.plot.runs] == [25, 25]
    assert (second.plot.x, second.lasts.values["lasts"]) == ("round", "30")
    clock.now += 100.0
    assert shown(second) == (rows if stopped else [25, 25])
    assert second.plot.wait(60)


def test_race_that_has_not_started_is_attached() -> None:
    first, _ = race_of(Clock())
    second, _ = race_of(Clock())
    second.recall(first.kept())
    assert second.plot.runs == []


def test_race_refuses_an_invalid_setting() -> None:
    def broken(_: Rounds) -> list[wb.Experiment]:
        return [wb.Experiment(scheme="UMW", workers=0)]

    race = Race(SliderHost(Rounds()), broken, clock=Clock())
    race.button.click()
    assert "workers = 0" in race.message.value
    assert race.plot.runs == []


def test_race_names_a_failing_scheme() -> None:
    def deadly(_: Rounds) -> list[wb.Experiment]:
        fault = {"faults": [{"worker": 2, "round": 1}]}
        return [wb.Experiment(scheme="UMW", **SMALL, **fault), wb.Experiment(scheme="SGD", **SMALL)]

    clock = Clock()
    race = Race(SliderHost(Rounds()), deadly, clock=clock)
    race.start()
    settle(race)
    clock.now += 1e6
    assert race.plot.wait(60)
    assert "UMW: " in race.message.value
    assert "lost worker 2" in race.message.value


def test_race_without_a_page_waits_for_the_runs() -> None:
    race, _ = race_of(Clock())
    assert [len(trace.rounds) for trace in race.run(60)] == [30, 30]

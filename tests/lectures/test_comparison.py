"""The comparison of codes with their alternatives: computed values, ties, missing recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import nbformat
import numpy as np
import pandas as pd
import pytest
from workbench_lectures import coding_or_not, comparison, comparison_table, contest_settings
from workbench_lectures.arrivals import Watch
from workbench_lectures.contest_settings import (
    ANSWERS,
    COSTS,
    FAMILIES,
    LEVELS,
    MINI,
    PROBLEMS,
    SHARES,
    TIMED,
    WORKERS,
)

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.core import schemes
from workbench.core.contract.problem import Request
from workbench.core.contract.scheme import follows

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    return comparison_table.read()


def test_comparison_table_has_every_scheme_in_every_cell(kept: pd.DataFrame) -> None:
    cells = {
        (problem, delay_model, f"{level:g}", cost)
        for problem in PROBLEMS
        for delay_model, levels in LEVELS.items()
        for level in levels
        for cost in COSTS
    }
    groups = kept.groupby(["problem", "delay_model", "column", "cost"])
    assert set(groups.groups) == cells
    for _, cell in groups:
        assert set(zip(cell["family"], cell["scheme"], strict=True)) == set(contest_settings.contenders())
        assert {"UMW", "GC", "Backup", "D-SGD", "LocalSGD", "ASGD"} <= set(cell["scheme"])
        assert set(cell["family"]) == set(FAMILIES)
        assert all(len(seconds) == TIMED for seconds in cell["seconds"])
        assert not cell.duplicated(["family", "scheme"]).any()
    for each in cells:
        assert not set(coding_or_not.absent(*each)) & {"UMW", "GC", "Backup"}


def test_comparison_gives_all_schemes_the_same_range_of_answers() -> None:
    """With 12 workers, all schemes may wait for fewer than half, codes included."""
    for name in ("FRC", "CRC", "IS-GC"):
        assert {args["wait_for"] for args in contest_settings.settings(name)} == set(ANSWERS)
    for name in ("Backup", "PGC", "M-SGC"):
        assert {WORKERS - args["stragglers"] for args in contest_settings.settings(name)} == set(ANSWERS)
    assert {args["start"] for args in contest_settings.settings("AdaptiveK")} == set(ANSWERS)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("contender", contest_settings.contenders(), ids=" ".join)
def test_comparison_gives_all_schemes_the_same_mini_batches(problem: str, contender: tuple[str, str]) -> None:
    """No scheme has a size that the others do not have. Exceptions lack the smallest ones, because of their parts."""
    grid = comparison.SchemeGrid(problem)
    grid.exact = dict.fromkeys(SHARES, (1.0, 1))
    tries = list(grid._tries(*contender, contest_settings.synthetic("tail", 1.0, problem), COSTS[0]))
    missing = set(SHARES) - {tried.share for tried in tries}
    assert missing <= ({min(SHARES)} if contender[1] in {"DropCompute", "M-SGC"} else set())
    for tried in tries:
        samples = tried.e.shape()[0]
        whole = contest_settings.batch_of(tried.share, samples) if tried.share < 1.0 else samples
        # a worker of some schemes has a whole number of samples
        assert contest_settings.true_share(tried.e) * samples == pytest.approx(whole, abs=WORKERS)


def test_comparison_table_has_the_true_share_of_the_data(kept: pd.DataFrame) -> None:
    for _, row in kept[kept["scheme"].isin(MINI) & kept["share"].notna()].iterrows():
        args = dict(each.split("=") for each in row["settings"].split())
        samples = contest_settings.experiment({"kind": "constant"}, 0.0, row["problem"]).shape()[0]
        batch = WORKERS * int(args["worker_batch"]) if "worker_batch" in args else samples
        assert row["share"] == pytest.approx(batch / samples, rel=1e-4)


def test_comparison_texts_name_only_schemes_that_take_part() -> None:
    names = {name for _, name in contest_settings.contenders()}
    for path in ("lecture/7-coding-or-not.ipynb", "07-coding-or-not.ipynb"):
        cells = nbformat.read(NOTEBOOKS / path, as_version=4).cells
        words = set(re.findall(r"[\w-]+", " ".join(c.source for c in cells if c.cell_type == "markdown")))
        assert words & set(schemes.names()) <= names


@pytest.mark.parametrize("best", [-7, 0, 5])
def test_comparison_search_of_the_step_size_ends_inside(best: int) -> None:
    """Whatever the best step size is, its neighbours are tried, and they are worse."""
    tried = set[float]()

    def seconds(setting: comparison._Try, _: float) -> float:
        tried.add(round(2 * np.log2(setting.times)))
        return float(abs(2 * np.log2(setting.times) - best))

    start = comparison._Try(contest_settings.experiment({"kind": "constant"}, 0.0), 1.0, 1.0)
    least, found = comparison.climbed(seconds, start, seconds(start, 0.0))
    assert least == pytest.approx(0.0, abs=1e-9)
    assert 2 * np.log2(found.times) == pytest.approx(best)
    assert {best - 1, best, best + 1} <= tried


def test_comparison_delayed_code_has_models_of_its_own() -> None:
    """M-SGC commits gradients at older models, so it does not have the models of exact schemes."""
    stale = contest_settings.experiment(contest_settings.synthetic("tail", 1.0), 0.02, share=0.25)
    stale = stale.replace(scheme="M-SGC", scheme_args={"burst": 1, "window": 2, "stragglers": 1})
    grid = comparison.SchemeGrid("logistic")
    step, _ = grid.exact[0.25]
    exact, delayed = (
        grid.arrive(comparison._Try(e, 0.25, step), 0)
        for e in (stale.replace(scheme="UMW", scheme_args={}), stale)
    )
    assert delayed.rounds != exact.rounds


def test_comparison_evaluates_the_loss_at_equal_amounts_of_data() -> None:
    watch = Watch(target=1.0, every=3)
    losses = [9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    for rounds in range(1, 30):
        if watch.due(rounds):
            watch.see(losses.pop(0))
    assert watch.rounds == 18  # the mean of the losses after rounds 6 to 18 is the first below 1


def test_comparison_shows_schemes_that_did_the_same_as_one(kept: pd.DataFrame) -> None:
    """SGD with its own step equals Backup in every cell."""
    for _, cell in kept.groupby(["problem", "delay_model", "column", "cost"]):
        found = comparison_table.ranked(cell)
        if "Backup" in set(found["scheme"]):
            assert "SGD" not in set(found["scheme"])
            assert "SGD" in found.set_index("scheme")["same"]["Backup"]


@rotated
def test_comparison_numbers_equal_a_computation(kept: pd.DataFrame) -> None:
    grid, chosen = (
        comparison.SchemeGrid("logistic"),
        contest_settings.contenders(["UMW", "CR", "GC", "Backup"]),
    )
    results = grid.results(contest_settings.synthetic("bursts", 5.0), 0.02, chosen)
    found = comparison_table.as_table(comparison.rows("logistic", "bursts", "5", 0.02, results))
    for _, row in found.iterrows():
        same = kept[
            (kept["problem"] == "logistic") & (kept["delay_model"] == "bursts") & (kept["column"] == "5")
        ]
        same = same[(same["scheme"] == row["scheme"]) & (same["family"] == row["family"])]
        same = same[same["cost"] == 0.02]
        assert (same["settings"] == row["settings"]).all()
        assert (same["share"] == row["share"]).all()
        np.testing.assert_allclose(same["seconds"].iloc[0], row["seconds"], rtol=1e-3)


@rotated
def test_comparison_waits_for_the_slowest_share() -> None:
    """Without stragglers and with free messages, a full round takes the time of the largest share."""
    still = {"kind": "constant", "shift": 1.0 / contest_settings.unit("logistic")}
    (found,) = comparison.SchemeGrid("logistic").results(still, 0.0, [("wait for all", "UMW")])
    samples = found.share * contest_settings.unit("logistic")
    largest = found.seconds.mean() / found.rounds * contest_settings.unit("logistic")
    assert samples <= largest <= np.ceil(samples) + 1
    assert found.reached


@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradients_of_the_comparison_are_those_of_their_losses(problem: str) -> None:
    e = contest_settings.experiment(contest_settings.synthetic("tail", 1.0, problem), 0.1, problem)
    built, rng = e.build_problem(), np.random.default_rng(0)
    model = built.start() + 0.1 * rng.standard_normal(built.size)
    direction, step = rng.standard_normal(built.size), 1e-5
    ends = built.evaluate([Request(model + sign * step * direction, gradient=False) for sign in (1, -1)])
    slope = built.gradient([(0, built.samples, 1.0)], model) / built.samples + built.l2 * model
    assert slope @ direction == pytest.approx((ends[0].loss - ends[1].loss) / (2 * step), rel=1e-5)


def test_comparison_tie_is_within_the_seeds() -> None:
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.5, TIMED))  # stragglers are shared, so the noise is the same for all
    rows: list[dict[str, Any]] = [
        {"scheme": "first", "family": "k of n", "seconds": noise},
        {"scheme": "worse", "family": "k of n", "seconds": 1.1 * noise},
        {"scheme": "as good", "family": "k of n", "seconds": noise * np.exp(rng.normal(0.01, 0.2, TIMED))},
        {"scheme": "missed", "family": "k of n", "seconds": np.append(noise[1:], np.nan)},
    ]
    found = comparison_table.ranked(pd.DataFrame(rows)).set_index("scheme")
    assert set(found.index) == {"first", "worse", "as good"}
    assert found["tie"].to_dict() == {"first": True, "worse": False, "as good": True}
    assert (found["low"] < found["mean"]).all()
    assert (found["mean"] < found["high"]).all()


@rotated
def test_comparison_codes_are_those_with_redundancy() -> None:
    assert ("wait for all", "CR") in contest_settings.contenders(["CR"])
    assert contest_settings.contenders(["no such scheme"]) == []
    one = comparison.SchemeGrid("logistic")
    tree, coded = one.results(
        contest_settings.synthetic("tail", 1.0), 0.1, contest_settings.contenders(["CR"])
    )
    assert tree.args["stragglers"] == 0
    assert coded.args["stragglers"] > 0
    assert tree.reached and coded.reached  # noqa: PT018


@pytest.mark.parametrize("delay_model", ["bursts", "tail"])
def test_comparison_slider_has_the_values_of_the_axis(delay_model: Literal["bursts", "tail"]) -> None:
    line = next(each for each in coding_or_not.CodingOrNot.entries() if each.name == "severity")
    assert line.low is not None
    assert line.high is not None
    settings = [
        coding_or_not.CodingOrNot(delay_model=delay_model, severity=value).fit()
        for value in range(int(line.low), int(line.high) + 1)
    ]
    axis = coding_or_not.chart(settings[0], "light").layout.xaxis
    on_axis = [name for name in axis.ticktext if name.startswith(delay_model)]
    assert list(dict.fromkeys(f"{delay_model} {each.severity}" for each in settings)) == on_axis
    for each in settings:
        marked = coding_or_not.chart(each, "light").layout.shapes[0]
        assert axis.ticktext[round((marked.x0 + marked.x1) / 2)] == f"{delay_model} {each.severity}"


@pytest.mark.parametrize("level", [1, 2])
def test_comparison_exercise_answer_is_correct(tmp_path: Path, level: int) -> None:
    """Of twelve recorded workers, `level` are slow. The forecast for UMW equals the round time of a code.

    At the answer of the exercise, both are equally fast.
    """
    knobs = coding_or_not.CodingOrNot(severity=int(LEVELS["tail"][level - 1]))
    table = tmp_path / "times.csv"
    slow = coding_or_not.even(knobs)
    lines = [f"{w},0,{slow if w < level else 1.0}" for w in range(WORKERS)]
    table.write_text("\n".join(["worker,iteration,seconds", *lines]))
    link = {"bandwidth": 8.0 * 5 / knobs.message} if knobs.message else {}
    common: dict[str, Any] = {
        "workers": WORKERS,
        "problem": "least_squares",
        "problem_args": {"samples": WORKERS, "features": 5},
        "link": link,
        "delays": {"kind": "replay", "path": str(table), "samples": 1.0},
    }
    waits = wb.forecast(wb.Experiment(scheme="UMW", **common)).mean
    # slow workers compute as many shares, and answer later
    coded = (level + 1) + (WORKERS - level) * knobs.message
    assert waits == pytest.approx(coded)
    assert waits == pytest.approx(slow + level * knobs.message)


def test_map_marks_schemes_that_follow_an_abstract() -> None:
    rows = coding_or_not.cell("least squares", "tail", "5", 0.02)
    names = {str(row["scheme"]): coding_or_not.called(row) for _, row in rows.iterrows()}
    assert names["AdaptiveK"] == "AdaptiveK†"
    assert names["Backup"] == "Backup"
    assert "AdaptiveK†" in coding_or_not.worth(rows)[1]


def test_shown_table_marks_schemes_that_follow_an_abstract(kept: pd.DataFrame) -> None:
    for _, cell in kept.groupby(["problem", "delay_model", "column", "cost"]):
        found = comparison_table.ranked(cell)
        names = found["scheme"].tolist()
        assert comparison_table.shown(found)["scheme"].tolist() == [
            name + "†" * (follows(name) == "abstract") for name in names
        ]
    notebook = Path(comparison_table.__file__).parents[2] / "07-coding-or-not.ipynb"
    assert "comparison_table.shown(found)" in notebook.read_text()

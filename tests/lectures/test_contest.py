"""The comparison of codes with their alternatives: its numbers computed again, ties, missing recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from workbench_lectures import coding_or_not, contest
from workbench_lectures.contest import COSTS, FAMILIES, LEVELS, RECORDED, TIMED, WORKERS

import workbench as wb


@pytest.fixture(scope="module")
def kept() -> pd.DataFrame:
    return contest.read()


def test_contest_table_has_every_scheme_in_every_cell(kept: pd.DataFrame) -> None:
    across = {
        **{law: [f"{x:g}" for x in levels] for law, levels in LEVELS.items()},
        "recorded": list(RECORDED),
    }
    cells = {(law, column, cost) for law, columns in across.items() for column in columns for cost in COSTS}
    groups = kept.groupby(["law", "column", "cost"])
    assert set(groups.groups) == cells
    for _, cell in groups:
        assert {"UMW", "GC", "SGD", "LocalSGD", "ASGD", "FedBuff"} <= set(cell["scheme"])
        assert set(cell["family"]) == set(FAMILIES)
        assert all(len(seconds) == TIMED for seconds in cell["seconds"])
        assert not cell.duplicated(["family", "scheme"]).any()


def test_contest_includes_every_scheme(kept: pd.DataFrame) -> None:
    assert set(kept["scheme"]) == {scheme for names in FAMILIES.values() for scheme in names}
    tried = kept.groupby("scheme")["settings"].agg(lambda texts: (texts != "").any())
    free = [
        name for name in tried.index if not any(wb.schemes.get(name).candidates(WORKERS))
    ]  # nothing to set
    assert set(tried.index[~tried]) <= set(free)
    cells = [(law, level, cost) for law, level, cost in kept.groupby(["law", "column", "cost"]).groups]
    missing = [coding_or_not.absent(*each) for each in cells]
    assert any(missing)
    for each, names in zip(cells, missing, strict=True):
        assert not set(names) & set(coding_or_not.cell(*each)["scheme"])


def test_contest_numbers_equal_a_computation(kept: pd.DataFrame) -> None:
    delays = contest.synthetic("bursts", 2.0)
    base = contest.experiment(delays, 0.0)
    chosen = contest.contenders(["UMW", "CR", "GC", "SGD"])
    found = contest.told(contest.rows("bursts", "2", 0.0, contest.SchemeGrid(base).results(base, chosen)))
    for _, row in found.iterrows():
        same = kept[(kept["law"] == "bursts") & (kept["column"] == "2") & (kept["cost"] == 0.0)]
        same = same[(same["scheme"] == row["scheme"]) & (same["family"] == row["family"])]
        assert (same["settings"] == row["settings"]).all()
        np.testing.assert_allclose(same["seconds"].iloc[0], row["seconds"], rtol=1e-4)


def test_contest_without_stragglers_and_links(kept: pd.DataFrame) -> None:
    cell = kept[(kept["law"] == "bursts") & (kept["column"] == "1") & (kept["cost"] == 0.0)]
    waits = cell[cell["family"] == "wait for all"]["seconds"]
    least = 48 / contest.SHARE  # the largest share
    rounds = [seconds / least for seconds in waits]
    assert len(rounds) == 3
    np.testing.assert_allclose(rounds, round(rounds[0][0]), rtol=1e-3)


def test_contest_tie_is_within_the_seeds() -> None:
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.5, TIMED))  # the same for all: stragglers are shared
    rows: list[dict[str, Any]] = [
        {"scheme": "first", "seconds": noise},
        {"scheme": "worse", "seconds": 1.1 * noise},
        {"scheme": "as good", "seconds": noise * np.exp(rng.normal(0.01, 0.2, TIMED))},
        {"scheme": "missed", "seconds": np.append(noise[1:], np.nan)},
    ]
    found = contest.ranked(pd.DataFrame(rows)).set_index("scheme")
    assert set(found.index) == {"first", "worse", "as good"}
    assert found["tie"].to_dict() == {"first": True, "worse": False, "as good": True}
    assert (found["low"] < found["mean"]).all()
    assert (found["mean"] < found["high"]).all()


def test_contest_codes_are_those_with_redundancy() -> None:
    assert ("wait for all", "CR") in contest.contenders(["CR"])
    assert contest.contenders(["no such scheme"]) == []
    base = contest.experiment(contest.synthetic("tail", 1.0), 0.1)
    one = contest.SchemeGrid(base)
    tree, coded = one.results(base, contest.contenders(["CR"]))
    assert tree.args["stragglers"] == 0
    assert coded.args["stragglers"] > 0
    assert tree.reached and coded.reached  # noqa: PT018


def test_contest_skips_missing_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(contest.recorded(tmp_path, tmp_path)) == []
    text = capsys.readouterr().out
    assert all(f"{column}: left out" in text for column in RECORDED)


@pytest.mark.parametrize(("level", "cost"), [(1, 1), (2, 3), (4, 4)])
def test_contest_exercise_answer_is_correct(tmp_path: Path, level: int, cost: int) -> None:
    """`level` of twelve recorded workers are slow: round times of both, by the forecast."""
    knobs = coding_or_not.CodingOrNot(level=level, cost=cost)
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
    coded = (level + 1) + (WORKERS - level) * knobs.message  # slow ones, with as many shares, come later
    assert waits == pytest.approx(coded)
    assert waits == pytest.approx(slow + level * knobs.message)

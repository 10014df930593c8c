"""Entries of papers 2 to 5, and the misprints of all: what must come out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench.book import Setting, find, get, names
from workbench.book.agc import PUBLISHED, simulated
from workbench.book.cegc_example import example
from workbench.book.cegc_runs import choices, unseen
from workbench.book.ec2_traces import ABSENT
from workbench.book.verdicts import of_column, of_result


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("misprints")])
def test_every_misprint_is_shown_by_its_computation(name: str, quick: Setting) -> None:
    result = get(name).find(quick)
    assert result.misprints
    assert [m.where for m in result.misprints if not m.confirmed] == []


def test_table_3(quick: Setting) -> None:
    result = get("table3").find(quick)
    assert len(result.lines) == 36
    exact = of_column(result, "exact")
    assert exact is not None
    assert exact.text == "agrees within 0.1 %"
    for line in result.lines:
        assert abs(line.values["ours"] - line.values["exact"]) < 5 * line.errors["ours"]
    assert all(claim.holds for claim in result.claims)


@pytest.mark.parametrize("name", ["cegc-fig2a", "cegc-fig2b"])
def test_the_example_of_paper_2(name: str, quick: Setting) -> None:
    result = get(name).find(quick)
    assert of_result(result).kind == "agrees"
    assert all(claim.holds for claim in result.claims)


def test_the_example_decodes_nothing_from_too_few() -> None:
    """Two of the three answers that the code for s = 2 needs leave the sum undecodable."""
    code = example(1)
    off = np.linalg.lstsq(code[:2].T, np.ones(5), rcond=None)[1]
    assert off.item() > 0.1


def test_figure_3_s_statements(quick: Setting) -> None:
    result = get("cegc-fig3").find(quick)
    held = {claim.text: claim.holds for claim in result.claims}
    assert sum(held.values()) == 5
    assert not held["n = 10: at least 23 % less than the best with m = 1"]
    for line in result.lines:
        assert line.values["ours"] == pytest.approx(line.values["exact"], rel=0.05)


@pytest.mark.parametrize("n", [10, 15, 20])
def test_the_codes_are_chosen_by_time(n: int) -> None:
    found = choices(n)
    assert next(iter(found)) == "uncoded"
    assert [c.reduction for c in found.values()][:2] == [1, 1]
    assert all(c.reduction > 1 and c.load == c.stragglers + c.reduction for c in list(found.values())[2:])
    assert len(found) == 4


def test_auc_is_on_rows_that_are_not_learnt_from(quick: Setting) -> None:
    result = get("cegc-fig4").find(quick)
    assert 0.6 < result.lines[0].values["ours"] < 1.0
    e = wb.Experiment(**next(iter(result.specs.values())))
    X, y = unseen(e)
    learnt = e.problem_spec.open().X  # type: ignore[attr-defined]
    assert len(X) == len(y) == len(learnt)
    rows = {row.tobytes() for row in np.ascontiguousarray(learnt)}
    assert np.mean([row.tobytes() in rows for row in np.ascontiguousarray(X)]) < 0.2  # 0/1 rows may be equal
    assert all(claim.holds for claim in result.claims)


def test_both_expected_errors(quick: Setting) -> None:
    result = get("agc-errors").find(quick)
    for line in result.lines:
        assert line.published == PUBLISHED[line.what]
        assert abs(line.values["ours"] - line.values["exact"]) < 4 * line.errors["ours"]
    assert of_result(result).kind == "differs"


def test_simulated_errors_know_their_spread() -> None:
    mean, error = simulated("FRC", 60, 20, seed=7)
    assert 0 < error < mean


def test_without_recorded_times_entries_say_how_to_get_them(quick: Setting) -> None:
    for name in ("agc-fig1", "agc-replay"):
        result = get(name).find(quick)
        assert result.text == [ABSENT]
        assert of_result(result).kind == "open"
    assert "stand-in" in get("agc-fig2c").find(quick).data[0]


def test_recorded_times_are_used_and_named_as_real(traces: Path, quick: Setting) -> None:
    here = replace(quick, traces=traces)
    figure_1 = get("agc-fig1").find(here)
    assert figure_1.pictures[0].real
    shares = {line.what.split(":")[0]: line.values["recorded"] for line in figure_1.lines}
    assert shares == {f"{e}, worker {w}": s for e in ("one", "two") for w, s in ((3, 1.0), (5, 0.25))}
    assert [claim.holds for claim in figure_1.claims] == [False, True]
    for name in ("agc-fig2d", "agc-replay"):
        result = get(name).find(here)
        assert "recorded on EC2 (real)" in result.data[0]
        assert all(wb.Experiment(**spec).delays.kind == "replay" for spec in result.specs.values())
    assert set(get("agc-replay").find(here).specs) == set(wb.schemes.names())


def test_shuffling_helps_when_both_holders_may_be_slow(quick: Setting) -> None:
    result = get("agc-fig2b").find(replace(quick, seed=100))
    held = [claim.holds for claim in result.claims]
    assert held == [True, True, False]


@pytest.mark.parametrize("name", ["mmc-fig1a", "mmc-fig1b"])
def test_figure_1_of_paper_5(name: str, quick: Setting, tmp_path: Path) -> None:
    result = find(name, quick, tmp_path)[-1].result
    assert result is not None
    assert all(claim.holds for claim in result.claims)
    for line in result.lines:
        if "exact" in line.values:
            assert abs(line.values["ours"] - line.values["exact"]) < 5 * line.errors["ours"]
            assert line.values["events"] == pytest.approx(line.values["exact"], rel=0.15)


def test_figure_13(quick: Setting) -> None:
    """UMW, GC and SGD agree with the paper, RAR does not; something is learnt, with PyTorch or without."""
    result = get("fig13").find(quick)
    off = {line.what: line.ratio("ours") for line in result.lines}
    assert all(off[name] == pytest.approx(1.0, abs=0.07) for name in ("UMW", "GC", "SGD"))
    assert off["RAR"] < 0.15
    accuracy = [curve for curve in result.pictures[1].data if curve.get("mode") == "lines+markers"]
    assert len(accuracy) == 5

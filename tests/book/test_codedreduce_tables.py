"""Tables and the worked example of paper 1. Another code gives another result."""

from __future__ import annotations

import numpy as np
import pytest
from workbench_book import Setting, codedreduce_tables, get
from workbench_book.codedreduce_tables import FIFTHS, RANKS, B, communicating, gain, shown
from workbench_book.verdicts import of_result

from workbench.core.schemes.coded_reduce import CR


def test_codedreduce_worked_allocation_is_exact(quick: Setting) -> None:
    result = get("cr-fig7").find(quick)
    for line in result.lines:
        assert line.values["ours"] == pytest.approx(line.published, abs=1e-12)
    assert len(result.lines) == 4 * 5 + 6 + 1
    assert all(claim.holds for claim in result.claims)


def test_codedreduce_allocation_depends_on_the_code(quick: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison uses the allocation of the scheme, and not the printed matrix."""
    turned = (B[1], B[2], B[0])
    fifths = {
        node: shown(CR(children=3, layers=2, stragglers=1, matrix=turned), rank)
        for node, rank in RANKS.items()
    }
    assert any(not np.array_equal(fifths[node], FIFTHS[node]) for node in FIFTHS)
    monkeypatch.setattr(codedreduce_tables, "FIFTHS", {**FIFTHS, "(2,1)": (0.0, 0.0, 0.5, -1.0, 0.0)})
    assert of_result(get("cr-fig7").find(quick)).kind == "differs"


def test_table_1(quick: Setting) -> None:
    """Loads and orders of the gains are as printed.

    The entry mentions that r^(1/L) is inaccurate for small trees with few stragglers.
    """
    result = get("cr-table1").find(quick)
    lines = {line.what: line for line in result.lines}
    for what, line in lines.items():
        if what.startswith("load"):
            assert line.ratio("ours") == pytest.approx(1.0, rel=1e-12)
        if "exponent" in what:
            assert line.values["ours"] == pytest.approx(line.published, abs=0.02)
    off = [what for what, line in lines.items() if line.published and abs(line.ratio("ours") - 1) > 0.15]
    assert off == [
        f"resiliency of CR at its load, {t}" for t in ("(4,3), s = 1", "(12,2), s = 1", "(12,2), s = 2")
    ]
    assert of_result(result).kind == "differs"
    assert all(claim.holds for claim in result.claims)


@pytest.mark.parametrize(("children", "layers"), [(3, 2), (5, 2), (2, 4), (7, 1)])
def test_the_gain_of_a_tree_is_its_parents_over_its_layers(children: int, layers: int) -> None:
    """Layers wait for each other: of the N/n parents, those of one layer receive at the same time."""
    e = communicating("CR", {"children": children, "layers": layers})
    assert gain(e) == pytest.approx(e.workers / children / layers, rel=1e-9)


def test_table_2(quick: Setting) -> None:
    result = get("cr-table2").find(quick)
    *layers, whole = result.lines
    assert all(line.values["ours"] == line.published for line in layers)
    assert whole.ratio("ours") == pytest.approx(1.0, abs=0.02)

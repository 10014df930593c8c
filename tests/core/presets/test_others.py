"""Presets: the stated values agree with the papers' formulas."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.core.presets.codedreduce import presets
from workbench.core.presets.others import others
from workbench.core.theory import cegc_table

TABLE3 = {"t1": 1.6, "lambda1": 0.8, "t2": 6.0, "lambda2": 0.1}  # times of one of 8 parts


def best(parts: int) -> list[dict[str, int]]:
    """Return the parameters of CEGC without a code, and of the shortest expected times for m = 1 and for any m.

    The data are cut into n = `parts` parts, so a part is 8/n of a part of table 3.
    """
    share = 8 / parts
    times = {**TABLE3, "t1": TABLE3["t1"] * share, "lambda1": TABLE3["lambda1"] / share}
    table = cegc_table(parts, **times)
    rows = np.where(np.isnan(table), np.inf, table)
    found = [(int(np.argmin(rows[0])), 0), divmod(int(np.argmin(rows)), parts)[::-1]]
    codes = [(1, 0, 1), *((d + 1, d - m, m + 1) for d, m in found)]
    return [dict(zip(("load", "stragglers", "reduction"), code, strict=True)) for code in codes]


@pytest.mark.parametrize("name", ["table3", "cegc10", "cegc15", "cegc20"])
def test_presets_of_ye_and_abbe_are_the_best_of_their_table(name: str) -> None:
    found = others[name].experiments
    parts = found[0].workers
    assert [e.scheme_args for e in found] == best(parts)
    each = 100 * parts / 8  # samples per part, so that a part takes its share of the time for table 3's data
    for e in found:
        assert e.problem_args["samples"] == 100 * parts
        assert e.delays == type(e.delays)(
            t1=TABLE3["t1"] / each,
            lambda1=TABLE3["lambda1"] * each,
            t2=TABLE3["t2"],
            lambda2=TABLE3["lambda2"],
        )


@pytest.mark.parametrize("found", [presets, others])
def test_presets_are_listed(found: object) -> None:
    assert isinstance(found, type(presets))
    assert list(found.titles) == list(found)
    assert {name: preset.title for name, preset in found.items()} == found.titles
    assert found[next(iter(found))] is found[next(iter(found))]  # the same object
    assert "fig1" not in found
    with pytest.raises(wb.SettingError, match=r"^preset = 'fig1': no such preset; choose one of \w+, "):
        found["fig1"]


def test_presets_of_paper_1_have_matching_titles() -> None:
    for preset in presets.values():
        args = preset["CR"].scheme_args
        fields = f"{preset['CR'].workers} workers, alpha = {args['stragglers']}/{args['children']}"
        assert preset.title.startswith(f"Figure {preset.name[3:]}: ")
        assert fields in preset.title

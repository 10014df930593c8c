"""Every figure and table of the five papers is an entry."""

from __future__ import annotations

import pytest

from workbench import SettingError
from workbench.book import PAPERS, Setting, entries, get, names, of_paper
from workbench.book.catalogue import chosen
from workbench.published import presets

LISTED = {
    1: {*presets, "ec2", "cr-misprints"},
    2: {"table3", "cegc-fig2a", "cegc-fig2b", "cegc-fig3", "cegc-fig4"},
    3: {"gcada-fig2", "gcada-numbers", "cada-misprints"},
    4: {
        "agc-fig1", "agc-fig2a", "agc-fig2b", "agc-fig2c", "agc-fig2d", "agc-errors", "agc-replay", "agc-misprints",
    },
    5: {"mmc-fig1a", "mmc-fig1b", "mmc-misprints"},
}  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_everything_listed_is_there(paper: int) -> None:
    assert set(of_paper(paper)) == LISTED[paper]


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"name = 'tabel3': no such name; did you mean 'table3'\?"):
        get("tabel3")


def test_needs_come_first_and_once() -> None:
    order = [entry.name for entry in chosen("all")]
    assert sorted(order) == sorted(names())
    for entry in entries().values():
        for need in entry.needs:
            assert order.index(need) < order.index(entry.name)
    assert [entry.name for entry in chosen("fig10")] == ["ec2", "fig10"]


def test_the_setting_picks() -> None:
    assert (Setting(quick=True).pick(1, 2), Setting().pick(1, 2)) == (1, 2)

"""The catalogue of the book: every figure and table of the papers is an entry, except illustrations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import workbench_book
from workbench_book import PAPERS, Setting, entries, get, names, of_paper
from workbench_book.catalogue import chosen

from workbench import SettingError
from workbench.core.presets.codedreduce import presets

LISTED = {
    1: {*presets, "ec2", "cr-misprints", "cr-table1", "cr-table2", "cr-fig7"},
    2: {"table3", "cegc-fig2a", "cegc-fig2b", "cegc-fig3", "cegc-fig4"},
    3: {"gcada-sweep", "gcada-fig2", "gcada-numbers", "cada-misprints"},
    4: {
        "agc-fig1", "agc-fig2a", "agc-fig2b", "agc-fig2c", "agc-fig2d", "agc-errors", "agc-replay", "agc-misprints",
    },
    5: {"mmc-fig1a", "mmc-fig1b", "mmc-misprints"},
    6: {"sequential", "hierarchical", "pipelined"},
}  # fmt: skip


ROMAN = {"I": 1, "II": 2}
NUMBERED = {  # paper -> its figures and tables
    1: (range(1, 14), (1, 2)),
    2: (range(1, 5), (1, 2, 3)),
    3: (range(1, 3), ()),
    4: (range(1, 3), ()),
    5: (range(1, 2), ()),
    6: ((), ()),  # comparisons without figures
}
DOCS = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "reproduction.md"


def named(titles: list[str]) -> set[tuple[str, int]]:
    """Return figures and tables in a title such as "Figures 4 and 7" or "Figure 2b and table 2"."""
    found = set()
    for title in titles:
        for kind, first, second in re.findall(
            r"\b([Ff]igure|[Tt]able)s? ([IV\d]+)[a-d]?(?: and (\d+)\b)?", title
        ):
            numbers = [ROMAN.get(first) or int(first), *([int(second)] if second else [])]
            found |= {(kind.lower(), number) for number in numbers}
    return found


def illustrations(paper: int) -> set[tuple[str, int]]:
    """Return the figures that the docs list as illustrations without numbers."""
    row = next(
        line
        for line in DOCS.read_text().splitlines()
        if line.startswith(f"| illustrations of paper {paper} |")
    )
    kinds = re.findall(r"(figure|table)s? ([\d, and]+)", row)
    return {(kind, int(number)) for kind, numbers in kinds for number in re.findall(r"\d+", numbers)}


@pytest.mark.parametrize("paper", PAPERS)
def test_of_paper_lists_every_figure_and_table(paper: int) -> None:
    figures, tables = NUMBERED[paper]
    there = {("figure", number) for number in figures} | {("table", number) for number in tables}
    shown, without = named([get(name).title for name in of_paper(paper)]), illustrations(paper)
    assert there - shown == without


@pytest.mark.parametrize("paper", PAPERS)
def test_of_paper_entries_exist(paper: int) -> None:
    assert set(of_paper(paper)) == LISTED[paper]


def test_get_suggests_the_nearest_entry() -> None:
    with pytest.raises(SettingError, match=r"name = 'tabel3': no such name; did you mean 'table3'\?"):
        get("tabel3")


def test_chosen_orders_dependencies_first() -> None:
    order = [entry.name for entry in chosen("all")]
    assert sorted(order) == sorted(names())
    for entry in entries().values():
        for need in entry.needs:
            assert order.index(need) < order.index(entry.name)
    assert [entry.name for entry in chosen("fig10")] == ["ec2", "fig10"]


def test_the_setting_picks() -> None:
    assert (Setting(quick=True).pick(1, 2), Setting().pick(1, 2)) == (1, 2)


def test_entries_finds_a_new_module_at_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "mine.py").write_text(
        "from workbench_book import Entry\nPLACE = (2, 9)\nENTRIES = [Entry('mine', 'Figure 9', print)]\n"
    )
    before = names()
    request.addfinalizer(entries.cache_clear)
    monkeypatch.setattr(workbench_book, "__path__", [*workbench_book.__path__, str(tmp_path)])
    entries.cache_clear()
    assert (get("mine").paper, names().index("mine")) == (2, names().index("cegc-fig4") + 1)
    assert sorted(names()) == sorted([*before, "mine"])

"""Tables of results as LaTeX."""

from __future__ import annotations

import pandas as pd
import pytest

import workbench as wb
from workbench.core.base.results import latex, results
from workbench.core.base.settings import SettingError


def cells(text: str) -> list[list[str]]:
    """Return the cells of a LaTeX table, row by row."""
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0]
    return [row.removesuffix(r" \\").split(" & ") for row in body.strip().split("\n")]


def test_latex_numbers_have_significant_digits() -> None:
    values = [1234.5678, 1.5, 2.0, 1e-9, -0.25, float("nan"), float("inf"), 0.0001234, 1e12]
    found = [row[0] for row in cells(latex(results({"x": values})))]
    assert found[:6] == [
        "1.23e+03".replace("1.23e+03", r"$1.23 \times 10^{3}$"),
        "1.50",
        "2",
        r"$1.00 \times 10^{-9}$",
        "$-0.250$",
        "--",
    ]
    assert found[6:] == [r"$\infty$", "0.000123", r"$1.00 \times 10^{12}$"]
    assert cells(latex(results({"x": [1234.5678]}), digits=6)) == [["1234.57"]]


def test_latex_text_is_escaped_and_headings_have_units() -> None:
    table = results({"scheme": [r"a_b & 50 % \x {y} ~^#$"], "time_to": [1.0], "bytes": [12], "ok": [True]})
    text = table.latex()  # type: ignore[attr-defined]
    assert r"scheme & time to (s) & bytes (B) & ok \\" in text
    (row,) = cells(text.replace(r"50 \% ", "50 ").replace(r"\& ", "and "))
    assert row[0].startswith(r"a\_b and 50 \textbackslash{}x \{y\} \textasciitilde{}\textasciicircum{}\#\$")
    assert row[1:] == ["1", "12", "True"]


def test_latex_of_a_table_with_named_rows_and_a_caption() -> None:
    table = pd.DataFrame({"time": [0.5]}, index=pd.Index(["CR"], name="scheme"))
    text = latex(table, caption="Time_of rounds", label="tab:time")
    assert text.startswith("\\begin{table}")
    assert r"\caption{Time\_of rounds}" in text
    assert r"\label{tab:time}" in text
    assert cells(text) == [["CR", "0.500"]]


def test_latex_of_the_tables_that_users_get(tmp_path: object) -> None:
    traces = wb.compare([wb.Experiment(scheme=s, workers=6, rounds=5) for s in ("UMW", "GC")])
    found = wb.figures.speedups(traces, target=0.0)
    assert [row[:3] for row in cells(found.latex())] == [["UMW", "--", "--"], ["GC", "--", "--"]]  # type: ignore[operator]


@pytest.mark.parametrize("digits", [0, -1, 99])
def test_latex_refuses_digits(digits: int) -> None:
    with pytest.raises(SettingError, match=r"digits = .*: take 1 to 17"):
        latex(results({"x": [1.0]}), digits)

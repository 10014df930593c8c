"""The papers' notebooks: their contents, and their execution."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.lab.notebooks import shipped
from workbench_book import texts
from workbench_book.catalogue import PAPERS, Outcome, of_paper
from workbench_book.running import find
from workbench_book.setting import Setting, find_traces
from workbench_book.values import Picture, Result, number, printed
from workbench_book.verdicts import columns_of, of_result

if TYPE_CHECKING:
    import plotly.graph_objects as go

NOTEBOOKS = shipped("notebooks/papers")
STYLE = f"<style>{(Path(__file__).parent / 'notebook.css').read_text(encoding='utf-8')}</style>"


def setting_from(quick: bool, traces: str = "", measure: bool = True, seed: int = 0) -> Setting:
    """Return the setting for a notebook's parameters. Empty `traces`: as found by `find_traces`."""
    return Setting(quick=quick, seed=seed, traces=find_traces(traces or None), measure=measure)


def show(
    paper: int, setting: Setting, folder: str | Path = "reports", progress: bool = True
) -> list[Outcome]:
    """Compute a paper's entries (or read cached ones) and display them in the notebook: text, tables and figures."""
    found: list[Outcome] = []
    for name in of_paper(paper):
        outcome = find(name, setting, Path(folder), progress=progress)[-1]
        found.append(outcome)
        _display(outcome, setting)
    return found


def _display(outcome: Outcome, setting: Setting) -> None:
    from IPython import display

    shown: Any = display  # IPython has no types
    shown.display(shown.HTML(STYLE + without_pictures(outcome, setting)))
    for each in outcome.result.pictures if outcome.result else ():
        shown.display(figure(each))
        shown.display(shown.HTML(f"<p><small>{texts.caption(each)}</small></p>"))


def without_pictures(outcome: Outcome, setting: Setting) -> str:
    """Return an entry's HTML without its figures."""
    from dataclasses import replace

    bare = (
        outcome if outcome.result is None else replace(outcome, result=replace(outcome.result, pictures=()))
    )
    return texts.entry(bare, setting)


def figure(each: Picture) -> go.Figure:
    """Return a stored picture as a light plotly figure."""
    from workbench.lab.figures.page import Figure
    from workbench.lab.figures.style import register

    register()
    return Figure({"data": list(each.data), "layout": {**each.light, "template": "workbench_light"}})


def execute_all(setting: Setting, output: Path) -> Iterator[Path]:
    """Execute every paper's notebook into `output`/papers, with cached entries."""
    from workbench.lab.notebooks import execute

    target = output.resolve() / "papers"
    for paper in PAPERS:
        for notebook in sorted(NOTEBOOKS.glob(f"{paper}-*.ipynb")):
            target.mkdir(parents=True, exist_ok=True)
            execute(notebook, target / notebook.name, _parameters(setting, output), Path.cwd())
            yield output / "papers" / notebook.name


def _parameters(setting: Setting, output: Path) -> dict[str, Any]:
    return {
        "quick": setting.quick,
        "traces": str(setting.traces.resolve()) if setting.traces else "",
        "measure": setting.measure,
        "seed": setting.seed,
        "folder": str(output.resolve()),
    }


def summary(outcome: Outcome) -> str:
    """Return one line: name and verdict."""
    name = f"{outcome.entry.name:15}"
    if outcome.result is None:
        return f"{name} ! not computed: {outcome.error}"
    verdict = of_result(outcome.result)
    return f"{name} {verdict.symbol} {verdict.text}"


def numbers(result: Result) -> Iterator[str]:
    """Return an entry's lines, claims and misprints as text."""
    for line in result.lines:
        paper = "" if line.published is None else f"paper {printed(line.published)}, "
        ours = [
            f"{c} {number(line.values[c], line.errors.get(c))}"
            for c in columns_of(result)
            if c in line.values
        ]
        yield f"{line.what}: {paper}{', '.join(ours)} {line.unit}".rstrip()
    for claim in result.claims:
        yield f"{texts.claimed(claim).text}: {claim.text} ({claim.found})"
    for m in result.misprints:
        yield f"{m.where}: printed {m.printed}; found {m.found}"
    yield from result.text
    if result.measured:
        yield result.measured

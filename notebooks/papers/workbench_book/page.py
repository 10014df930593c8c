"""Page of the book: one file that needs no network, light and dark, with contents and an overview of the verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.core.base.files import atomic_write
from workbench_book import texts
from workbench_book.catalogue import PAPERS, Outcome
from workbench_book.setting import Setting
from workbench_book.verdicts import Verdict, of_result

HERE = Path(__file__).parent
LEGEND = (
    Verdict("agrees", "agrees: every number within the stated per cent"),
    Verdict("ordering", "same ordering: numbers differ, but what is larger in the paper is larger here"),
    Verdict("differs", "differs: with the reason"),
    Verdict("holds", "holds: the paper prints no numbers, and what it says in words is so here"),
    Verdict(
        "fitted",
        "fitted to: the paper's numbers are what constants were fitted to, so that ours are near says nothing",
    ),
    Verdict(
        "open",
        "open: nothing to compare with, or what is needed is not here, or the difference is within chance or hangs on"
        " a constant that the paper does not state",
    ),
)


def write(outcomes: Sequence[Outcome], setting: Setting, path: Path) -> Path:
    """Write the page of some entries atomically.

    Parameters
    ----------
    outcomes
        Entries with their results, in the order of the book.
    setting
        Options with which they were computed. The page shows them.
    path
        File of the page. Its folder is created if it does not exist.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, "w") as out:
        out.write(html(outcomes, setting))
    return path


def html(outcomes: Sequence[Outcome], setting: Setting) -> str:
    """Return the page as text."""
    from plotly.offline import get_plotlyjs

    from workbench.lab.figures.fit import page_script

    papers = sorted({each.entry.paper for each in outcomes})
    body = "\n".join(
        _paper(paper, [o for o in outcomes if o.entry.paper == paper], setting) for paper in papers
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Reproduction: five papers on straggler-tolerant gradient aggregation</title>
<style>{(HERE / "page.css").read_text(encoding="utf-8")}</style></head>
<body>{_contents(outcomes, papers)}
<main>{_intro(outcomes, setting)}{_overview(outcomes)}{body}</main>
<script>{get_plotlyjs()}</script><script>{page_script()}</script>
<script type="application/json" id="settings">{json.dumps(_settings())}</script>
<script>{(HERE / "page.js").read_text(encoding="utf-8")}</script></body></html>
"""


def _settings() -> dict[str, Any]:
    """Return the settings that all figures share: styles, and the configuration of plotly.js."""
    import plotly.io as pio

    from workbench.core.base.page import CONFIG
    from workbench.lab.figures.style import register

    register()
    looks = {theme: pio.templates[f"workbench_{theme}"].to_plotly_json() for theme in ("light", "dark")}
    return {"templates": looks, "config": CONFIG}


def _verdict(outcome: Outcome) -> Verdict:
    return Verdict("differs", "not computed") if outcome.result is None else of_result(outcome.result)


def _contents(outcomes: Sequence[Outcome], papers: Sequence[int]) -> str:
    items = []
    for paper in papers:
        inside = "".join(
            f'<li><a href="#{o.entry.name}"><span class="mark {_verdict(o).kind}">{_verdict(o).symbol}</span>'
            f" {escape(_short(o.entry.title))}</a></li>"
            for o in outcomes
            if o.entry.paper == paper
        )
        items.append(
            f'<li><a href="#paper{paper}"><b>{paper}. {escape(_name(paper))}</b></a><ul>{inside}</ul></li>'
        )
    return (
        '<nav aria-label="Contents"><button id="theme" type="button">dark</button><p><a href="#top"><b>Reproduction</b>'
        f'</a></p><ul><li><a href="#overview">Every verdict</a></li>{"".join(items)}</ul></nav>'
    )


def _name(paper: int) -> str:
    title = PAPERS[paper]
    return title[title.index("(") + 1 : title.index(")")] if "(" in title else title.split(":")[0]


def _short(title: str) -> str:
    cut = title.split(":")[0]
    return cut if len(cut) <= 44 else cut[:42].rsplit(" ", 1)[0] + " …"


def _intro(outcomes: Sequence[Outcome], setting: Setting) -> str:
    form = (
        "Quick form: fewer rounds, draws and smaller data than the full one" if setting.quick else "Full form"
    )
    real = sum(bool(o.result and any("measured" in line.values for line in o.result.lines)) for o in outcomes)
    runs = (
        f"{real} entries have a part that was measured on real processes of this machine"
        if real
        else "nothing here was measured on real processes"
    )
    legend = "".join(f"<li>{texts.badge(verdict)}</li>" for verdict in LEGEND)
    return f"""<h1 id="top">Five papers, figure by figure</h1>
<p>Every number in a column of ours was computed by the command that wrote this page (workbench {__version__},
seed {setting.seed}); the papers' numbers are as printed. {escape(form)}; {runs}.</p>
<p><span class="tag">simulated</span> the schemes' real programs on a virtual clock, with drawn computing times and a
model of links. <span class="tag">computed</span> formulas and exhaustive enumeration.
<span class="tag real">real</span> seconds that passed: recorded on EC2 by a paper's authors, or measured on this
machine at scaled settings (fewer workers, shorter times).</p><ul class="legend">{legend}</ul>"""


def _overview(outcomes: Sequence[Outcome]) -> str:
    rows = "".join(
        f"<tr><td>{o.entry.paper}</td><td><a href='#{o.entry.name}'>{escape(o.entry.title)}</a></td>"
        f"<td>{texts.verdicts(o.result) if o.result else texts.badge(_verdict(o))}</td>"
        f"<td><code>{o.entry.name}</code></td></tr>"
        for o in outcomes
    )
    table = texts.text_table(("paper", "entry", "verdict", "name"), rows)
    return f'<h2 id="overview">Every verdict</h2>{table}'


def _paper(paper: int, outcomes: Sequence[Outcome], setting: Setting) -> str:
    none = "<p>No misprints were found in this paper.</p>" if paper == 2 else ""
    inside = "\n".join(texts.entry(outcome, setting) for outcome in outcomes)
    return f'<h2 id="paper{paper}">{paper}. {escape(PAPERS[paper])}</h2>{none}{inside}'

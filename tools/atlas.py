"""The site's page of recorded stragglers: a card for each available recording, and a table of public sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from pathlib import Path

import workbench as wb
from workbench.analysis.recordings import Recording, at_hand, known, load
from workbench.lab.figures.page import Figure

MAX_SHOWN_JOBS = 4  # jobs of one file that are shown
HEAD = """# Recorded stragglers

Recordings that were at hand when this site was built. `wb.traces.load(name)` loads them.
`wb.diagnose` names who makes their steps long ([how](docs/how-to/diagnose-stragglers.md)).
Nothing of others is shipped.
A file that is put into the folder that `wb.traces.home()` names, or one that WORKBENCH_RECORDINGS names, has its card
in the next build.

| recording | files | where to get it | licence |
| --- | --- | --- | --- |
"""


def cards() -> Iterator[Recording]:
    """Yield a simulated run, so that the page is never empty, then some jobs of each available public recording."""
    delay_model = {"kind": "markov", "p_slow": 0.05, "p_recover": 0.3, "factor": 5.0}
    made = wb.run(wb.Experiment(scheme="UMW", workers=12, rounds=150, delays=delay_model))
    rows = load(made).frame.assign(recording="made-here")
    yield Recording.of_rows(rows, "made-here", title="a run on the virtual clock, made for this page")
    for file in at_hand().values():
        found = load(file)
        yield from (found.job(name) for name in found.names[:MAX_SHOWN_JOBS])


def card(recording: Recording, static: Path) -> str:
    """Return heat map, description, and what replays keep of a recording. Write its metadata into a file."""
    name = " ".join(dict.fromkeys((recording.source["name"], recording.names[0])))
    file = f"{name.replace(' ', '-')}.croissant.json"
    (static / file).write_text(json.dumps(recording.croissant(), indent=2), encoding="utf-8")
    drawn = recording.figure().to_plotly_json()
    picture = Figure(drawn["data"], drawn["layout"], skip_invalid=True)
    html = picture.to_html(full_html=False, include_plotlyjs=False)
    kept = recording.replays().round(3).to_html(border=0)
    text = escape(str(recording.card()))
    links = f'<p><a href="_static/{file}">Metadata as Croissant</a></p>'
    body = f"{html}<pre style='white-space: pre-wrap'>{text}</pre><p>What replays keep:</p>{kept}{links}"
    title = recording.source.get("title", "")
    return f"\n## {name}\n\n{title}.\n\n```{{raw}} html\n{body}\n```\n"


def _escaped(text: str) -> str:
    return text.replace("*", "\\*")


def page(static: Path) -> str:
    """Return the page. Write the metadata files into the folder of static files."""
    rows = [
        f"| {source.title} | `{'`, `'.join(source.files)}` | {_escaped(source.where)} | {source.licence} |"
        for source in known().values()
        if source.files
    ]
    return HEAD + "\n".join(rows) + "\n" + "".join(card(each, static) for each in cards())

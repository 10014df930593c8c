"""Report: one page, which needs no network, about a run, a comparison, a forecast or a sweep."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.analysis.planning.quantities import quantity, quantity_of
from workbench.analysis.tables import shards
from workbench.analysis.tables.rows import settings_of
from workbench.analysis.tables.status import is_run
from workbench.analysis.tables.table import Runs, runs
from workbench.core.base import text as yaml
from workbench.core.base.arguments import kinds_checked
from workbench.core.base.files import write_file
from workbench.core.base.page import CONFIG
from workbench.core.base.reading import read_text
from workbench.core.base.settings import SettingError, check_kind, check_writable, path_of, short
from workbench.core.base.version import __version__
from workbench.core.experiment import Experiment
from workbench.core.forecasting import forecast
from workbench.core.trace.layout import PLAN, TRACE
from workbench.core.trace.trace import Trace, versions
from workbench.lab.batch.run import restore
from workbench.lab.figures import bands, convergence, gantt, importance, round_times, speedups, stream
from workbench.lab.figures.design import style_sheet
from workbench.lab.figures.fit import page_script
from workbench.lab.figures.inputs import labels, plural, shared
from workbench.lab.figures.labels import metric_words, setting, unit, value_text, with_unit
from workbench.lab.figures.labels import short as short_metric
from workbench.lab.figures.page import dark_style
from workbench.lab.figures.passes import data_share, pass_times, verdict
from workbench.lab.figures.speedups import common_target

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent / "js"
MAX_BYTES = 6_000_000  # max bytes of a page
MAX_RUNS = 24  # max number of runs of a comparison
MAX_ROWS = 200  # max rows of a table
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; img-src data: blob:"
)


@dataclass
class Report:
    """Contents of a page: title, first sentence, tables (columns, rows), figures, settings, and commands."""

    kind: str
    title: str
    lead: str
    experiments: Sequence[Experiment]
    info: dict[str, Any]
    tables: list[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = field(default_factory=list)
    figures: list[go.Figure] = field(default_factory=list)
    engine: str = "sim"
    command: str = ""
    files: dict[str, str] = field(default_factory=dict)  # name -> text that the reader can save
    notes: list[str] = field(default_factory=list)
    constant: dict[str, Any] = field(default_factory=dict)  # settings of all runs of a sweep


@kinds_checked
def report(
    source: Any, path: str | Path, *, target: float | None = None, metric: str = "loss", trust: bool = False
) -> Path:
    """Write one HTML page with settings, tables, figures, versions, and how to reproduce them; return its path.

    The page is one file under 6 MB, and is opened without a network. It uses the light or dark theme of the reader's
    system.

    Parameters
    ----------
    source
        A run (`Trace`), an experiment, a list of these, a table of runs (`wb.runs(folder)`), or the folder of a run or
        of a sweep. A run of a sweep without notebooks (SWEEP/RUN) is executed again. An explorer
        gives its finished runs, or the forecast of its settings if nothing has run.
    path
        The file; ends in .html. Its folder must exist.
    target, metric
        Value of the metric by which runs are compared; default: a value that all runs reach.
    trust
        Load runs whose settings name code of somebody else.

    Raises
    ------
    SettingError
        There is nothing to report, the name does not end in .html, or the page would be larger than 6 MB.

    >>> import tempfile, workbench as wb
    >>> trace = wb.run(wb.Experiment(scheme="UMW", workers=4, rounds=5))
    >>> file = report(trace, Path(tempfile.mkdtemp()) / "page.html")
    >>> "UMW: 5 rounds" in file.read_text(encoding="utf-8")
    True
    """
    file = path_of(path, "path")
    if file.suffix != ".html":
        raise SettingError(f"path = {str(path)!r}: a report is one page; end it in .html")
    if target is not None:
        check_kind("target", target, float)
    check_writable(file, "path")
    content = html(_contents(source, target, metric, trust)).encode()
    if len(content) > MAX_BYTES:
        raise SettingError(
            f"source: its page would have {len(content) / 1e6:.1f} MB, and 6 are allowed; give fewer runs"
        )
    write_file(file, content)
    return file


def _contents(source: Any, target: float | None, metric: str, trust: bool) -> Report:
    if isinstance(source, (str, Path)):
        source = _read(path_of(source, "source"), trust)
    if hasattr(source, "experiments") and hasattr(source, "traces") and not isinstance(source, Runs):
        source = list(source.traces) or list(source.experiments)  # an explorer
    if isinstance(source, Runs):
        return _of_sweep(source, metric)
    every = [source] if isinstance(source, (Trace, Experiment)) else source
    if not isinstance(every, Sequence) or not every:
        raise SettingError(
            f"source = {short(source)}: give a run, a list of runs, wb.runs(folder) or a folder"
        )
    every = [_read(path_of(one, "source"), trust) if isinstance(one, (str, Path)) else one for one in every]
    settings = [one for one in every if isinstance(one, Experiment)]
    if len(settings) == len(every):
        return _of_settings(settings)
    traces = [_checked(one, place) for place, one in enumerate(every)]
    if len(traces) > MAX_RUNS:
        why = f"has {len(traces)} runs, and {MAX_RUNS} can be compared; save them and give their folder"
        raise SettingError(f"source: {why}")
    return _of_run(traces[0]) if len(traces) == 1 else _of_comparison(traces, target, metric)


def _checked(one: Any, place: int) -> Trace:
    if not isinstance(one, Trace):
        raise SettingError(f"source[{place}] = {type(one).__name__}: is not a run; give what wb.run returns")
    if not len(one.columns["time"]):
        raise SettingError(f"source[{place}]: the run of {one.label} finished no round")
    return one


def _read(folder: Path, trust: bool) -> Trace | Runs:
    if not folder.is_dir() and not shards.files(folder.parent):
        raise SettingError(f"source = {str(folder)!r}: is not the folder of a run or a sweep")
    if not folder.is_dir():
        folder = restore(folder, trust)
    if is_run([path.name for path in folder.iterdir()]):
        inside = folder / TRACE  # run folder that a sweep's notebook has written
        return Trace.load(inside if inside.is_dir() else folder, trust=trust)
    found = runs(folder, progress=False)
    if not len(found):
        raise SettingError(f"source = {str(folder)!r}: has no runs")
    return found


# ---------------------------------------------------------------- what is in it


def _of_run(trace: Trace) -> Report:
    e, times = trace.experiment, np.asarray(trace.columns["time"], dtype=float)
    loss = f", training loss {trace.columns['loss'][-1]:.4g} at the end" if "loss" in trace.columns else ""
    title = f"{trace.label}: {plural(len(times), 'round')} in {quantity_of(float(times[-1]))}{loss}"
    made = Report("a run", title, _sentence([trace]), [e], trace.info, engine=trace.engine)
    made.tables.append(("Result", *_results([trace], None, "loss")))
    made.figures = [convergence([trace]), round_times([trace])]
    if len(trace.event_rows):
        middle = int(np.argsort(np.diff(times, prepend=0.0))[len(times) // 2])
        made.figures += [stream(trace), gantt(trace, middle)]
        made.notes.append(f"The last figure is the round of median length, round {middle}.")
    return _with_settings(made, [trace.label])


def _of_comparison(traces: Sequence[Trace], target: float | None, metric: str) -> Report:
    goal = common_target(traces, metric) if target is None else target
    title = _finding(traces, goal, metric)
    made = Report("a comparison", title, _sentence(traces), [t.experiment for t in traces], traces[0].info)
    made.engine = traces[0].engine
    made.tables.append(("Results", *_results(traces, goal, metric)))
    made.figures = [convergence(traces, metric, target=goal), round_times(traces)]
    return _with_settings(made, labels(traces))


def _finding(traces: Sequence[Trace], goal: float, metric: str) -> str:
    table = speedups(traces, goal, metric).sort_values("seconds")
    met = table[np.isfinite(table["seconds"])]
    what = f"a {short_metric(metric)} of {goal:.4g}"
    if not len(met):
        return f"None of {len(table)} runs reaches {what}"
    first, base = met.iloc[0], float(met["seconds"].iloc[0])
    others = [f"{row.scheme} {row.seconds / base:.2g} times" for row in met.iloc[1:].itertuples()]
    longer = f": {', '.join(others)} as long" if others else ""
    rest = len(table) - len(met)
    never = f"; {rest} never {'does' if rest == 1 else 'do'}" if rest else ""
    return f"{first['scheme']} reaches {what} first{longer}{never}"


def _of_settings(experiments: Sequence[Experiment]) -> Report:
    named = [Trace(e, "sim", {"time": np.zeros(0)}, [], np.zeros(0)) for e in experiments]
    names = labels(named)
    found = {name: forecast(e) for name, e in zip(names, experiments, strict=True)}
    head, notes = verdict(found)
    lead = "; ".join(["Forecast of the settings, nothing has run", *notes])
    made = Report("a forecast", f"Expected: {head}", f"{lead}.", experiments, _here())
    passes = pass_times(found)
    columns = ["scheme", "mean round", "pass over the data", "times as long"]
    columns += ["load", "messages a round", "bytes a round"]
    rows = [
        [
            name, quantity_of(f.mean), quantity_of(passes[name]), f"{passes[name] / min(passes.values()):.3g}×",
            f"{100 * f.load:.3g} %", quantity(f.messages, "messages"), quantity(f.bytes, "bytes"),
        ]
        for name, f in found.items()
    ]  # fmt: skip
    made.tables.append(("Forecast", columns, rows))
    made.figures = [round_times({f"{name} forecast": f for name, f in found.items()})]
    return _with_settings(made, names)


def _of_sweep(table: Runs, metric: str) -> Report:
    done = table.done
    if not len(done):
        raise SettingError("source: no run of this table is done; wait for one")
    means = table.mean("time")
    by, result = means.attrs["by"], "loss" if metric not in done else metric
    losses = table.mean(result)["mean"] if result in done else None
    made = Report("a sweep", _of_many(table), f"{plural(len(table), 'run')}, {len(done)} done.", [], _here())
    columns = [*map(with_unit, by), "runs", "time (s)"]
    columns += [metric_words(result)] if losses is not None else []
    rows = [
        [*(value_text(name, row[name]) for name in by), str(int(row["n"])), f"{row['mean']:.4g}"]
        + ([f"{losses.iloc[place]:.4g}"] if losses is not None else [])
        for place, row in enumerate(means.to_dict("records"))
    ]
    made.tables.append(("Means", columns, rows[:MAX_ROWS]))
    if len(rows) > MAX_ROWS:
        made.notes.append(f"{len(rows) - MAX_ROWS} more rows are not shown.")
    if by:
        made.figures.append(bands(means))
    try:
        made.figures.append(importance(table))
    except SettingError as reason:
        made.notes.append(f"No figure says which setting decides: {reason}")
    return _with_plan(made, table)


def _of_many(table: Runs) -> str:
    done, differing = table.done, [name for name in table.differing if name != "seed"]
    fastest = table.mean("time").sort_values("mean").iloc[0]
    shown = [name for name in differing[:3] if name in fastest]
    who = ", ".join(f"{setting(n)} {value_text(n, fastest[n])} {unit(n)}".strip() for n in shown)
    short_time = quantity_of(float(fastest["mean"]))
    return f"{plural(len(done), 'run')}: the shortest take {short_time}" + (f", with {who}" if who else "")


def _sentence(traces: Sequence[Trace]) -> str:
    engines = sorted({trace.engine for trace in traces})
    how = {"sim": "simulated on the virtual clock", "mpi": "run by real processes"}
    return f"{shared(traces)}. {' and '.join(how.get(each, each) for each in engines).capitalize()}.".lstrip(
        ". "
    )


def _results(
    traces: Sequence[Trace], goal: float | None, metric: str
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the columns of the table of results, and a row for each run."""
    shares = [data_share(trace) for trace in traces]
    table = None if goal is None else speedups(traces, goal, metric)
    rows = []
    for place, (name, trace) in enumerate(zip(labels(traces), traces, strict=True)):
        times = np.asarray(trace.columns["time"], dtype=float)
        row = {"run": name, "rounds": str(len(times)), "time": quantity_of(float(times[-1]))}
        row["mean round"] = quantity_of(float(times[-1] / len(times)))
        if metric in trace.columns:
            row[metric_words(metric)] = f"{trace.columns[metric][-1]:.4g}"
        if table is not None:
            seconds, factor = table["seconds"].iloc[place], table["times_as_long"].iloc[place]
            texts = (quantity_of(float(seconds)), f"{factor:.3g}×") if seconds == seconds else ("never", "–")
            row |= dict(zip((f"time to {goal:.4g}", "times as long"), texts, strict=True))
        if min(shares) < 1:
            row["data in a round"] = f"{100 * shares[place]:.3g} %"
        rows.append(row | {n: quantity(float(np.sum(trace.columns[n])), n) for n in ("messages", "bytes")})
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return columns, [[row.get(column, "–") for column in columns] for row in rows]


# ---------------------------------------------------------------- how to reproduce it


def _with_settings(made: Report, names: Sequence[str]) -> Report:
    """Add each experiment as a file of settings, and the commands that run them."""
    slugs = ["".join(c if c.isalnum() else "-" for c in name).strip("-") or "run" for name in names]
    for slug, e in zip(slugs, made.experiments, strict=True):
        made.files[f"{slug}.yaml"] = yaml.dump(e.model_dump(mode="json"))
    real = " --engine mpi" if made.engine == "mpi" else ""
    made.command = "\n".join(
        f"workbench run {slug}.yaml{real} -o runs/{slug}" for slug in dict.fromkeys(slugs)
    )
    return made


def _with_plan(made: Report, table: Runs) -> Report:
    plan = None if table.root is None else table.root / PLAN
    if plan is not None and plan.is_file():
        kept = json.loads(read_text(plan))
        made.files["sweep.yaml"] = yaml.dump(kept.get("sweep", kept))
        made.command = "workbench sweep sweep.yaml -o runs/again"
    made.files["runs.csv"] = table.table.to_csv(index=False)
    settings = [name for name in table.settings if name in table.table and table.table[name].notna().any()]
    constant = {name: table.table[name].dropna().iloc[0] for name in settings if name not in table.differing}
    made.constant = constant
    return made


def _here() -> dict[str, Any]:
    import platform

    return {"versions": versions(), "platform": platform.platform()}


# ---------------------------------------------------------------- the page


@cache
def _library() -> str:
    """Return plotly.js and the functions that fit figures, compressed, as base64."""
    import gzip

    from plotly.offline import get_plotlyjs

    return b64encode(gzip.compress(f"{get_plotlyjs()}\n;{page_script()}".encode(), 6, mtime=0)).decode()


def html(made: Report) -> str:
    """Return a report as a page."""
    when = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    body = [
        f'<p class="note">Straggler workbench, report of {made.kind}, {when}</p><h1>{escape(made.title)}</h1>'
    ]
    body.append(f"<p>{escape(made.lead)}</p>")
    first, *others = made.tables
    body.append(_table(*first))
    body += [_figure(figure) for figure in made.figures]
    body += [f'<p class="note">{escape(note)}</p>' for note in made.notes]
    body += [_table(*table) for table in others]
    body += [_settings(made), _reproduce(made)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:;base64,=">'
    head += f"<title>{escape(made.title)}</title>"
    css, script = (read_text(HERE / f"report.{kind}") for kind in ("css", "js"))
    config = json.dumps(CONFIG).replace("<", "\\u003c")  # "</script>" in a text would end the script
    data = f'<script type="application/json" id="config">{config}</script>'
    data += f'<script type="text/plain" id="library">{_library()}</script>' if made.figures else ""
    head += f"<style>{style_sheet()}{css}</style>{dark_style()}"
    main = f"<main>{''.join(body)}</main>{data}<script>{script}</script>"
    body_tag = '<body class="wb" data-jp-theme-light="true">'
    return f'<!doctype html><html lang="en"><head>{head}</head>{body_tag}{main}</body></html>'


def _figure(figure: go.Figure) -> str:
    height, text = figure.layout.height or 480, figure.to_json().replace("<", "\\u003c")
    label = escape(figure.layout.title.text or "figure")
    box = f'<div class="wb-plot" role="img" aria-label="{label}" style="height:{height}px"></div>'
    return f'<figure>{box}<script type="application/json">{text}</script></figure>'


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    lines = (f'<tr><th scope="row">{escape(row[0])}</th>{_cells(columns, row)}</tr>' for row in rows)
    return (
        f'<h2>{escape(title)}</h2><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cells(columns: Sequence[str], row: Sequence[str]) -> str:
    """Return the cells of a row; a narrow page shows the name of the column beside each."""
    pairs = zip(columns[1:], row[1:], strict=True)
    return "".join(f'<td data-column="{escape(name)}">{escape(cell)}</td>' for name, cell in pairs)


def _settings(made: Report) -> str:
    """Return the settings that all experiments have in common, and those that differ."""
    every = [settings_of(e) for e in made.experiments] or [made.constant]
    names = list(dict.fromkeys(name for each in every for name in each))
    differing = [name for name in names if len({repr(each.get(name)) for each in every}) > 1]
    common = "".join(_pair(name, every[0].get(name)) for name in names if name not in differing)
    given = {n: [value_text(n, e[n]) for e in every if e.get(n) is not None] for n in differing}
    others = "".join(_pair(name, ", ".join(dict.fromkeys(texts))) for name, texts in given.items())
    differ = f"<p>What differs:</p><dl>{others}</dl>" if others else ""
    return f"<h2>Settings</h2><dl>{common}</dl>{differ}"


def _pair(name: str, value: Any) -> str:
    if value is None or (hasattr(value, "__len__") and not len(value)):
        return ""
    return f"<div><dt>{escape(with_unit(name))}</dt><dd>{escape(value_text(name, value))}</dd></div>"


def _reproduce(made: Report) -> str:
    links = ", ".join(_link(name, text) for name, text in made.files.items())
    settings = "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"
        for name, text in made.files.items()
        if name.endswith(".yaml")
    )
    known = {"workbench": __version__, **made.info.get("versions", {})}
    text = ", ".join(f"{name} {value}" for name, value in known.items())
    where = f"; {made.info['platform']}" if "platform" in made.info else ""
    command = f"<pre>{escape(made.command)}</pre>" if made.command else ""
    return (
        f"<h2>Reproduce</h2>{command}<p>Files in this page: {links}.</p>{settings}"
        f'<p class="note">{escape(text)}{escape(where)}</p>'
    )


def _link(name: str, text: str) -> str:
    """Return a link by which a reader saves a text as a file."""
    address = f"data:text/plain;base64,{b64encode(text.encode()).decode()}"
    return f'<a download="{escape(name)}" href="{address}">{escape(name)}</a>'

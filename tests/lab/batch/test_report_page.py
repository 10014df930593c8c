"""Reports: one page without a network, with settings, tables, figures, versions, and files that reproduce them."""

from __future__ import annotations

import base64
import os
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import workbench as wb
from workbench.analysis.planning.quantities import quantity_of
from workbench.cli.report import report as command
from workbench.core.base.settings import SettingError
from workbench.core.base.version import __version__
from workbench.lab.batch import report_page as module
from workbench.lab.batch.report_page import MAX_BYTES, report

ROOT = Path(__file__).resolve().parents[3]
P = {"workers": 6, "rounds": 8, "delays": {"kind": "pareto"}, "problem_args": {"samples": 60}}


@pytest.fixture(scope="module")
def traces() -> list[wb.Trace]:
    return wb.compare([wb.Experiment(scheme=s, **P) for s in ("UMW", "GC")])


def saved(page: str) -> dict[str, str]:
    """Return the files that a reader can save from a page."""
    links = re.findall(r'download="([^"]+)" href="data:text/plain;base64,([^"]+)"', page)
    return {name: base64.b64decode(text).decode() for name, text in links}


def read(path: Path) -> str:
    assert path.stat().st_size < MAX_BYTES
    page = path.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="(?!data:)', page)  # nothing of other files or hosts
    assert "Content-Security-Policy" in page
    assert f"workbench {__version__}" in page
    return page


def figures(page: str) -> int:
    return page.count('<div class="wb-plot"')


def test_report_of_a_run_reproduces_it(traces: list[wb.Trace], tmp_path: Path) -> None:
    page = read(report(traces[1], tmp_path / "run.html"))
    took = quantity_of(float(traces[1].columns["time"][-1]))  # in the heading as in the table
    assert f"<h1>GC: 8 rounds in {took}" in page
    assert f'<td data-column="time">{took}</td>' in page
    assert figures(page) == 4
    assert "workbench run GC.yaml -o runs/GC" in page
    assert "<dt>latency of the links (s)</dt>" in page
    (tmp_path / "GC.yaml").write_text(saved(page)["GC.yaml"])
    again = wb.run(wb.Experiment.read(tmp_path / "GC.yaml"))
    assert again.same(traces[1])


def test_report_of_a_comparison_says_who_is_first(traces: list[wb.Trace], tmp_path: Path) -> None:
    page = read(report(traces, tmp_path / "page.html", target=0.5))
    seconds = {trace.label: trace.time_to(0.5) for trace in traces}
    first, second = sorted(seconds, key=seconds.__getitem__)
    longer = seconds[second] / seconds[first]
    assert (
        f"<h1>{first} reaches a training loss of 0.5 first: {second} {longer:.2g} times as long</h1>" in page
    )
    assert sorted(saved(page)) == ["GC.yaml", "UMW.yaml"]
    assert "None of 2 runs reaches" in read(report(traces, tmp_path / "never.html", target=-1.0))


def test_report_of_folders_and_of_a_table(traces: list[wb.Trace], tmp_path: Path) -> None:
    for place, trace in enumerate([*traces, *wb.compare([t.experiment.replace(seed=5) for t in traces])]):
        trace.save(tmp_path / "runs" / f"{place}")
    assert "report of a run" in read(report(tmp_path / "runs" / "0", tmp_path / "one.html"))
    assert "report of a comparison" in read(
        report([tmp_path / "runs/0", tmp_path / "runs/1"], tmp_path / "two.html")
    )
    for source in (tmp_path / "runs", wb.runs(tmp_path / "runs", progress=False)):
        page = read(report(source, tmp_path / "all.html"))
        assert "report of a sweep" in page
        assert "<h1>4 runs: the shortest take" in page
        assert saved(page)["runs.csv"].count("\n") == 5
    result = CliRunner().invoke(command, [str(tmp_path / "runs"), "-o", str(tmp_path / "cli.html")])
    assert result.output.strip() == str(tmp_path / "cli.html")
    assert "report of a sweep" in read(tmp_path / "cli.html")


def test_report_of_a_sweep_names_settings_and_units(tmp_path: Path) -> None:
    grid = {"scheme": ["UMW", "GC"], "link.latency": [0.001, 0.01]}
    wb.batch.sweep({"base": P, "grid": grid}, tmp_path / "sweep", progress=False)
    page = read(report(tmp_path / "sweep", tmp_path / "page.html"))
    assert "latency of the links 0.001 s</h1>" in page
    assert ">latency of the links (s)</th>" in page


def test_report_of_a_sweep_has_its_plan(tmp_path: Path) -> None:
    plan = {"base": {k: v for k, v in P.items() if k != "delays"}, "grid": {"scheme": ["UMW", "GC"]}}
    wb.batch.sweep(plan, tmp_path / "sweep", progress=False)
    page = read(report(tmp_path / "sweep", tmp_path / "page.html"))
    assert "workbench sweep sweep.yaml -o runs/again" in page
    (tmp_path / "again.yaml").write_text(saved(page)["sweep.yaml"])
    assert wb.batch.Sweep.read(tmp_path / "again.yaml").items()  # it can be run again
    (run,) = list((tmp_path / "sweep").glob("*UMW*"))
    assert "<h1>UMW: 8 rounds" in read(report(run, tmp_path / "run.html"))


def test_report_of_an_explorer(traces: list[wb.Trace], tmp_path: Path) -> None:
    explorer: Any = SimpleNamespace(traces=[], experiments=[trace.experiment for trace in traces])
    page = read(report(explorer, tmp_path / "page.html"))
    assert "report of a forecast" in page
    assert figures(page) == 1
    explorer.traces = traces
    assert "report of a comparison" in read(report(explorer, tmp_path / "page.html"))


def reproduced(page: str, folder: Path) -> None:
    """Save the files of a page into an empty folder, and execute its commands there, as a reader would."""
    folder.mkdir()
    for name, text in saved(page).items():
        (folder / name).write_text(text, encoding="utf-8")
    commands = re.findall(r"<h2>Reproduce</h2><pre>(.+?)</pre>", page, re.DOTALL)
    assert len(commands) == 1
    here = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    for line in unescape(commands[0]).splitlines():
        program, *rest = shlex.split(line)
        assert program == "workbench"
        command = [sys.executable, "-m", "workbench", *rest]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=here, check=False)
        assert done.returncode == 0, done.stderr


def test_report_commands_reproduce_a_comparison_in_an_empty_folder(
    traces: list[wb.Trace], tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    reproduced(read(report(traces, tmp_path / "page.html")), folder)
    for trace in traces:
        assert wb.Trace.load(folder / "runs" / trace.label).same(trace)


def test_report_command_reproduces_a_sweep_in_an_empty_folder(tmp_path: Path) -> None:
    base = {name: value for name, value in P.items() if name != "delays"}
    plan = {"base": base, "grid": {"scheme": ["UMW", "GC"]}, "notebooks": False}
    wb.batch.sweep(plan, tmp_path / "sweep", progress=False)
    folder = tmp_path / "empty"
    reproduced(read(report(tmp_path / "sweep", tmp_path / "page.html")), folder)
    first, again = (
        wb.runs(each, progress=False).table for each in (tmp_path / "sweep", folder / "runs/again")
    )
    key = ["scheme", "time", "loss"]
    assert (
        first[key].sort_values("scheme").to_numpy().tolist()
        == again[key].sort_values("scheme").to_numpy().tolist()
    )


def test_report_has_no_address_of_the_network(traces: list[wb.Trace], tmp_path: Path) -> None:
    """Nothing outside plotly.js, which is packed, has an address that a browser could load."""
    page = read(report(traces, tmp_path / "page.html"))
    bare = re.sub(r'<script type="text/plain" id="library">.*?</script>', "", page, flags=re.DOTALL)
    assert re.findall(r"https?://[^\s\"'<)]+", bare) == []
    assert not re.search(r"@import|url\((?!data:)", bare)


def test_report_escapes_what_users_write(traces: list[wb.Trace], tmp_path: Path) -> None:
    nasty = "</script><script>document.title = 1</script>"
    made = module.Report(
        "a run", nasty, nasty, [traces[0].experiment], {}, [("t", [nasty], [[nasty]])], files={nasty: nasty}
    )
    assert nasty not in module.html(made)


def test_report_refuses(traces: list[wb.Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "page.html"
    for source, why in (
        ([], r"give a run, a list of runs"),
        (5, r"source = 5: give a run"),
        ([traces[0], 3], r"source\[1\] = int: is not a run"),
        (tmp_path / "nowhere", "is not the folder"),
        (tmp_path, "has no runs"),
        (traces * 13, "has 26 runs, and 24 can be compared"),
    ):
        with pytest.raises(SettingError, match=why):
            report(source, out)
    with pytest.raises(SettingError, match=r"end it in \.html"):
        report(traces, tmp_path / "page.pdf")
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    with pytest.raises(SettingError, match=r"its page would have .* MB, and 6 are allowed"):
        report(traces, out)
    assert not out.exists()


def test_report_of_a_forecast_ranks_passes_over_the_data(tmp_path: Path) -> None:
    """A round of ASGD is the shortest, but has one answer of ten."""
    pair = [wb.Experiment(scheme=name, workers=10) for name in ("ASGD", "GC")]
    pair[1] = pair[1].replace(scheme_args={"stragglers": 0})
    page = wb.report(pair, tmp_path / "page.html").read_text()
    means = [wb.forecast(e).mean for e in pair]
    assert means[0] < means[1]
    best = "ASGD" if 10 * means[0] < means[1] else "GC"
    assert f"<h1>Expected: {best} is the fastest over the data" in page
    assert "ASGD uses 10 % of the data in a round" in page
    assert "pass over the data" in page
    runs = wb.report(wb.compare([e.replace(rounds=4) for e in pair]), tmp_path / "runs.html").read_text()
    assert '<td data-column="data in a round">10 %</td>' in runs

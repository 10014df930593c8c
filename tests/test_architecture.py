"""docs/architecture.md: its layers and packages, its picture, and every row of "I want to add"."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.sampled_cases import rotated
from tools.layers import (
    BESIDE,
    FOR_SCHEMES,
    LAYERS,
    PAGE,
    ROOT,
    arrows,
    between_layers,
    drawn,
    packages,
    printed,
    purposes,
)

TEXT = PAGE.read_text()
PATHS = ("", "notebooks/papers", "notebooks/lecture")  # folders on Python's path in a clone


@dataclass(frozen=True)
class Row:
    """Row of the table: what is added, its file and text, and a check that it is found."""

    what: str
    path: str
    text: str
    probe: str
    edit: tuple[str, str, str] | None = None  # a file, a line of it, and the text to insert after it


ROWS = [
    Row(
        "a scheme",
        "workbench/core/schemes/added.py",
        """
from workbench.core.schemes.uncoded import UMW

class Added(UMW):
    name = "ADDED"
""",
        'assert len(wb.run(wb.Experiment(scheme="ADDED", workers=4, rounds=3)).rounds) == 3',
    ),
    Row(
        "a delay model",
        "workbench/core/contract/delays/added.py",
        """
import numpy as np
from workbench.core.contract.delays.base import DelayModel

class Added(DelayModel):
    kind = "added"

    def draw(self, keyed, round, workers, slot=0, before=None):
        return np.zeros((1, workers))

    def compute(self, draw, samples):
        return samples * 1e-3
""",
        'e = wb.Experiment(scheme="UMW", workers=4, rounds=3, delays={"kind": "added"}, problem="unit")\n'
        "assert wb.forecast(e).mean >= 0.25",  # 1000 samples over four workers
    ),
    Row(
        "a fault",
        "workbench/core/contract/faults/added.py",
        """
from workbench.core.contract.faults.wrong_answers import WrongAnswer

class Added(WrongAnswer):
    kind = "added"

    def answer(self, value, round, number):
        return value[::-1]
""",
        'e = wb.Experiment(scheme="UMW", workers=4, rounds=3, faults=[{"kind": "added", "worker": 2, "round": 1}])\n'
        'assert (wb.run(e).events["kind"] == "fault").sum() == 2',
    ),
    Row(
        "an optimiser",
        "workbench/core/contract/optimisers/added.py",
        """
from workbench.core.contract.optimisers.base import Optimiser

class Added(Optimiser):
    name = "added"

    def update(self, state, model, gradient, problem, t):
        return model - 1e-3 * gradient / problem.samples, state
""",
        'e = wb.Experiment(scheme="UMW", workers=4, rounds=3, optimiser="added")\nassert len(wb.run(e).rounds) == 3',
    ),
    Row(
        "a schedule",
        "workbench/core/contract/optimisers/added_schedule.py",
        """
from workbench.core.contract.optimisers.schedules import Schedule

class Added(Schedule):
    \"\"\"Half of the step from the first round on.\"\"\"
    kind = "added"

    def share_at(self, t):
        return 0.5
""",
        "assert 'added' in wb.Schedule.catalogue",
    ),
    Row(
        "a problem",
        "workbench/core/problems/added.py",
        """
from workbench.core.problems.unit import UnitArgs

class AddedArgs(UnitArgs):
    name = "added"
""",
        'e = wb.Experiment(scheme="UMW", workers=4, rounds=3, problem="added")\nassert len(wb.run(e).rounds) == 3',
    ),
    Row(
        "a figure",
        "workbench/lab/figures/gallery/added.py",
        """
import plotly.graph_objects as go

def added(trace, theme="light"):
    return go.Figure()
""",
        'assert not wb.figures.added(None).data and "added" in dir(wb.figures)',
    ),
    Row(
        "a theory formula",
        "workbench/core/theory/added.py",
        'def added_time(workers: int) -> float:\n    """Half the workers."""\n    return workers / 2\n',
        'assert wb.theory.added_time(4) == 2 and "added_time" in dir(wb.theory)',
    ),
    Row(
        "a code",
        "workbench/core/codes/added.py",
        """
from workbench.core.codes.base import GradientCode
from workbench.core.codes.cyclic import cyclic

def added(workers: int, stragglers: int) -> GradientCode:
    return cyclic(workers, stragglers)
""",
        "from workbench.core.codes.added import added\nassert added(4, 1).matrix.shape == (4, 4)",
    ),
    Row(
        "a kind of cluster",
        "workbench/mpi/clusters/added.py",
        """
import os, signal
from contextlib import suppress
from typing import ClassVar
from workbench.mpi.clusters.batch import BatchCluster, Job

class Added(BatchCluster):
    kind = "added"
    system: ClassVar[str] = "the queue"
    submit_command: ClassVar[tuple[str, ...]] = ("sh", "-c", 'setsid bash "$0" >/dev/null 2>&1 & echo $!')
    cancel_command: ClassVar[str] = "kill"

    def options(self, spec):
        return []

    def number_in(self, output):
        return output.strip() or None

    def look_up(self, number):
        with suppress(OSError):
            os.kill(int(number), 0)
            return Job(number, "RUNNING")
        return Job(number, "COMPLETED")

    def listed(self):
        return []
""",
        """
from pathlib import Path
from workbench.mpi import clusters
from workbench.mpi.clusters.warm import POOLS
Path("clusters").mkdir(exist_ok=True)
Path("clusters/mine.yaml").write_text(f"kind: added\\nfolder: {Path.cwd()}\\ntasks_per_node: 3\\n")
assert clusters.load("mine").check() == []
e = wb.Experiment(scheme="UMW", workers=2, rounds=3)
run = wb.start(e, engine="mpi", cluster="mine")
assert len(run.result().rounds) == 3
assert run.pool.as_dict()["job"].isdigit()
POOLS.close()
""",
    ),
    Row(
        "a command",
        "workbench/cli/added.py",
        """
import click

@click.command()
def added() -> None:
    \"\"\"One more.\"\"\"
    click.echo("one more")
""",
        """
import subprocess, sys
assert subprocess.check_output([sys.executable, "-m", "workbench", "added"], text=True) == "one more\\n"
assert "added" in subprocess.check_output([sys.executable, "-m", "workbench", "--help"], text=True)
""",
        edit=("workbench/cli/main.py", '    "lab": ("lab",),\n', '    "added": ("added",),\n'),
    ),
    Row(
        "a lecture",
        "notebooks/lecture/workbench_lectures/added.py",
        """
from dataclasses import replace
from workbench_lectures import by_hand

lecture = replace(by_hand.lecture, notebook="9-added")
""",
        'from workbench_lectures import scripts\nassert list(scripts())[-1] == "9-added"',
    ),
    Row(
        "a book entry",
        "notebooks/papers/workbench_book/added.py",
        """
from workbench_book.catalogue import Entry

PLACE = (9, 9)
ENTRIES = (Entry("added", "One more", lambda setting: None),)
""",
        'from workbench_book.catalogue import names\nassert names()[-1] == "added"',
    ),
    Row(
        "a tab of the explorer",
        "workbench/lab/widgets/explorer/tabs/added.py",
        """
from workbench.lab.widgets.explorer.tab import Tab

class Added(Tab):
    key, title, place = "added", "One more", 99
""",
        'from workbench.lab.widgets import explore\nassert "One more" in explore().tabs.titles',
    ),
    Row(
        "a widget",
        "workbench/lab/widgets/plots/added.py",
        """
from workbench.lab.widgets.plots.plot import Plot

class Added(Plot):
    pass
""",
        "from workbench.lab.widgets.plots.added import Added\nassert Added().page == ''",
    ),
]


ALL = """
import json, traceback
import workbench as wb
assert wb.__file__.startswith({clone!r})
said = {{}}
for what, probe in {probes!r}.items():
    try:
        exec(probe, {{"wb": wb}})
        said[what] = "known"
    except Exception:
        said[what] = traceback.format_exc()
print(json.dumps(said))
"""


def added_to(clone: Path, rows: list[Row]) -> dict[str, str]:
    """Add files to a copy of the packages, and check them in a separate process. Return the output for each row."""
    for folder in ("workbench", *BESIDE):
        shutil.copytree(ROOT / folder, clone / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for row in rows:
        (clone / row.path).parent.mkdir(parents=True, exist_ok=True)
        (clone / row.path).write_text(row.text)
        if row.edit:
            path, line, more = row.edit
            text = (clone / path).read_text()
            assert line in text
            (clone / path).write_text(text.replace(line, line + more))
    code = ALL.format(clone=str(clone), probes={row.what: row.probe for row in rows})
    paths = os.pathsep.join(str(clone / path) for path in PATHS)
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=clone, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    found: dict[str, str] = json.loads(process.stdout)
    return found


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of all rows, added at once."""
    return added_to(tmp_path_factory.mktemp("clone"), ROWS)


@rotated
@pytest.mark.xdist_group("additions")
@pytest.mark.parametrize("what", [row.what for row in ROWS])
def test_architecture_additions_need_one_file(what: str, together: dict[str, str]) -> None:
    assert together[what] == "known"


def test_architecture_table_rows_are_tested() -> None:
    table = TEXT.partition("| I want to add |")[2].partition("\n\n")[0]
    found = re.findall(r"^\| (an? [\w ]+) \| `([^`]+)`[^|]*\| (.+) \|$", table, re.MULTILINE)
    assert [(what, path.replace("NAME", "added")) for what, path, _ in found] == [
        (r.what, r.path) for r in ROWS
    ]
    for what, _, tests in found:
        for path in re.findall(r"`(tests/[^`]+)`", tests):
            place = Path(path.partition("NAME")[0])
            assert (ROOT / (place if "NAME" not in path else place.parent)).exists(), f"{what}: {path}"


def linted(container: str) -> list[str]:
    """Return the packages of a container in the order that import-linter checks, the lowest first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    found = [c["layers"][::-1] for c in config["contracts"] if c.get("containers") == [container]]
    assert len(found) == 1, container
    return list(found[0])


def test_the_page_lists_every_package_in_the_order_that_is_linted() -> None:
    text = list(purposes())
    assert set(text) == set(packages())
    assert linted("workbench") == list(LAYERS[:-1])
    for layer in ("core", "mpi", "analysis", "lab"):
        names = [name.partition(".")[2] for name in text if name.startswith(f"{layer}.")]
        assert names == linted(f"workbench.{layer}")


def test_the_picture_shows_the_packages_and_arrows_of_today() -> None:
    boxes, shown = drawn()
    hint = "the picture is old; run `python tools/layers.py --draw`"
    assert boxes == set(purposes()), hint
    assert shown == arrows(between_layers(packages())), hint


def test_arrows_that_follow_are_left_out_and_cycles_are_shown() -> None:
    assert arrows({"core": set(), "mpi": {"core"}, "lab": {"core", "mpi"}}) == {
        ("lab", "mpi"),
        ("mpi", "core"),
    }
    assert ("core", "mpi") in arrows({"core": {"mpi"}, "mpi": {"core"}})


def test_files_for_authors_are_printed_with_their_lines() -> None:
    text = printed(packages(), list(purposes()))
    for name in FOR_SCHEMES:
        assert re.search(rf"^{re.escape(name)} +\d+$", text, re.MULTILINE)
        assert f"`workbench/core/{name}`" in TEXT

"""Errors in a user's program: one sentence with scheme, rank, round and line, on both engines."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.support.sampled_cases import rotated
from workbench.core.base.errors import RunError
from workbench.mpi.launch.processes import is_alive

FILE = """
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import worker_program
from workbench.core.contract.protocol import Compute, CODED, Send
from workbench.core.schemes.uncoded import UMW

def answer(node, job):
    value = yield Compute(node.work, job.value, job.round)
    if job.round == 2 and node.rank == 3:
        value = {}["nothing"]
    yield Send(MASTER, CODED, job.round, value)

class Hopeless(UMW):
    name = "Hopeless"

    def program(self, node):
        return super().program(node) if node.rank == MASTER else worker_program(node, answer)

class Nothing(UMW):
    name = "Nothing"

    def program(self, node):
        return 7

class Never(UMW):
    name = "Never"

    def program(self, node):
        return super().program(node) if node.rank == MASTER else iter_forever(node)

class Busy(UMW):
    name = "Busy"

    def program(self, node):
        return super().program(node) if node.rank == MASTER else busy(node)

def busy(node):
    import signal
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    while True:
        node.rank
    yield

def iter_forever(node):
    from workbench.core.contract.protocol import Recv
    while True:
        yield Recv({"nobody sends this": 0})
"""


def spec(tmp_path: Path, name: str) -> wb.Experiment:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    return wb.Experiment(scheme=f"{file}:{name}", workers=4, rounds=5, problem="least_squares")


ENGINES = ["sim", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.xdist_group("mpi")])]


@pytest.mark.parametrize("engine", ENGINES)
def test_user_error_names_scheme_rank_round_and_line(tmp_path: Path, engine: str) -> None:
    line = FILE.splitlines().index('        value = {}["nothing"]') + 1
    says = (
        rf"Hopeless: the program of rank 3 failed in round 2: KeyError: 'nothing' \(.*mine\.py, line {line}\)"
    )
    with pytest.raises(RunError, match=says):
        wb.run(spec(tmp_path, "Hopeless"), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_user_error_reports_what_is_not_a_program(tmp_path: Path, engine: str) -> None:
    with pytest.raises(RunError, match=r"Nothing: `program` of rank \d gives 7; write it as a generator"):
        wb.run(spec(tmp_path, "Nothing"), engine=engine)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_user_error_after_the_time_limit(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no round has ended for 1 s"):
        wb.run(spec(tmp_path, "Never"), engine="mpi", patience=1.0)
    assert len(wb.run(spec(tmp_path, "Never").replace(scheme="UMW"), engine="mpi").rounds) == 5


FAILING = """
import numpy as np
from typing import Literal, ClassVar
from workbench.core.contract.delays import Exponential
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.problems.linear import LeastSquares, LeastSquaresArgs
from workbench.core.schemes.uncoded import UMW
WHERE = ""
def fail(where):
    if where == WHERE:
        {}["nothing"]

class Half(UMW):
    name = "Half"
    def check(self, workers):
        fail("check")
    def plan(self, workers, samples):
        fail("plan")
        return super().plan(workers, samples)
    def round_times(self, draws, workers):
        fail("round_times")
        return super().round_times(draws, workers)
    def program(self, node):
        fail("program")
        return super().program(node)

class Pauses(Exponential):
    kind: Literal["pauses"] = "pauses"
    def draw(self, keyed, round, workers, slot, before):
        fail("draw")
        return super().draw(keyed, round, workers, slot, before)
    def compute(self, draw, samples):
        fail("compute")
        return super().compute(draw, samples)

class Quadratic(LeastSquares):
    def gradient(self, slices, model):
        fail("gradient")
        return super().gradient(slices, model)
    def evaluate(self, requests):
        fail("evaluate")
        return super().evaluate(requests)

class QuadraticArgs(LeastSquaresArgs):
    name = "quadratic"
    def build(self, plan):
        data = self.open()
        return Quadratic(np.asarray(data.X), np.asarray(data.y))

class Slowly(GradientDescent):
    name = "slowly"
    def update(self, state, model, gradient, problem, t):
        fail("update")
        return super().update(state, model, gradient, problem, t)
"""
SAYS = {  # user-defined method that fails -> errors: on the virtual clock, on real ranks, in a forecast
    "check": ("scheme = .*: `Half.check` failed",) * 3,
    "plan": ("`Half.plan` failed",) * 2,
    "round_times": ("", "", "`Half.round_times` failed"),
    "draw": ("`Pauses.draw` failed",) * 3,
    "compute": (
        "Half: `Pauses.compute` failed at rank 1 in round 0",
        "`Pauses.compute` failed",
        "`Pauses.compute` failed",
    ),
    "gradient": ("", "Half: `Quadratic.gradient` failed at rank . in round 0"),
    "evaluate": ("`Quadratic.evaluate` failed",) * 2,
    "update": ("`Slowly.update` failed", "Half: `Slowly.update` failed at rank 0 in round 0"),
}


def failing(tmp_path: Path, where: str) -> dict[str, Any]:
    """Return the fields of an experiment with user-defined parts, one method of which fails."""
    file = tmp_path / f"{where}.py"
    file.write_text(FAILING.replace('WHERE = ""', f'WHERE = "{where}"'))
    own = {"scheme": f"{file}:Half", "problem": f"{file}:QuadraticArgs", "optimiser": f"{file}:Slowly"}
    return {
        **own,
        "delays": {"kind": f"{file}:Pauses"},
        "workers": 4,
        "rounds": 5,
        "problem_args": {"samples": 40},
    }


LINE = FAILING.splitlines().index('        {}["nothing"]') + 1


@pytest.mark.parametrize("where", SAYS)
def test_user_error_names_method_and_line(tmp_path: Path, where: str) -> None:
    ways = [lambda e: wb.run(e), None, lambda e: wb.forecast(e)]
    for text, way in zip(SAYS[where], ways, strict=False):
        if text and way is not None:
            with pytest.raises(
                (RunError, wb.SettingError),
                match=rf"{text}.*KeyError: 'nothing' \(.*{where}\.py, line {LINE}\)",
            ):
                way(wb.Experiment(**failing(tmp_path, where)))
    if where != "check":
        run = wb.start(wb.Experiment(**failing(tmp_path, where)))  # the error is the same in a thread
        assert run.wait(60)
        assert (run.state == "failed") == bool(SAYS[where][0])


REAL = """
import json, psutil, sys
import workbench as wb
for where, fields in json.loads(sys.argv[1]).items():
    try:
        wb.run(wb.Experiment(**fields), engine="mpi", patience=30.0)
        print(where, "nothing was raised")
    except (wb.RunError, wb.SettingError) as error:
        print(where, error)
print("processes", *[child.pid for child in psutil.Process().children(recursive=True)], flush=True)
"""


@rotated
@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_user_error_on_real_ranks_leaves_no_process(tmp_path: Path, workers: int) -> None:
    wanted = {where: says[1] for where, says in SAYS.items() if says[1]}
    spec = json.dumps({where: {**failing(tmp_path, where), "workers": workers} for where in wanted})
    done = subprocess.run([sys.executable, "-c", REAL, spec], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    *lines, processes = done.stdout.splitlines()
    for line, (where, text) in zip(lines, wanted.items(), strict=True):
        assert re.search(rf"^{where} {text}.*KeyError: 'nothing' \(.*{where}\.py, line {LINE}\)", line), line
    end = time.monotonic() + 60
    while left := [int(pid) for pid in processes.split()[1:] if is_alive(int(pid))]:
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_user_error_names_the_line_that_ctrl_c_interrupted(tmp_path: Path) -> None:
    """On the virtual clock, all programs are in one thread, so only the traceback has the line.

    A timer sends SIGINT.
    """
    e, line = spec(tmp_path, "Busy"), FILE[: FILE.index("        node.rank\n")].count("\n") + 1
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            wb.run(e)
    finally:
        signal.signal(signal.SIGALRM, before)
    (note,) = caught.value.__notes__
    assert note.startswith("Busy: the program of rank 1 was at work in round 0 (")
    assert any(f"mine.py, line {number})" in note for number in (line - 1, line))  # lines of the loop

"""Errors in a user's own program are one sentence: scheme, rank, round and the user's line, on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.base.errors import RunError

pytestmark = pytest.mark.usefixtures("forgetful")

FILE = """
from workbench.core.plan import MASTER
from workbench.core.programs import worker_program
from workbench.core.protocol import Compute, CODED, Send
from workbench.schemes.uncoded import UMW

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

def iter_forever(node):
    from workbench.core.protocol import Recv
    while True:
        yield Recv({"nobody sends this": 0})
"""


def spec(tmp_path: Path, name: str) -> wb.Experiment:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    return wb.Experiment(scheme=f"{file}:{name}", workers=4, rounds=5, problem="least_squares")


ENGINES = ["sim", pytest.param("mpi", marks=[pytest.mark.mpi, pytest.mark.xdist_group("mpi")])]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_names_scheme_rank_round_and_line(tmp_path: Path, engine: str) -> None:
    line = FILE.splitlines().index('        value = {}["nothing"]') + 1
    says = (
        rf"Hopeless: the program of rank 3 failed in round 2: KeyError: 'nothing' \(.*mine\.py, line {line}\)"
    )
    with pytest.raises(RunError, match=says):
        wb.run(spec(tmp_path, "Hopeless"), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_program_is_said(tmp_path: Path, engine: str) -> None:
    with pytest.raises(RunError, match=r"Nothing: `program` of rank \d gives 7; write it as a generator"):
        wb.run(spec(tmp_path, "Nothing"), engine=engine)


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_a_program_that_never_answers_is_ended_by_patience(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no round has ended for 1 s"):
        wb.run(spec(tmp_path, "Never"), engine="mpi", patience=1.0)
    assert len(wb.run(spec(tmp_path, "Never").replace(scheme="UMW"), engine="mpi").rounds) == 5

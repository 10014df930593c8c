"""Sweeps with classes of a cell, in forked and in new kernels. Stored files contain no code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sampled_cases import rotated

CELL = """
from workbench.core.base.settings import setting
from workbench.core.contract.delays import Exponential
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import at_least, child_program, parent_program, plain_sum
from workbench.core.schemes.uncoded import UMW
from typing import Literal

TIMES = 1.0

def summed(round, got):
    return TIMES * plain_sum([message.value for _, message in sorted(got.items())]), 0.0

class Half(UMW):
    name = "Half"
    exact = False
    share: float = setting(0.5, "answers waited for", gt=0, le=1)

    def program(self, node):
        rule = at_least(max(1, round(self.share * len(node.children))))
        return (parent_program if node.rank == MASTER else child_program)(node, rule, summed)

class Pauses(Exponential):
    kind: Literal["pauses"] = "pauses"
"""
PROGRAM = """
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
import workbench as wb
from workbench.lab import batch
shell = InteractiveShell.instance()
def run(text):
    shell.run_cell(text, store_history=True).raise_error()
run({cell!r})
base = {{"workers": 4, "rounds": 4, "problem": "least_squares", "problem_args": {{"samples": 40, "features": 4}}}}
base |= {{"scheme": "Half", "delays": {{"kind": "pauses"}}}}
plan = {{"base": base, "grid": {{"scheme_args.share": [0.5, 1.0]}}}}
def swept(folder={folder!r}):
    done = batch.sweep(plan, folder, progress=False, fresh={fresh})
    print(done)
    return done
first = swept()
assert list(first.states) and not first.failed, first
again = swept()
assert again.before == 2 and not again.states  # done is done
table = wb.runs({folder!r})
one = wb.run(wb.Experiment(**base, scheme_args={{"share": 0.5}}))
for path in Path({folder!r}).glob("*/trace"):
    trace = wb.Trace.load(path)
    if trace.experiment.scheme_args == {{"share": 0.5}}:
        assert trace.same(one) and trace.replay().same(one)
    assert (path / "own-Half.py").read_text().strip() == {cell!r}.strip()
    assert (path / "own-Pauses.py").is_file()
run({cell!r}.replace("TIMES = 1.0", "TIMES = 0.5"))
try:
    swept()
except wb.SettingError as error:  # another definition is another sweep
    assert "holds another sweep" in str(error)
changed = swept({folder!r} + "-changed")
assert len(changed.states) == 2 and not changed.failed
losses = [wb.runs(folder).done["loss"].to_numpy() for folder in ({folder!r}, {folder!r} + "-changed")]
assert (losses[1] > losses[0]).all()  # half the step
for path in Path({folder!r}).rglob("*"):
    assert not path.is_file() or b"cloudpickle" not in path.read_bytes(), path
print("good", flush=True)
"""


@rotated
@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_sweep_over_a_class_of_a_cell(tmp_path: Path, fresh: bool) -> None:
    program = PROGRAM.format(cell=CELL, folder=str(tmp_path / "sweep"), fresh=fresh)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
    assert done.stdout.split()[-1:] == ["good"], done.stdout[-3000:] + done.stderr[-3000:]


def test_sweep_names_a_class_that_cannot_be_sent(tmp_path: Path) -> None:
    cell = CELL.replace("TIMES = 1.0", "import threading\nTIMES = threading.Lock()")
    program = PROGRAM.format(cell=cell, folder=str(tmp_path / "sweep"), fresh=False)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=400)
    assert "Half: cannot be sent" in done.stderr
    assert "the variable 'TIMES' of summed holds a lock" in done.stderr
    assert not (tmp_path / "sweep").exists()

"""A notebook's cell with a user-defined scheme, delay model, problem and optimiser, and programs that run it.

The programs are separate processes, because classes of a cell belong to `__main__`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CELL = '''
import numpy as np
from typing import ClassVar, Literal
from workbench.core.base.settings import setting
from workbench.core.contract.delays import Exponential
from workbench.core.contract.optimisers import GradientDescent
from workbench.core.contract.plan import MASTER
from workbench.core.contract.programs import at_least, child_program, parent_program, plain_sum
from workbench.core.problems import Evaluation, ProblemArgs
from workbench.core.schemes.uncoded import UMW

TIMES = 1.0

def summed(round, got):
    return TIMES * plain_sum([message.value for _, message in sorted(got.items())]), 0.0

class Half(UMW):
    """Sums the answers of its own."""
    name = "Half"
    title = "a scheme of a cell"

    def program(self, node):
        rule = at_least(len(node.children))
        return (parent_program if node.rank == MASTER else child_program)(node, rule, summed)

class Pauses(Exponential):
    """Sleeps a while, whatever the load."""
    kind: Literal["pauses"] = "pauses"

class Quadratic:
    """Least squares by hand."""
    l2, truth = 0.0, None

    def __init__(self, width):
        self.X = np.random.default_rng(0).standard_normal((40, width))
        self.y = self.X.sum(axis=1)
        self.samples, self.size = self.X.shape

    def start(self):
        return np.zeros(self.size)

    def gradient(self, slices, model):
        total = np.zeros(self.size)
        for a, b, weight in slices:
            total += weight * self.X[a:b].T @ (self.X[a:b] @ model - self.y[a:b])
        return total

    def evaluate(self, requests):
        found = []
        for request in requests:
            off = self.X @ request.model - self.y
            weights = 1.0 if request.weights is None else request.weights
            gradient = self.X.T @ (weights * off) if request.gradient else None
            found.append(Evaluation(float(off @ off) / 2 / self.samples, gradient))
        return found

    def smoothness(self, slices=None):
        return float(np.linalg.eigvalsh(self.X.T @ self.X / self.samples).max())

class QuadraticArgs(ProblemArgs):
    """A quadratic problem."""
    name = "quadratic"
    columns: int = setting(4, "columns", ge=1, le=9)

    def count(self):
        return 40

    def size(self, plan):
        return self.columns

    def build(self, plan):
        return Quadratic(self.columns)

class Slowly(GradientDescent):
    """Half of every step."""
    name = "slowly"

    def update(self, state, model, gradient, problem, t):
        return super().update(state, model, 0.5 * gradient, problem, t)
'''

HEAD = """
import sys, time
from pathlib import Path
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
import workbench as wb
shell = InteractiveShell.instance()
def run(text):
    shell.run_cell(text, store_history=True).raise_error()
CELL = {cell!r}
run(CELL)
"""

CHECKS = """
for own in ("Half", "pauses", "quadratic", "slowly"):
    checked = wb.check(own, examples=5)
    assert checked.ok, checked
"""

# A run is started, attached from elsewhere, stopped and resumed. Then the cell is run again, and the same ranks are
# used.
THROUGH = """
def until(true):
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)

cluster, folder = {cluster!r}, {folder!r}
names = {{"scheme": "Half", "delays": {{"kind": "pauses", "mean": 2e-3}}}}
names |= {{"problem": "quadratic", "optimiser": "slowly"}}
e = wb.Experiment(workers=4, rounds=300, **names)
mine = wb.start(e, engine="mpi", cluster=cluster, folder=folder, checkpoint_every=0.05)
until(lambda: len(mine.rows()["round"]) >= 5 or mine.wait(0))
other = wb.attach(folder)
mine.stop()
stopped = mine.result()
assert 5 <= len(stopped.rounds) < 300, stopped
assert other.result().same(stopped)

def refused(what):
    try:
        what()
    except wb.SettingError as error:
        assert "Half: its definition is not what the run began with" in str(error), error
    else:
        raise AssertionError("nothing was refused")

OTHER = CELL.replace("TIMES = 1.0", "TIMES = 0.5")  # what the class uses, not the class itself
run(OTHER)
refused(lambda: wb.resume(folder))
run(CELL)
whole = wb.resume(folder).result()
assert len(whole.rounds) == 300
sim = wb.run(e)
np.testing.assert_allclose(whole.model, sim.model, rtol=1e-9)
kept = {{path.name for path in Path(folder).glob("own-*")}}
assert kept == {{"own-Half.py", "own-Pauses.py", "own-QuadraticArgs.py", "own-Slowly.py"}}, kept
for path in Path(folder).rglob("*"):
    assert not path.is_file() or b"cloudpickle" not in path.read_bytes(), path

run(OTHER)
refused(lambda: wb.attach(folder))
refused(sim.replay)
second = wb.start(e.replace(rounds=20), engine="mpi", cluster=cluster)
halved = second.result()
assert second.pool is mine.pool or second.pool.places == mine.pool.places  # the same ranks of a pool
np.testing.assert_allclose(halved.model, wb.run(e.replace(rounds=20)).model, rtol=1e-9)
assert halved.rounds["loss"].iloc[-1] > sim.rounds["loss"].iloc[19]  # half the step
print("good", flush=True)
"""


def program(body: str, cell: str = CELL, **fields: object) -> str:
    """Return a program that begins with that cell."""
    return (HEAD + body).format(cell=cell, **fields)


def assert_script_passes(text: str, timeout: float = 400, cwd: Path | None = None) -> None:
    """Run a program that prints `good` at its end."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, cwd=cwd
    )
    assert done.stdout.split()[-1:] == ["good"], done.stdout[-3000:] + done.stderr[-3000:]

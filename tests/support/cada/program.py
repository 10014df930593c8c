"""Runs of the programs of CADA's authors, saved as numbers: which workers send in each round, and the last model.

    python -m tests.support.cada.program FOLDER [OCTAVE]

writes the numbers again. FOLDER: a copy of ChrisYZZ/CADA-master (commit 9aead8f). OCTAVE: GNU Octave's command line
(default: octave-cli; the numbers are from version 7.3). Octave executes the authors' own lines of `ijcnn.m` and
`covtype.m`, from the title "CADA1" to the section after "CADA2". Only the data, the number of rounds and the drawn
samples are given: data and mini-batches are the workbench's. None of their lines is stored here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import workbench as wb
from workbench.core.contract.delays import CounterRNG
from workbench.core.engine.virtual.arithmetic import BATCHES_STREAM

NUMBERS = Path(__file__).with_name("program.json")
WORKERS, ROUNDS, SAMPLES, FEATURES, BATCH, SEED = 5, 230, 200, 6, 8, 3
# fields of the programs: c, step size, number that is added to the square root, and D of CADA1 and CADA2. The programs
# of CADA2 send once the age is above their D.
PROGRAMS: dict[str, dict[str, Any]] = {
    "ijcnn": {"c": 5e-4, "rate": 0.01, "eps": 1e-8, "CADA1": 100, "CADA2": 101},
    "covtype": {
        "c": 5e-5 / (10 * (0.005 * WORKERS) ** 2),
        "rate": 0.005,
        "eps": 1e-7,
        "CADA1": 100,
        "CADA2": 201,
    },
}
L2 = (0.0, 1e-5)  # the second is that of `ijcnn.m`
BEGIN = {"ijcnn": "parameter initialization", "covtype": "parameter initialization for ADAM and CADA"}


def experiment(program: str, scheme: str, l2: float) -> wb.Experiment:
    """Return the experiment that corresponds to one of the programs."""
    fields = PROGRAMS[program]
    return wb.Experiment(
        scheme=scheme,
        scheme_args={"c": fields["c"], "window": 10, "max_age": fields[scheme], "worker_batch": BATCH},
        workers=WORKERS,
        rounds=ROUNDS,
        seed=SEED,
        problem="logistic",
        problem_args={"samples": SAMPLES, "features": FEATURES, "l2": l2},
        optimiser=f"{Path(__file__).with_name('cada_amsgrad.py')}:ProgramAMSGrad",
        optimiser_args={name: fields[name] for name in ("rate", "eps")},
        delays={"kind": "constant"},
    )


def key_of(program: str, scheme: str, l2: float) -> str:
    """Return the key of a run in the saved numbers."""
    return f"{program} {scheme} l2={l2:g}"


def _script(text: str, program: str, l2: float, folder: Path) -> str:
    """Return a script for Octave that executes the authors' lines on the workbench's data and draws."""
    lines = text.splitlines()
    titles = {
        re.sub(r"^%+\s*", "", line).strip(): k for k, line in enumerate(lines) if re.match(r"^\s*%%", line)
    }
    common, first, second = (titles[name] for name in (BEGIN[program], "CADA1", "CADA2"))
    ends = sorted(titles.values())
    setup = lines[common : ends[ends.index(common) + 1]]
    end = ends[ends.index(second) + 1]
    return "\n".join(
        [
            "1;",
            "global drawn at",
            "function c = randperm(n, m)",
            "  global drawn at",
            "  at = at + 1; c = drawn(at, 1:m);",
            "end",
            "function rng(varargin)",
            "  global at",
            "  at = 0;",
            "end",
            f"cd {folder}; drawn = load('drawn.txt');",
            "inputs = load('inputs.txt'); all = inputs(:, 1:end-1); labels = inputs(:, end);",
            f"num_workers = {WORKERS}; num_iter = {ROUNDS}; num_feature = {FEATURES}; lambda = {l2!r};",
            f"batch_size = {BATCH} * ones(num_workers, 1); X = cell(num_workers); y = cell(num_workers);",
            f"for n = 1:num_workers; rows = (n-1)*{SAMPLES // WORKERS}+1 : n*{SAMPLES // WORKERS};",
            "X{n} = all(rows, :); y{n} = labels(rows); end; X_fede = all; y_fede = labels;",
            *setup,
            *lines[first:end],
            "save('-ascii', '-double', 'sent1.txt', 'comm_index44'); model = theta44(:, end);",
            "save('-ascii', '-double', 'model1.txt', 'model');",
            "save('-ascii', '-double', 'sent2.txt', 'comm_index66'); model = theta66(:, end);",
            "save('-ascii', '-double', 'model2.txt', 'model');",
        ]
    )


def execute(file: Path, program: str, l2: float, octave: str) -> dict[str, dict[str, Any]]:
    """Return what CADA1 and CADA2 of a program send, as ranks by round, and their last models."""
    problem = experiment(program, "CADA1", l2).build_problem()
    each = SAMPLES // WORKERS
    draws = [
        1 + np.sort(CounterRNG(SEED, BATCHES_STREAM).rng(r, w + 1).choice(each, BATCH, replace=False))
        for r in range(ROUNDS)
        for w in range(WORKERS)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole: Any = getattr(problem, "whole", problem)
        np.savetxt(folder / "inputs.txt", np.column_stack([whole.X, 2 * whole.y - 1]), fmt="%.17g")
        np.savetxt(folder / "drawn.txt", draws, fmt="%d")
        (folder / "script.m").write_text(_script(file.read_text(errors="replace"), program, l2, folder))
        subprocess.run([octave, "--quiet", str(folder / "script.m")], check=True)
        found = {}
        for scheme, k in (("CADA1", 1), ("CADA2", 2)):
            sent = np.loadtxt(folder / f"sent{k}.txt").T > 0.5
            ranks = ["".join(str(w + 1) for w in np.flatnonzero(row)) for row in sent]
            model = np.loadtxt(folder / f"model{k}.txt").ravel().tolist()
            found[key_of(program, scheme, l2)] = {
                "sent": " ".join(each or "-" for each in ranks),
                "model": model,
            }
    return found


def main(folder: str, octave: str = "octave-cli") -> None:
    """Write the numbers again."""
    files = {program: Path(folder) / f"MATLAB/{name}" for program, name in
             (("ijcnn", "ijcnn1/ijcnn.m"), ("covtype", "covtype/covtype.m"))}  # fmt: skip
    found = dict[str, Any]()
    for program, file in files.items():
        for l2 in L2:
            found |= execute(file, program, l2, octave)
    NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

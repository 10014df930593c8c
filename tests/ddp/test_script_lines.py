"""The script of the how-to differs in five lines from one for a single process. Both train, and so does the example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ddp.torchrun import JOB_TIMEOUT_S, environment
from tests.support.sampled_cases import sampled_test

pytest.importorskip("torch")
pytestmark = pytest.mark.mpi

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_digits.py"
HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "codes-in-torchrun.md"
BEFORE = """
import torch
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
digits, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(digits / 16, dtype=torch.float32), torch.tensor(labels))
Net = lambda: torch.nn.Linear(64, 10)
"""
AFTER = """
with torch.no_grad():
    print(f"loss {float(cross_entropy(model(data.tensors[0]), data.tensors[1])):.3f}")
"""
PLAIN = {  # the marked lines, in a script for a single process
    "1": "",
    "2": "",
    "3": "    for inputs, targets in loader:",
    "4": "        loss = cross_entropy(model(inputs), targets)",
    "5": "        loss.backward()",
}


def scripts() -> tuple[str, str]:
    """Return the plain script and that of the how-to."""
    found = re.search(r"```py\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    assert found
    coded = found[1]
    plain = [PLAIN[line.rpartition("# ")[2]] if "  # " in line else line for line in coded.splitlines()]
    return BEFORE + "\n".join(plain) + AFTER, BEFORE + coded + AFTER


def losses(*command: str) -> list[float]:
    done = subprocess.run(
        command, env=environment(), check=True, capture_output=True, text=True, timeout=JOB_TIMEOUT_S
    )
    return [float(text) for text in re.findall(r"loss (\d+\.\d{3})", done.stdout)]


@sampled_test("jobs of torchrun", 4, 5, 1)
def test_five_lines_differ_and_both_scripts_train(tmp_path: Path) -> None:
    plain, coded = scripts()
    new = set(coded.splitlines()) - set(plain.splitlines())
    assert len(new) == len(PLAIN) == 5
    assert "ddp" not in plain
    for name, text in (("plain.py", plain), ("train.py", coded)):
        (tmp_path / name).write_text(text)
    (alone,) = losses(sys.executable, str(tmp_path / "plain.py"))
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ranks = losses(*start, "-m", "workbench.ddp", str(tmp_path / "train.py"))
    assert len(ranks) == 2
    assert ranks == pytest.approx([alone] * 2, rel=0.1)


def test_example_script_trains_under_its_documented_command(tmp_path: Path) -> None:
    """The example, for one epoch instead of eight, and two ranks instead of eight."""
    text, count = re.subn(r"range\(8\)", "range(1)", EXAMPLE.read_text())
    assert count == 1
    (tmp_path / EXAMPLE.name).write_text(text)
    (command,) = re.findall(r"^torchrun (.*) examples/train_digits.py$", text, re.MULTILINE)
    command = command.replace("--nproc-per-node=8", "--nproc-per-node=2").split()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            *command,
            str(tmp_path / EXAMPLE.name),
        ],
        env=environment(PYTHONPATH=os.pathsep.join([str(EXAMPLE.parent), environment()["PYTHONPATH"]])),
        check=True,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
    )
    shown = re.findall(r"step (\d+): loss (\S+)", done.stdout)
    assert [step for step, _ in shown] == ["0", "20"]
    assert float(shown[1][1]) < float(shown[0][1])
    (share,) = re.findall(r"(\S+) % of the digits are recognised", done.stdout)
    assert float(share) > 50

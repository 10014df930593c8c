"""Ctrl-C at the command line: a sentence and no traceback, at any time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from workbench.core.trace.layout import ROWS

PATIENCE = 120.0  # s
# Sends SIGINT while a module is searched for. Its handler is restored, since background jobs ignore it.
AT_IMPORT = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["workbench", "run", "--scheme", "UMW", "--workers", "3", "--rounds", "5", "--engine", "{engine}"]
from workbench.__main__ import main
sys.meta_path.insert(0, Interrupting())
main()
"""


@pytest.mark.parametrize(
    ("module", "engine"),
    [
        *[
            (module, "sim")
            for module in ("workbench.cli.main", "click", "numpy", "workbench.core.running.start")
        ],
        ("workbench.mpi.running.real", "mpi"),
    ],
)
def test_main_interrupted_during_import_is_a_sentence(module: str, engine: str) -> None:
    script = AT_IMPORT.format(module=module, engine=engine)
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert (found.returncode, found.stderr.strip()) == (130, "workbench: interrupted")


@pytest.mark.mpi
@pytest.mark.xdist_group("mpi")
def test_main_interrupted_repeatedly_shows_no_traceback(tmp_path: Path) -> None:
    out = tmp_path / "run"
    texts = [
        "run",
        "--scheme",
        "UMW",
        "--workers",
        "2",
        "--rounds",
        "1000000",
        "--engine",
        "mpi",
        "-o",
        str(out),
    ]
    start = "import signal, sys; signal.signal(2, signal.default_int_handler); sys.argv[0] = 'workbench';"
    script = f"{start} from workbench.__main__ import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", script, *texts], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            until = time.monotonic() + PATIENCE
            while not (out / ROWS).exists() and time.monotonic() < until:
                time.sleep(0.02)
            family = psutil.Process(process.pid).children(recursive=True)
            assert family
            while process.poll() is None and time.monotonic() < until:
                process.send_signal(signal.SIGINT)
                time.sleep(0.1)
            assert process.stderr is not None
            error_text = process.stderr.read()
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error_text
    assert "Exception" not in error_text
    assert error_text.rstrip().endswith("workbench: interrupted")
    assert not psutil.wait_procs(family, timeout=30.0)[1]

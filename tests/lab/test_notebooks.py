"""A slow import that is deferred, and complete output if it is read more slowly than it is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
import sys
from workbench.lab.notebooks import grammar_put_off
with grammar_put_off():
    import papermill
assert not any(name.startswith("rfc3987_syntax") for name in sys.modules)
from jsonschema import Draft202012Validator as Validator
check = Validator({"format": "iri"}, format_checker=Validator.FORMAT_CHECKER)
print(check.is_valid("http://example.org/\u00fc"), check.is_valid("no address"), "rfc3987_syntax" in sys.modules)
"""


def test_grammar_put_off_still_checks_addresses() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]


EXECUTE = """
import sys
from pathlib import Path
import nbformat
from workbench.lab.notebooks import execute
cell = '''
import os, signal, subprocess
reader = os.getppid()
subprocess.Popen(["sh", "-c", f"sleep 2; kill -CONT {reader}"])
os.kill(reader, signal.SIGSTOP)
for i in range(4000):
    print("line", i, flush=True)
'''
folder = Path(sys.argv[1])
cells = [nbformat.v4.new_code_cell("", metadata={"tags": ["parameters"]}), nbformat.v4.new_code_cell(cell)]
kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), folder / "in.ipynb")
done = execute(folder / "in.ipynb", folder / "out.ipynb", {}, folder)
print("".join(output.text for output in done.cells[-1].outputs), end="")
"""


@pytest.mark.slow
def test_notebook_output_is_complete_if_the_reader_pauses(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.splitlines() == [f"line {i}" for i in range(4000)]

"""Test a part of the package in an environment that has only the dependencies of that part.

python tools/layer_env.py core           # core and analysis
python tools/layer_env.py core check     # the same, with hypothesis for wb.check
python tools/layer_env.py mpi            # core, analysis and real runs: all that a host of a cluster needs

The uv of `.venv` makes the environment in a temporary folder, with the locked versions. The tests of the first NAME,
`tests/layers/test_NAME.py`, run in it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.make_env import LOCK, UV, uv_environment  # noqa: E402 - found beside this file

PYTEST = [
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--noconftest",
    "--override-ini=addopts=",
    "--rootdir=tests/layers",
]


def pins() -> str:
    """Return the locked versions without hashes, as constraints."""
    entries = LOCK.read_text().replace("\\\n", "").splitlines()
    return "\n".join(re.split(r"\s+--hash", line)[0] for line in entries if line and line[0] not in " #")


def main(name: str, *more: str) -> int:
    """Make the environment and run the tests, and return pytest's exit status."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "env", symlinks=True)
        python = home / "env" / "bin" / "python"
        (home / "pins.txt").write_text(pins())
        extras = [extra for extra in (name, *more) if extra != "core"]
        project = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
        install = [UV, "pip", "install", "-q", "--python", python, "-c", home / "pins.txt"]
        environment = uv_environment()
        subprocess.run([*install, "hatchling", "pytest"], check=True, env=environment)
        subprocess.run([*install, "--no-build-isolation", "-e", project], check=True, env=environment)
        tests = ROOT / "tests" / "layers" / f"test_{name}.py"
        return subprocess.run([python, "-m", *PYTEST, str(tests)], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or ["core", "check"])))

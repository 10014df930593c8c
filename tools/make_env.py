"""Make .venv from requirements.lock, or remake the lock (--lock). This script needs only the standard library.

uv installs several times faster than pip. So pip installs only uv (locked and hashed like everything else), and uv
installs the rest. If uv fails, for example behind a mirror that only pip can reach, pip installs everything.
"""

import ast
import fcntl
import os
import re
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
PROJECT = ["--no-deps", "--no-build-isolation", "-e", "."]  # the build backend is in the lock: no download


def run(*command, **options):
    subprocess.run(command, cwd=ROOT, check=True, **options)


def one_at_a_time():
    """Wait until no other `make env` runs in this folder, and keep others waiting until this process ends.

    If one process removed .venv while another installs, the latter would install into the Python that made .venv.
    """
    os.environ["PIP_REQUIRE_VIRTUALENV"] = "1"
    lock = os.open(ROOT, os.O_RDONLY)  # released by the system when this process ends
    fcntl.flock(lock, fcntl.LOCK_EX)


def uv_environment():
    """Return the environment for uv, with pip's index and certificates, since uv does not read pip's configuration.

    Settings of uv take precedence.
    """
    listing = subprocess.check_output([PYTHON, "-m", "pip", "config", "list"], text=True)
    settings = dict(line.split("=", 1) for line in listing.splitlines() if "=" in line)
    environment = {"UV_PYTHON_DOWNLOADS": "never"}
    for option, variable in [("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")]:
        for section in ["global", "install", ":env:"]:  # pip's own order: the last one wins
            if f"{section}.{option}" in settings:
                environment[variable] = ast.literal_eval(settings[f"{section}.{option}"])
    return environment | os.environ


def install_with_uv():
    entry = re.search(r"^uv==.*(\n    --hash=.*)+", LOCK.read_text(), re.MULTILINE)
    only_uv = VENV / "uv.txt"
    only_uv.write_text(entry.group() + "\n")
    run(PYTHON, "-m", "pip", "install", "-q", "--require-hashes", "-r", only_uv)
    # Many containers set PYTHONDONTWRITEBYTECODE. Every process would then compile all modules that it imports.
    install = [UV, "pip", "install", "-q", "--compile-bytecode", "--python", PYTHON]
    run(*install, "--require-hashes", "-r", LOCK, env=uv_environment())
    run(*install, *PROJECT, env=uv_environment())


def install_with_pip():
    install = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*install, "--require-hashes", "-r", LOCK)
    run(*install, *PROJECT)


def make_env():
    start, tool = time.time(), "uv"
    venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    try:
        install_with_uv()
    except (subprocess.CalledProcessError, OSError):
        print("uv could not install the environment; pip does it, more slowly")
        tool = "pip"
        install_with_pip()
    run(PYTHON, "-m", "compileall", "-q", "workbench", "notebooks")
    print(f"{VENV.name} is ready: installed by {tool} in {time.time() - start:.0f} s")


def make_lock():
    # uv.lock and other lock formats name the package index, so only the export is kept in git.
    environment = uv_environment()
    run(UV, "lock", "-q", "--upgrade", "--python", PYTHON, env=environment)
    options = ["--frozen", "--no-emit-project", "--extra", "dev", "--extra", "site", "--python", PYTHON]
    run(UV, "export", "-q", *options, "--no-header", "-o", LOCK.name, env=environment)
    head = "# Made by `make lock` from pyproject.toml, for every platform and Python 3.11 or newer.\n"
    LOCK.write_text(head + LOCK.read_text())


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - any Python may start this file
        found = sys.version.split()[0]
        sys.exit(f"workbench needs Python 3.11 or newer, this is {found}: try make PYTHON=python3.12 env")
    one_at_a_time()
    make_lock() if sys.argv[1:] == ["--lock"] else make_env()

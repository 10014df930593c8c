"""Launcher of one rank: it starts the script as its child, and stays when the child dies.

torchrun ends all ranks as soon as one of its processes fails. The processes that it starts are launchers. A launcher
whose script was killed waits until the other ranks have finished. It ends with status 0 if the job is complete. The
launcher of rank 0 is the master as well, so that the death of any script leaves the job intact.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from workbench.core.base.errors import WorkbenchError
from workbench.core.base.text import YAMLError, parse
from workbench.ddp import environment
from workbench.ddp.environment import Environment
from workbench.mpi.launch.processes import die_with_parent

EXAMPLE = "torchrun --nproc-per-node=8 -m workbench.ddp --scheme GC --set stragglers=1 train.py"
DEFAULT_SCHEME, DEFAULT_ARGS = "GC", {"stragglers": 1}
FAILED_STATUS, USAGE_STATUS = 1, 2
WHOLE = {"type": int, "default": 0}
# options of the command line, as `argparse` takes them
OPTIONS: dict[str, dict[str, Any]] = {
    "--scheme": {"help": "scheme, as in `workbench schemes`  [default: GC with stragglers=1]"},
    "--set": {"action": "append", "default": [], "metavar": "FIELD=VALUE", "help": "parameter of the scheme"},
    "--folder": {"type": Path, "help": "folder for times, losses and checkpoints"},
    "--checkpoint-every": {**WHOLE, "metavar": "STEPS", "help": "steps between checkpoints; 0: at the end"},
    "--resume": {"action": "store_true", "help": "continue from the checkpoint in the folder"},
    "--seed": {**WHOLE, "help": "seed of the batches and of augmentations"},
    "--check-every": {"type": int, "default": 100, "help": "number of exchanges between checks of states"},
    "--tolerance": {"type": float, "default": 1e-3, "help": "max relative difference of a sample's losses"},
    "--restarts": {**WHOLE, "help": "max number of times that a rank's script is started again"},
    "script": {"help": "the script, and its arguments"},
    "args": {"nargs": argparse.REMAINDER},
}
STOP_TIMEOUT_S = 5.0  # max time of a script to end after a signal, s
REPORT_TIMEOUT_S = 20.0  # max time to wait for the other launchers' reports that their scripts have ended, s


def parser() -> argparse.ArgumentParser:
    """Return the parser of the launcher's command line."""
    about = f"Train a script with a coded scheme: {EXAMPLE}"
    found = argparse.ArgumentParser("workbench.ddp", description=about)
    for name, options in OPTIONS.items():
        found.add_argument(name, **options)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank. Return its exit status."""
    options = parser().parse_args(argv)
    try:
        here = environment_of(options)
        # Only rank 0 imports the modules of the master, because all launchers of a host start at the same time.
        serving = import_module("workbench.ddp.serving") if here.rank == 0 else None
        with serving.served(here, options) if serving else contextlib.nullcontext() as master:
            return Launcher(here, options, master).run()
    except (WorkbenchError, ValueError, OSError) as error:
        print(f"workbench.ddp: {error}", file=sys.stderr)
        return USAGE_STATUS


def environment_of(options: argparse.Namespace) -> Environment:
    """Return the environment of this rank. Raises ValueError for a wrong option, or outside of torchrun."""
    if "RANK" not in os.environ:
        raise ValueError(f"RANK: is not set; start the job with torchrun, for instance {EXAMPLE}")
    args = scheme_args(options.set) if options.scheme or options.set else dict(DEFAULT_ARGS)
    ranks, local = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if ranks == 1 and not options.scheme:
        args = {"stragglers": 0}
    return Environment(
        rank=int(os.environ["RANK"]),
        ranks=ranks,
        scheme=options.scheme or DEFAULT_SCHEME,
        scheme_args=args,
        address=str(socket_path()) if ranks == local else "store",
        seed=options.seed,
        check_every=options.check_every,
    )


def scheme_args(given: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of a scheme from texts such as "stragglers=1".

    >>> scheme_args(["local_steps=4", "levels=[[2, 4]]"])
    {'local_steps': 4, 'levels': [[2, 4]]}
    """
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign:
            raise ValueError(f"--set = {text}: has no value; write FIELD=VALUE, such as stragglers=1")
        try:
            found[name] = parse(value)
        except YAMLError as error:
            raise ValueError(f"--set = {text}: {' '.join(str(error).split())}") from None
    return found


def socket_path() -> Path:
    """Return the path of the master's socket on this host. Only this user can open the socket.

    All launchers of a host are children of one torchrun process. Its process id is in the path.
    """
    name = f"{os.getppid()}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return Path(tempfile.gettempdir()) / f"workbench-ddp-{os.geteuid()}" / f"{name}.sock"


class Launcher:
    """Launcher of one rank. `master`: master of the job, if it is in this process."""

    def __init__(self, here: Environment, options: argparse.Namespace, master: Any = None) -> None:
        self.here, self.options, self.master = here, options, master
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the script until it ends. If the script failed, wait for the end of the job. Return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        code = self._run_script()
        for _ in range(self.options.restarts):
            if code == 0:
                break
            self._say(f"{ending(code)}; its script is started again")
            code = self._run_script()
        if code:
            self._say(f"{ending(code)}; the other ranks continue if the scheme tolerates it")
        return self._status(code)

    def _run_script(self) -> int:
        command = [sys.executable, self.options.script, *self.options.args]
        variables = {**os.environ, environment.VARIABLE: self.here.text()}
        self.child = subprocess.Popen(command, env=variables, preexec_fn=die_with_parent)
        return self.child.wait()

    def _stop(self, number: int, frame: object) -> None:
        """End the script and the launcher, after torchrun has sent a signal."""
        if self.child is not None and self.child.poll() is None:
            self.child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(STOP_TIMEOUT_S)
        sys.exit(128 + number)

    def _status(self, code: int) -> int:
        why = "its script ended without a job" if code == 0 else ending(code)
        if self.master is None and code == 0:
            self._tell({"why": why, "wait": False})
            return 0
        if self.master is not None:
            self.master.lost(self.here.rank, why, failed=code != 0)
            self.master.wait()
            self.master.wait_for_launchers(REPORT_TIMEOUT_S)
            end = self.master.wait()
            if not end["complete"]:
                self._say(f"the job is not complete: {end['why']}")
        else:
            end = self._tell({"why": why, "wait": True})
        return 0 if end["complete"] else code or FAILED_STATUS

    def _tell(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Report to the master that this rank's script has ended. Return how the job has ended."""
        try:
            channel, token = self.here.connect(REPORT_TIMEOUT_S)
            channel.send({"launcher": self.here.rank, "token": token, **message})
            return channel.receive()[0]
        except (OSError, WorkbenchError) as error:
            return {"complete": False, "why": str(error)}

    def _say(self, text: str) -> None:
        print(f"workbench.ddp: rank {self.here.rank}: {text}", file=sys.stderr, flush=True)


def ending(code: int) -> str:
    """Describe how a process ended, as text. `code`: exit status, negative for a signal.

    >>> ending(-9), ending(1)
    ('killed by SIGKILL', 'ended with status 1')
    """
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"

"""A real run on engines of ipyparallel: handed in by calls instead of to a pool, all else as any other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.base.errors import ClusterError
from workbench.base.files import write_json
from workbench.core.plan import MASTER
from workbench.experiment import Experiment
from workbench.launch.errors import described
from workbench.launch.processes import is_alive
from workbench.launch.task import Task
from workbench.running.real import RealRun
from workbench.trace.records import ENDED

if TYPE_CHECKING:
    from workbench.running.ipyparallel.interactive import Interactive


class EngineRun(RealRun):
    """A run on engines."""

    def __init__(self, experiment: Experiment, folder: Path, engines: Interactive) -> None:
        super().__init__(experiment, folder)
        self.engines = engines

    @property
    def unwanted(self) -> bool:
        """Was it stopped?"""
        return not self._wanted.is_set()

    def hand_in(self, task: Task) -> None:
        """Have the engines do it, and follow it to its end."""
        self.describe(task)
        self.engines.await_turn(self)
        self.held_by(
            {"cluster": {"kind": "local", "name": "local"}, "supervisor": self.engines.places[MASTER].pid}
        )
        calls = self.engines.serve(self, task)
        self.note = "starting"
        try:
            self.follow(calls)
        except ClusterError as error:
            if not (self.home / ENDED).exists():
                self.engines.broke_off()
                self._write_off(task, error)
            raise

    def _write_off(self, task: Task, error: ClusterError) -> None:
        """Say in its folder that a run has ended, where its master lives on: else it would seem to be under way."""
        if is_alive(self.engines.places[MASTER].pid):
            self.stop()
            words = {
                "state": "failed",
                "error": described(error, {}),
                "emulate": task.emulate,
                "first": task.first,
            }
            write_json(self.home / ENDED, {**words, "clean": False})

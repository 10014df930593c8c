"""A cluster with Slurm's queue: one job holds the ranks, mpiexec starts them inside its allocation.

The job's script starts the very supervisor that starts ranks elsewhere, so a run meets the same files; Slurm alone
decides when and where the job runs. A job serves run after run, ends when it has been idle for a while, at scancel, and
at its time limit; a run that it takes along goes on from its checkpoint (`wb.resume`).
"""

from typing import Literal

from typing_extensions import override

from workbench.base.settings import setting
from workbench.clusters.slurm.login import Login
from workbench.clusters.slurm.settings import SlurmSettings
from workbench.launch.site import Site


class Slurm(SlurmSettings):
    """A cluster with Slurm's queue. Nodes are taken when a run starts, and not before."""

    kind: Literal["slurm"] = setting("slurm", "a cluster with Slurm's queue")

    @override
    def here(self) -> Site:
        return Login(self)

"""Clusters whose ranks run in jobs of a batch system: what the kinds `slurm` and `pbs` share."""

from workbench.mpi.clusters.batch.job import Job as Job
from workbench.mpi.clusters.batch.job import JobSpec as JobSpec
from workbench.mpi.clusters.batch.kind import BatchCluster as BatchCluster
from workbench.mpi.clusters.batch.queue import call as call

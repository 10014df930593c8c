"""Clusters that Slurm hands out. Importing this package makes the kind `slurm` known."""

from workbench.mpi.clusters.slurm import kind as kind

"""Clusters of hosts that are reached by ssh. Importing this package makes the kind `ssh` known."""

from workbench.mpi.clusters.ssh.kind import Ssh as Ssh

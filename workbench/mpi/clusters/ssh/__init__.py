"""Clusters of hosts that are reached by ssh. Importing this package registers the kind `ssh`."""

from workbench.mpi.clusters.ssh.kind import Ssh as Ssh

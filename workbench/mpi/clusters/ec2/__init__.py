"""Clusters of machines rented from EC2. Importing this package makes the kind `ec2` known."""

from workbench.mpi.clusters.ec2 import kind as kind

"""Clusters of machines rented from EC2. Importing this package registers the kind `ec2`."""

from workbench.mpi.clusters.ec2 import kind as kind

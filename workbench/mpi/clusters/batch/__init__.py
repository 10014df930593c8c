"""Clusters whose ranks run in the jobs of a batch system: what the kinds `slurm` and `pbs` have in common."""

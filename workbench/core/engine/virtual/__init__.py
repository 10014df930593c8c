"""The virtual clock: all nodes' programs in one process."""

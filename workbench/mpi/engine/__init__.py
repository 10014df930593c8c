"""Real processes: one rank answers its program's effects over MPI."""

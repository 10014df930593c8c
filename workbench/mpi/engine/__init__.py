"""Engine of real runs: node programs over MPI, with or without emulated delays."""

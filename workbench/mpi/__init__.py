"""Real runs: ranks over MPI, pools, and the clusters that they are started on."""

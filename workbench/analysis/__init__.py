"""Planning, diagnosis and the table of runs: needs no Jupyter."""

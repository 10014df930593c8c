"""Schemes, problems, the event engine, simulated runs and forecasts: needs no MPI and no Jupyter."""

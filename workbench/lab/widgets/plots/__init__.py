"""Plots of runs, sweeps and rounds that are updated during runs."""

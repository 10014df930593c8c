"""Figures, widgets and sweeps for notebooks."""

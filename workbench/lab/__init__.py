"""Figures, widgets and sweeps: what a notebook shows."""

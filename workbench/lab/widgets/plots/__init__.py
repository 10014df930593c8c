"""Plots that grow during runs."""

"""Plots that grow while runs go on."""

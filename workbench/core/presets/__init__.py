"""Experiments of the papers."""

"""Runs: begun, watched, stopped, gone on with, replayed; on the virtual clock or on real processes."""

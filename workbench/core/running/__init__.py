"""Runs on the virtual clock or on real processes: start, watch, stop, resume and replay them."""

"""Runs on real processes: start, follow, resume and replay."""

"""Runs on real processes: started, watched, resumed, replayed."""

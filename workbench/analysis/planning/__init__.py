"""What to use here: a cluster measured, schemes ranked on it."""

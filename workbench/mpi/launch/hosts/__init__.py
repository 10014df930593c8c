"""Work on every machine that has ranks."""

"""The table of runs, and what is exported of it."""
